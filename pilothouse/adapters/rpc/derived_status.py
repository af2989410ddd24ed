# SPDX-License-Identifier: Apache-2.0
"""How an object stands from which others were derived, by what is said of those. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import objects, status
from pilothouse.model import keys

Conditions = Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """One derived object, and what discovery says of it."""

    key: keys.ObjectKey
    known: bool
    """True when discovery has seen its present generation."""
    needed: int = 0
    """Proxies whose configuration has something of it."""
    acked: int = 0
    """Those that run it."""
    refused: int = 0
    """Those that refused it."""
    conditions: tuple[objects.Condition, ...] = ()
    """Sorted by type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginStatus:
    """How one object stands."""

    key: keys.ObjectKey
    conditions: tuple[objects.Condition, ...]
    """Its own and those of what was derived from it, one of each type: the worse one."""
    derived: tuple[Derived, ...]
    """In key order."""

    @property
    def programmed(self) -> bool:
        """True when every proxy that needs something of it runs it."""
        return bool(self.derived) and all(
            each.known
            and not each.refused
            and any(one.type == status.PROGRAMMED and one.status for one in each.conditions)
            for each in self.derived
        )

    def as_json(self) -> dict[str, Any]:
        """For a debug page."""
        return {
            "object": str(self.key),
            "programmed": self.programmed,
            "conditions": [_json(one) for one in self.conditions],
            "derived": [
                {
                    "object": str(each.key),
                    "known": each.known,
                    "proxies": {
                        "needed": each.needed,
                        "acked": each.acked,
                        "refused": each.refused,
                    },
                    "conditions": [_json(one) for one in each.conditions],
                }
                for each in self.derived
            ],
        }


def trace_back(
    own: Conditions,
    configs: Iterable[objects.Config],
    statuses: Mapping[keys.ObjectKey, status_pb2.Status],
) -> tuple[OriginStatus, ...]:
    """The state of every object in `own`, in key order.

    Args:
        own: the conditions of each origin, as its converter found them.
        configs: everything derived; an object speaks for all of its origins.
        statuses: what discovery says of derived objects.
    """
    found: dict[keys.ObjectKey, list[Derived]] = {key: [] for key in own}
    for config in sorted(configs, key=lambda one: one.key):
        derived = _derived(config, statuses.get(config.key))
        for origin in config.meta.origins:
            if origin in found:
                found[origin].append(derived)
    return tuple(
        OriginStatus(
            key=key,
            conditions=_merge(own[key], *(each.conditions for each in found[key])),
            derived=tuple(found[key]),
        )
        for key in sorted(own)
    )


def _derived(config: objects.Config, said: status_pb2.Status | None) -> Derived:
    # What is said of an older generation says nothing of this one.
    if said is None or said.observed_generation != config.meta.generation:
        return Derived(key=config.key, known=False)
    return Derived(
        key=config.key,
        known=True,
        needed=said.proxies.needed,
        acked=said.proxies.acked,
        refused=said.proxies.refused,
        conditions=tuple(
            objects.Condition(
                type=one.type, status=one.status == "True", reason=one.reason, message=one.message
            )
            for one in said.conditions
        ),
    )


def _merge(*groups: Iterable[objects.Condition]) -> tuple[objects.Condition, ...]:
    by_type: dict[str, list[objects.Condition]] = {}
    for group in groups:
        for condition in group:
            by_type.setdefault(condition.type, []).append(condition)
    return tuple(status.merged(by_type[name]) for name in sorted(by_type))


def _json(condition: objects.Condition) -> dict[str, Any]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
