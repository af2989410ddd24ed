# SPDX-License-Identifier: Apache-2.0
"""How findings are told: the words of conditions."""

from __future__ import annotations

import dataclasses

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.routing import routes

RESOLVED = "ResolvedRefs"
CONFLICTED = "Conflicted"
"""A warning: True when another object takes the place of this one, or of a part of it."""
NO_ENDPOINTS = "NoEndpoints"
"""A warning: True when a label set selects no endpoint, not even one that is not ready."""

Shadows = tuple[tuple[str, routes.Shadow], ...]
"""Matches that no request reaches, with the host and port where that is so."""
Conditions = tuple[objects.Condition, ...]
Labelled = tuple[keys.ServiceKey, keys.Labels]
"""A service, and labels of the endpoints that count."""


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with an object."""

    reason: str
    message: str


def resolved(problems: list[Problem]) -> Conditions:
    """``ResolvedRefs``: False with the first reason, if anything is wrong."""
    if not problems:
        return (objects.Condition(type=RESOLVED, status=True, reason=RESOLVED),)
    text = "; ".join(dict.fromkeys(problem.message for problem in problems))
    reason = problems[0].reason
    return (objects.Condition(type=RESOLVED, status=False, reason=reason, message=text),)


def no_endpoints(barren: tuple[Labelled, ...]) -> Conditions:
    """The warning about label sets that select nothing."""
    if not barren:
        return ()
    text = "; ".join(
        f"no endpoint of service {service} has the labels "
        + ",".join(f"{name}={value}" for name, value in labels)
        for service, labels in barren
    )
    return (
        objects.Condition(
            type=NO_ENDPOINTS, status=True, reason="LabelsSelectNothing", message=text
        ),
    )


def shadowed(shadows: Shadows) -> Conditions:
    """The warning about matches that nothing reaches."""
    return conflicted(
        tuple(
            f"{shadow.field} (match {shadow.match}) is never reached at {place}: "
            f"{shadow.winner} takes these requests first"
            for place, shadow in sorted(shadows, key=lambda one: (one[1], one[0]))
        ),
        reason="Shadowed",
    )


def conflicted(messages: tuple[str, ...], *, reason: str = "Lost") -> Conditions:
    """The warning about what others have taken."""
    if not messages:
        return ()
    text = "; ".join(messages)
    return (objects.Condition(type=CONFLICTED, status=True, reason=reason, message=text),)


def in_order(*conditions: Conditions) -> Conditions:
    """Conditions sorted by type."""
    return tuple(sorted((one for some in conditions for one in some), key=_type))


def _type(condition: objects.Condition) -> str:
    return condition.type
