# SPDX-License-Identifier: Apache-2.0
"""The status of every object, from its conditions and its counts: pure.

``Programmed`` says whether every proxy that needs the object runs its present content. An object
that no connected proxy needs is programmed as soon as it is accepted, and says that nobody needs
it.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Final, NamedTuple

from pilothouse.config import objects, status
from pilothouse.model import keys
from pilothouse.rollout import ledger
from pilothouse.routing import memo as memory

ACCEPTED = objects.Condition(type="Accepted", status=True, reason="Accepted")
_PROGRAMMED: Final = "Programmed"
_NOBODY: Final = ledger.Counts()
RESOLVED = objects.Condition(type="ResolvedRefs", status=True, reason="ResolvedRefs")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ObjectState:
    """What is known of one object at one moment."""

    key: keys.ObjectKey
    generation: int
    source: str
    origins: tuple[keys.ObjectKey, ...]
    conditions: tuple[objects.Condition, ...]
    """Sorted by type."""
    counts: ledger.Counts


def compute(
    observed: Mapping[keys.ObjectKey, objects.Config],
    conditions: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]],
    counts: Mapping[keys.ObjectKey, ledger.Counts],
    *,
    words: Mapping[keys.ObjectKey, str] = types.MappingProxyType({}),
    memo: memory.Memo | None = None,
) -> Mapping[keys.ObjectKey, ObjectState]:
    """The state of every observed object, in key order.

    Args:
        observed: The objects, in key order.
        conditions: What was found out about them.
        counts: How many proxies need them, and how far those are.
        words: Who refused an object, and how, where that is known.
        memo: Remembers the states; of thousands of objects a count concerns a few.
    """
    known = (memory.Memo() if memo is None else memo).mapped
    given = {key: (config, conditions.get(key, ())) for key, config in observed.items()}
    facts = {
        key: (one, counts.get(key, _NOBODY), words.get(key, ""))
        for key, one in known(_told, "", given).items()
    }
    return known(_state, "", facts)


class _Told(NamedTuple):
    """All of an object's state that no proxy has a part in."""

    config: objects.Config
    accepted: objects.Condition
    before: tuple[objects.Condition, ...]
    """Conditions whose types stand before ``Programmed``, sorted by type."""
    after: tuple[objects.Condition, ...]
    """Those behind it."""


def _told(facts: tuple[objects.Config, tuple[objects.Condition, ...]]) -> _Told:
    config, given = facts
    grouped: dict[str, list[objects.Condition]] = {}
    for condition in given:
        grouped.setdefault(condition.type, []).append(condition)
    by_type = {ACCEPTED.type: ACCEPTED, RESOLVED.type: RESOLVED}
    by_type.update((name, status.merged(found)) for name, found in grouped.items())
    ordered = sorted(by_type.items())
    return _Told(
        config,
        by_type[ACCEPTED.type],
        tuple(condition for name, condition in ordered if name < _PROGRAMMED),
        tuple(condition for name, condition in ordered if name > _PROGRAMMED),
    )


def _state(facts: tuple[_Told, ledger.Counts, str]) -> ObjectState:
    """Made of thousands of objects at once, where these share a resource that changes."""
    told, counts, words = facts
    config = told.config
    programmed = _programmed(told.accepted, counts, words=words)
    return ObjectState(
        key=config.key,
        generation=config.meta.generation,
        source=config.source,
        origins=config.meta.origins,
        conditions=(*told.before, programmed, *told.after),
        counts=counts,
    )


def _programmed(
    accepted: objects.Condition, counts: ledger.Counts, *, words: str
) -> objects.Condition:
    if not accepted.status:
        return _not_programmed(
            "NotAccepted",
            "the object is not accepted, so its present generation is in force nowhere",
        )
    if counts.refused:
        told = f"{counts.refused} of {counts.needed} proxies refused it"
        return _not_programmed("Refused", f"{told}: {words}" if words else told)
    if counts.acked < counts.needed:
        return _not_programmed(
            "Pending", f"{counts.acked} of {counts.needed} proxies have acknowledged it"
        )
    message = (
        f"all {counts.needed} proxies that need it run it"
        if counts.needed
        else "no connected proxy needs it"
    )
    return objects.Condition(type=_PROGRAMMED, status=True, reason=_PROGRAMMED, message=message)


def _not_programmed(reason: str, message: str) -> objects.Condition:
    return objects.Condition(type=_PROGRAMMED, status=False, reason=reason, message=message)


def difference(
    old: Mapping[keys.ObjectKey, ObjectState], new: Mapping[keys.ObjectKey, ObjectState]
) -> tuple[tuple[ObjectState, ...], tuple[keys.ObjectKey, ...]]:
    """States that are new or changed, and keys that are gone, both in key order."""
    changed = tuple(state for key, state in new.items() if old.get(key) != state)
    return changed, tuple(key for key in old if key not in new)
