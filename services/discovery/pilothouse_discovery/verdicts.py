# SPDX-License-Identifier: Apache-2.0
"""Whom a refusal concerns: what the cases of `rollout.cases` have to be told of the clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pilothouse.config import admission, objects
from pilothouse.model import changes, keys
from pilothouse.rollout import attribution, cases
from pilothouse_discovery import clients, records

Records = Mapping[clients.Client, records.Record]


class Verdicts:
    """The cases of all clients, and the refusals for the fleet that follow from them."""

    def __init__(self, known: Records) -> None:
        """Begin with no case; ``known`` are the clients, as they come and go."""
        self.changed: Callable[[changes.Change], None] = lambda _: None
        """Asks for a new build."""
        self._records = known
        self._cases: cases.Cases[clients.Client] = cases.Cases()
        self._accepted = admission.AcceptedSet()
        self._refusals: list[admission.Refusal] = []
        self._inherited: attribution.InForce = {}
        """What was there at the start. Of that nobody knows whether proxies ran it before."""
        self._complete = False

    def take(self) -> tuple[admission.Refusal, ...]:
        """What was refused for the fleet since the last call."""
        refusals, self._refusals = tuple(self._refusals), []
        return refusals

    def begin(self, accepted: admission.AcceptedSet, *, complete: bool) -> None:
        """Take what is in force by a new build; ``complete`` when all sources had been read."""
        self._accepted = accepted
        if not self._complete:
            self._inherited, self._complete = accepted.configs, complete
        self._cases.keep(accepted.configs)

    def known(self, config: objects.Config) -> bool:
        """Tell whether somebody was found to refuse this content."""
        return self._cases.known(config) is not None

    def cleared(self, record: records.Record, config: objects.Config) -> None:
        """A client was found not to refuse this content, while it refused something else."""
        record.cleared[config.key] = config
        self._cases.accepted(config)

    def look(self, client: clients.Client) -> None:
        """A client has answered everything, and is not searched."""
        if self._cases.undecided:
            self._decide(self._cases.answered(client, lambda found: records.runs(client, found)))

    def gone(self, client: clients.Client) -> None:
        """A client will not answer any more."""
        self._decide(self._cases.gone(client))

    def open(
        self,
        search: records.Search,
        key: keys.ObjectKey,
        client: clients.Client,
        *,
        refusing: set[clients.Client],
        accepted: bool,
    ) -> None:
        """A search has found a culprit.

        Args:
            search: The search.
            key: The culprit.
            client: On whom.
            refusing: All that refuse it.
            accepted: True if it is known that somebody does not.
        """
        config = search.now[key]
        versions = frozenset(
            (one.type_url, one.name, one.version) for one in search.changed if key in one.origins
        )
        others = {one: record for one, record in self._records.items() if one not in refusing}
        accepted = accepted or any(
            records.runs(one, versions) or record.cleared.get(key) == config
            for one, record in others.items()
        )
        case = self._cases.open(
            config,
            versions=versions,
            words=f"{client.name}: {search.words}",
            accepted=accepted or self._may_have_run(config),
            waiting=[
                one
                for one, record in others.items()
                if records.is_to_run(one, versions)
                or (record.searched and record.view.get(key) == config)
            ],
        )
        self._decide((case,))

    def _may_have_run(self, config: objects.Config) -> bool:
        """Tell whether to hold it for all might take away what some run, with nothing instead."""
        inherited = self._inherited.get(config.key) == config
        return inherited and config.key not in self._accepted.fallbacks

    def _decide(self, decided: tuple[cases.Case[clients.Client], ...]) -> None:
        for case in decided:
            if case.scope is attribution.Scope.FLEET:
                self._refusals.append(
                    admission.Refusal.of(
                        case.config, reason=admission.REFUSED_BY_PROXY, message=case.words
                    )
                )
                self.changed(changes.Change(source="refusal", keys=(case.config.key,)))
