# SPDX-License-Identifier: Apache-2.0
"""What happens when a proxy refuses: who is to blame is found out on it, and held.

Rules of this file:
- It looks at a client when everything was written and answered, and compares; it keeps no history
  of events. A newer target settles older refusals by itself.
- A refusal begins one search at most: what was refused is remembered by the content's version, and
  clients that refuse the same as one that is being searched wait for what is found there.
- A client is only ever given what `held` says: objects as they were when it accepted last, or left
  out. So no loop of refusals can begin here: each search ends (`rollout.trials`), and what it found
  stays held until the object changes.
- A client that brought its configuration along, and accepted nothing yet, is searched gently: what
  it runs is not known, and to take it away would break what works.
- This knows no event loop. It asks for clients to be served again, and for a new build.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

import structlog

from pilothouse.config import admission
from pilothouse.model import changes, keys
from pilothouse.rollout import attribution, trials
from pilothouse.xds import types
from pilothouse_discovery import clients, held_counts, records, suspicion, verdicts

_LOG = structlog.get_logger(__name__)

_REMEMBERED: Final = 1000
"""How many proxies that went away are remembered with what is held for them."""


class Holding:
    """All records, and what follows for everybody."""

    def __init__(self) -> None:
        """Begin without clients; `attach` comes before the first one."""
        self._again: Callable[[clients.Client], None] = lambda _: None
        self._records: dict[clients.Client, records.Record] = {}
        self._special: set[clients.Client] = set()
        """Those that are searched, wait for a search, or have something held."""
        self._searches: dict[Hashable, clients.Client] = {}
        self._verdicts = verdicts.Verdicts(self._records)
        self._parted: collections.OrderedDict[str, dict[keys.ObjectKey, records.Hold]] = (
            collections.OrderedDict()
        )
        self._newest: dict[str, clients.Client] = {}
        """By name: the stream that was opened last."""
        self._accepted = admission.AcceptedSet()

    def attach(
        self,
        *,
        again: Callable[[clients.Client], None],
        changed: Callable[[changes.Change], None],
    ) -> None:
        """Say how a client is served again, and how a new build is asked for."""
        self._again = again
        self._verdicts.changed = changed

    # What the builder is told

    def take(self) -> tuple[admission.Refusal, ...]:
        """What proxies refused for the fleet since the last call."""
        return self._verdicts.take()

    def proven(self) -> frozenset[keys.ObjectKey]:
        """The objects that some proxy runs as they are in force."""
        now = self._accepted.configs
        layers = {
            layer
            for client, record in self._records.items()
            if record.confirmed is now
            and not record.lagging
            and client.session.stream.target is not None
            for layer in client.session.stream.target.layers
        }
        return frozenset(key for layer in layers for key in layer.origins if key in now)

    def begin(self, accepted: admission.AcceptedSet, *, complete: bool = True) -> None:
        """Take what is in force by a new build; targets made from it follow.

        ``complete`` is False while a source has not been read: until then what comes is not new.
        """
        self._accepted = accepted
        now = accepted.configs
        self._verdicts.begin(accepted, complete=complete)
        for client in tuple(self._special):
            record = self._records[client]
            search = record.search
            if search is not None and any(
                now.get(key) != search.now.get(key) for key in search.trial.suspects
            ):
                self._end_search(record)
            record.waits_for = None  # it refuses again what it refused
            record.holds = {k: one for k, one in record.holds.items() if now.get(k) == one.config}
            record.cleared = {k: one for k, one in record.cleared.items() if now.get(k) == one}
            self._hold(client, record)
        for name, held in tuple(self._parted.items()):
            left = {key: one for key, one in held.items() if now.get(key) == one.config}
            if left:
                self._parted[name] = left
            else:
                del self._parted[name]

    def held(self, client: clients.Client) -> records.Held:
        """What a client is given in another content than the fleet."""
        record = self._records.get(client)
        return records.NOTHING if record is None else record.held

    def at_peace(self, client: clients.Client) -> bool:
        """True when a client runs what is in force, and nothing else is of interest in it."""
        record = self._records.get(client)
        return (
            record is not None
            and client not in self._special
            and record.given is record.held
            and record.confirmed is record.view is self._accepted.configs
            and not (record.lagging or record.tried)
        )

    # What clients do

    def opened(self, client: clients.Client) -> None:
        """A proxy has come, perhaps one that was here before."""
        record = self._records[client] = records.Record()
        record.holds = self._parted.pop(client.name, {})
        # The end of its last stream may be seen later: another worker tells it, or nobody.
        before = self._newest.get(client.name)
        if before is not None:
            record.holds = {**record.holds, **self._records[before].holds}
        self._newest[client.name] = client
        self._hold(client, record)

    def given(self, client: clients.Client, held: records.Held) -> None:
        """A client has a new target, made from what is in force and ``held``."""
        record = self._records.get(client)
        if record is not None:
            record.given = held
            record.view = (
                records.overlaid(self._accepted.configs, held) if held else self._accepted.configs
            )
            self.look(client)

    def gone(self, client: clients.Client) -> None:
        """A client's stream has ended."""
        record = self._records.pop(client, None)
        if record is None:
            return
        self._special.discard(client)
        if self._newest.get(client.name) is client:
            del self._newest[client.name]
        if record.holds:
            self._parted[client.name] = record.holds
            while len(self._parted) > _REMEMBERED:
                self._parted.popitem(last=False)
        if record.search is not None:
            self._end_search(record)
        self._verdicts.gone(client)

    def look(self, client: clients.Client) -> None:
        """Look at a client that was given something, or has answered."""
        record = self._records.get(client)
        stream = client.session.stream
        if record is None or stream.target is None or not stream.idle:
            return
        if record.given is not record.held:
            return  # it is about to be given something else
        refusals = stream.refusals
        if record.search is not None:
            self._answer(client, record, record.search, refusals)
            return
        for url in refusals:
            record.lagging.setdefault(url, record.confirmed)
        if stream.current is stream.target:
            record.confirmed = record.view
            if record.lagging or record.tried:
                record.lagging = {u: v for u, v in record.lagging.items() if u in refusals}
                record.tried = {u: v for u, v in record.tried.items() if u in refusals}
        if refusals and record.waits_for is None:
            self._begin_search(client, record, refusals)
        if not record.searched:
            self._verdicts.look(client)

    # Searching

    def _begin_search(
        self, client: clients.Client, record: records.Record, refusals: Mapping[str, str]
    ) -> None:
        for url in sorted(refusals, key=lambda one: types.of(one).order):
            search = suspicion.of(client, record, url, refusals[url], known=self._verdicts.known)
            if search is None:
                continue
            if search.group in self._searches:
                record.waits_for = search.group
            else:
                search.base = self._accepted.configs
                record.search = search
                self._searches[search.group] = client
                _LOG.info(
                    "searching for what is refused",
                    node=client.name,
                    type=url,
                    suspects=len(search.trial.suspects),
                )
            self._hold(client, record)
            return

    def _answer(
        self,
        client: clients.Client,
        record: records.Record,
        search: records.Search,
        refusals: Mapping[str, str],
    ) -> None:
        """A client under search has accepted or refused what was tried."""
        url = search.type_url
        accepted = url not in refusals or attribution.is_local(url, refusals[url])
        trial = search.trial.answer(accepted=accepted)
        fell_back = self._tried(search, bare=True) != self._tried(search, bare=False)
        gently = search.trial.alone is not None
        if trial.blameless and not (gently or search.bare) and fell_back:
            search.bare = True  # others ran those, and this one may dislike them as well
        else:
            search.trial = trial
        if search.trial.done:
            self._found(client, record, search)
        self._hold(client, record)
        if search.trial.done:
            self.look(client)  # it may have what is held from now on already

    def _found(
        self, client: clients.Client, record: records.Record, search: records.Search
    ) -> None:
        """A search has ended: hold the culprits for all that refuse the same."""
        culprits = search.trial.culprits
        _LOG.warning(
            "what is refused was found" if culprits else "nobody to blame for a refusal",
            node=client.name,
            type=search.type_url,
            reason=search.words,
            objects=[str(key) for key in culprits],
        )
        for key in search.trial.cleared:
            self._verdicts.cleared(record, search.now[key])
        waiting = self._end_search(record)
        odd: tuple[keys.ObjectKey, ...] = ()
        if search.first is None:
            if not culprits:
                record.tried[search.type_url] = search.version
                for one in waiting:
                    self._records[one].tried[search.type_url] = _version(one, search.type_url)
            self._hold_all(client, search, culprits)
            if len(culprits) > 1 and waiting:
                self._ask_another(client, search, waiting)
                return
            agreed = culprits
        else:
            self._hold_all(client, search, culprits)
            waiting = (*waiting, search.first)
            agreed, odd = culprits, search.trial.cleared
        for one in waiting:
            self._hold_all(one, search, agreed)
        for key in agreed:
            self._verdicts.open(search, key, client, refusing={client, *waiting}, accepted=False)
        for key in odd:
            self._verdicts.open(search, key, client, refusing={client, *waiting}, accepted=True)

    def _ask_another(
        self, client: clients.Client, search: records.Search, waiting: tuple[clients.Client, ...]
    ) -> None:
        """Have a second client say which of several culprits it refuses too.

        One culprit alone is why everybody refuses. Of several, some may be the first one's own.
        """
        second, *rest = waiting
        for one in rest:
            self._records[one].waits_for = search.group
        record = self._records[second]
        record.search = dataclasses.replace(
            search,
            trial=trials.begin(search.trial.culprits),
            before=record.lagging.get(search.type_url, record.confirmed),
            now=record.view,
            base=self._accepted.configs,
            first=client,
        )
        self._searches[search.group] = second
        self._hold(second, record)

    def _end_search(self, record: records.Record) -> tuple[clients.Client, ...]:
        """Forget a search; those that waited for it look again when they are served."""
        search, record.search = record.search, None
        if search is None:
            return ()
        self._searches.pop(search.group, None)
        waiting = tuple(one for one in self._special if self._waits(one, search.group))
        for one in waiting:
            self._records[one].waits_for = None
            self._again(one)
        return tuple(sorted(waiting, key=lambda one: one.id))

    def _waits(self, client: clients.Client, group: Hashable) -> bool:
        return self._records[client].waits_for == group

    # Holding

    def _hold_all(
        self, client: clients.Client, search: records.Search, found: Iterable[keys.ObjectKey]
    ) -> None:
        """Hold objects for a client, as they were when it accepted last."""
        record = self._records.get(client)
        if record is None:
            return  # it went away meanwhile
        before = record.lagging.get(search.type_url, record.confirmed)
        fallbacks = self._fallbacks(bare=search.bare)
        for key in found:
            config = search.now[key]
            instead = records.instead(config, before, fallbacks)
            record.holds[key] = records.Hold(config=config, instead=instead, words=search.words)
        self._hold(client, record)

    def _fallbacks(self, *, bare: bool) -> attribution.InForce:
        return {} if bare else self._accepted.fallbacks

    def _tried(self, search: records.Search, *, bare: bool) -> records.Held:
        """What is held in the present trial of a search."""
        fallbacks = self._fallbacks(bare=bare)
        return {
            key: records.instead(search.now[key], search.before, fallbacks)
            for key in search.trial.held
        }

    def _hold(self, client: clients.Client, record: records.Record) -> None:
        """Work out what is held for a client, and have it served if that is something else."""
        held = {key: one.instead for key, one in record.holds.items()}
        search = record.search
        if search is not None:
            held |= records.pinned(search, self._accepted.configs)
            held |= self._tried(search, bare=search.bare)
        if search or held or record.waits_for or record.cleared:
            self._special.add(client)
        else:
            self._special.discard(client)
        if held != record.held:
            record.held = held or records.NOTHING
            self._again(client)
        elif search is not None:
            # Nothing to send: it has what is tried already.
            self._again(client)

    # What people are told

    @property
    def concerned(self) -> held_counts.Concerned:
        """The clients that are searched, or have something held."""
        records_of = ((client, self._records[client]) for client in self._special)
        return {client: one for client, one in records_of if one.search or one.holds}

    def searched(self, client: clients.Client) -> bool:
        """Tell whether it is still to be found out what a client refuses."""
        record = self._records.get(client)
        return record is not None and record.searched


def _version(client: clients.Client, type_url: str) -> str:
    target = client.session.stream.target
    return "" if target is None else target.version(type_url)
