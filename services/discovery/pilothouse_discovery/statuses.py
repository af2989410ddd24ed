# SPDX-License-Identifier: Apache-2.0
"""The status of every object, from its conditions and its counts: pure.

``Programmed`` says whether every proxy that needs the object runs its present content. An object
that no connected proxy needs is programmed as soon as it is accepted, and says that nobody needs
it.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Iterable, Mapping
from typing import Final

from pilothouse.config import objects, status
from pilothouse.model import keys
from pilothouse.rollout import ledger
from pilothouse.routing import memo as memory

ACCEPTED = objects.Condition(type="Accepted", status=True, reason="Accepted")
_PROGRAMMED: Final = "Programmed"
_NOBODY: Final = ledger.Counts()
_REMEMBERED: Final = 4
"""States of one object: of a change before it and after it, and of the one before that."""
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
    given = memory.Memo() if memo is None else memo
    found = given.group(_all_told, "", observed, conditions)
    of = counts.get
    states = {
        key: one.states.get(of(key, _NOBODY)) or _state(one, of(key, _NOBODY))
        for key, one in found.items()
    }
    for key in words.keys() & found.keys():
        states[key] = _with_words(found[key], of(key, _NOBODY), words[key])
    return states


class _Told:
    """All of an object's state that no proxy has a part in, and what followed for some counts."""

    __slots__ = ("accepted", "after", "before", "config", "states")

    def __init__(
        self, config: objects.Config, ordered: Iterable[objects.Condition], *, accepted: bool
    ) -> None:
        self.config = config
        self.accepted = accepted
        self.before: list[objects.Condition] = []
        """Conditions whose types stand before ``Programmed``, sorted by type."""
        self.after: list[objects.Condition] = []
        """Those behind it."""
        self.states: dict[ledger.Counts, ObjectState] = {}
        """Thousands of objects share a resource, and go from one count to another and back."""
        for condition in ordered:
            (self.before if condition.type < _PROGRAMMED else self.after).append(condition)


def _all_told(
    memo: memory.Memo,
    observed: Mapping[keys.ObjectKey, objects.Config],
    conditions: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]],
) -> Mapping[keys.ObjectKey, _Told]:
    facts = {key: (config, conditions.get(key, ())) for key, config in observed.items()}
    return memo.mapped(_told, "", facts)


def _told(facts: tuple[objects.Config, tuple[objects.Condition, ...]]) -> _Told:
    config, given = facts
    grouped: dict[str, list[objects.Condition]] = {}
    for condition in given:
        grouped.setdefault(condition.type, []).append(condition)
    by_type = {ACCEPTED.type: ACCEPTED, RESOLVED.type: RESOLVED}
    by_type.update((name, status.merged(found)) for name, found in grouped.items())
    ordered = (by_type[name] for name in sorted(by_type))
    return _Told(config, ordered, accepted=by_type[ACCEPTED.type].status)


def _state(told: _Told, counts: ledger.Counts) -> ObjectState:
    """Remembered, and made of thousands of objects at once where it is not."""
    if len(told.states) >= _REMEMBERED:
        told.states.clear()
    state = told.states[counts] = _with_words(told, counts, "")
    return state


def _with_words(told: _Told, counts: ledger.Counts, words: str) -> ObjectState:
    config = told.config
    programmed = _programmed(told.accepted, counts, words)
    return ObjectState(
        key=config.key,
        generation=config.meta.generation,
        source=config.source,
        origins=config.meta.origins,
        conditions=(*told.before, programmed, *told.after),
        counts=counts,
    )


@functools.lru_cache(maxsize=1024)
def _programmed(
    accepted: bool,  # noqa: FBT001  a cache is looked up by positions
    counts: ledger.Counts,
    words: str,
) -> objects.Condition:
    if not accepted:
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
