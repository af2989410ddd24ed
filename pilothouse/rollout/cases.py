# SPDX-License-Identifier: Apache-2.0
"""The cases: contents of objects that some proxy refused, and whom each concerns.

A case is open while proxies that are to hold the very same resources have not answered. One that
accepts them closes it: the object is right, and the proxy that refused is odd. When all have
answered and none accepted, the object is refused for the fleet. A case ends when its object is in
force with another content. Knows no stream: whoever asks says what a proxy holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.rollout import attribution

P = TypeVar("P", bound=Hashable)

Version = tuple[str, str, str]
"""Type URL, name and version of a resource."""
Versions = frozenset[Version]
Holds = Callable[[Versions], bool]


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Case(Generic[P]):
    """One content of one object."""

    config: objects.Config
    versions: Versions
    """The refused resources that come from it."""
    words: str
    """Who refused first, and how."""
    scope: attribution.Scope = attribution.Scope.OPEN
    waiting: set[P] = dataclasses.field(default_factory=set)
    """Proxies that are to hold the same and have not answered."""


class Cases(Generic[P]):
    """All cases of what is in force, by object."""

    def __init__(self) -> None:
        """Begin with none."""
        self._cases: dict[keys.ObjectKey, Case[P]] = {}
        self._open = 0

    def known(self, config: objects.Config) -> Case[P] | None:
        """The case of this very content, if there is one."""
        case = self._cases.get(config.key)
        return case if case is not None and case.config == config else None

    def open(
        self,
        config: objects.Config,
        *,
        versions: Versions,
        words: str,
        accepted: bool,
        waiting: Iterable[P],
    ) -> Case[P]:
        """Begin a case, or give the one there is.

        Args:
            config: The object that was found to be to blame, with the refused content.
            versions: What was refused of it.
            words: Who refused, and how.
            accepted: True if some other proxy holds all of ``versions``.
            waiting: Other proxies that are to hold them, and have not answered.
        """
        known = self.known(config)
        if known is not None:
            return known
        case = Case(config=config, versions=versions, words=words, waiting=set(waiting))
        case.scope = attribution.scope(accepted=accepted, waiting=len(case.waiting))
        self.forget(config.key)
        self._cases[config.key] = case
        self._open += case.scope is attribution.Scope.OPEN
        return case

    @property
    def undecided(self) -> bool:
        """True while some case is open."""
        return self._open > 0

    def answered(self, proxy: P, holds: Holds) -> tuple[Case[P], ...]:
        """Note that a proxy has answered everything it was sent.

        Args:
            proxy: Who.
            holds: Tells whether it has accepted all of these versions.

        Returns:
            The cases that this decided, in key order.
        """
        return self._look(lambda case: self._after(case, proxy, accepted=holds(case.versions)))

    def accepted(self, config: objects.Config) -> None:
        """Note that some proxy that refuses was found to accept this content of an object."""
        case = self.known(config)
        if case is not None and case.scope is attribution.Scope.OPEN:
            case.scope = attribution.Scope.PROXY
            self._open -= 1

    def gone(self, proxy: P) -> tuple[Case[P], ...]:
        """Note that a proxy will not answer any more; the cases that this decided."""
        return self._look(lambda case: self._after(case, proxy, accepted=False))

    def forget(self, key: keys.ObjectKey) -> None:
        """End the case of an object."""
        case = self._cases.pop(key, None)
        if case is not None:
            self._open -= case.scope is attribution.Scope.OPEN

    def keep(self, in_force: attribution.InForce) -> None:
        """End the cases of what is not in force any more."""
        for key in [k for k, case in self._cases.items() if in_force.get(k) != case.config]:
            self.forget(key)

    def _look(self, decide: Callable[[Case[P]], attribution.Scope]) -> tuple[Case[P], ...]:
        if not self._open:
            return ()
        decided = []
        for key in sorted(self._cases):
            case = self._cases[key]
            if case.scope is attribution.Scope.OPEN:
                case.scope = decide(case)
                if case.scope is not attribution.Scope.OPEN:
                    self._open -= 1
                    decided.append(case)
        return tuple(decided)

    @staticmethod
    def _after(case: Case[P], proxy: P, *, accepted: bool) -> attribution.Scope:
        case.waiting.discard(proxy)
        return attribution.scope(accepted=accepted, waiting=len(case.waiting))
