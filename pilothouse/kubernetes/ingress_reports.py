# SPDX-License-Identifier: Apache-2.0
"""What an Ingress is told: gathered while it is converted, and turned into conditions.

An Ingress has no conditions of its own; whoever shows these makes events and messages of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pilothouse.config import objects
from pilothouse.kubernetes import ingress_annotations, ingress_rules
from pilothouse.model import keys

ACCEPTED = "Accepted"
RESOLVED_REFS = "ResolvedRefs"
CONFLICTED = "Conflicted"
IGNORED = "Ignored"


class Placed(NamedTuple):
    """A route and the field of the Ingress that it comes from."""

    field: str
    route: ingress_rules.Route


class Report:
    """What is to be told to one Ingress."""

    def __init__(self) -> None:
        self._refused: list[tuple[str, str]] = []
        self._unresolved: list[tuple[str, str]] = []
        self._conflicts: list[str] = []
        self._ignored: list[str] = []

    def wishes(self, wishes: ingress_annotations.Wishes) -> None:
        """Take in what became of its annotations."""
        if wishes.refused:
            names = ", ".join(wishes.refused)
            self._refused.append(
                (
                    "UnsupportedAnnotation",
                    f"{names}: not supported, and not safe to pass over: all paths answer 503",
                )
            )
        if wishes.canary:
            self._refused.append(
                ("UnsupportedAnnotation", "canaries are not supported: no path is served")
            )
        for each in wishes.ignored:
            self.ignored(each)

    def unresolved(self, reason: str, message: str) -> None:
        """Something that it names is not there."""
        self._unresolved.append((reason, message))

    def conflict(self, message: str) -> None:
        """Something that it wants is taken."""
        self._conflicts.append(message)

    def ignored(self, message: str) -> None:
        """Something that it says has no effect."""
        self._ignored.append(message)

    def conditions(self) -> tuple[objects.Condition, ...]:
        """Everything, sorted by type."""
        found = [
            _condition(ACCEPTED, self._refused, good="Accepted"),
            _condition(RESOLVED_REFS, self._unresolved, good="ResolvedRefs"),
        ]
        if self._conflicts:
            found.append(_warning(CONFLICTED, "OlderCounts", self._conflicts))
        if self._ignored:
            found.append(_warning(IGNORED, "NoEffect", self._ignored))
        return tuple(sorted(found, key=lambda condition: condition.type))


def _condition(kind: str, wrong: list[tuple[str, str]], *, good: str) -> objects.Condition:
    if not wrong:
        return objects.Condition(type=kind, status=True, reason=good)
    message = "; ".join(dict.fromkeys(message for _, message in wrong))
    return objects.Condition(type=kind, status=False, reason=wrong[0][0], message=message)


def _warning(kind: str, reason: str, messages: list[str]) -> objects.Condition:
    message = "; ".join(dict.fromkeys(messages))
    return objects.Condition(type=kind, status=True, reason=reason, message=message)


class Claims:
    """Which Ingress has which path of which host: the first to come, so begin with the oldest."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, bool, str, str], keys.ObjectKey] = {}

    def take(
        self,
        claimant: keys.ObjectKey,
        place: ingress_rules.Place,
        placed: Iterable[Placed],
        report: Report,
    ) -> None:
        """Claim the paths of a host; those that are taken are told to the report."""
        for field, route in placed:
            path = route.path
            if route.kind == "prefix":
                path = path.rstrip("/") or "/"
            owner = self._taken.setdefault((place.host, place.default, route.kind, path), claimant)
            host = place.host or "every host"
            if owner != claimant:
                report.conflict(f"{field}: {path} of {host} is taken by {owner}")
