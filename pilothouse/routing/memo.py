# SPDX-License-Identifier: Apache-2.0
"""Memory between one state and the next: what had equal arguments is not computed again.

Rules of this file: a function given to a memo is pure and defined at module level, so its arguments
are all it knows, and they are the cache key. A slot says which of many calls of one function is
meant; it holds the last arguments and the last value. Arguments are compared, never hashed:
unchanged parts are the same objects, and comparing those costs nothing. A new value that equals the
old one is given up for the old one, so identity tells downstream whether anything changed.

Of thousands of calls of one function even a look at each is too much for one change: `Memo.mapped`
looks at a whole mapping at once, and `Memo.turned` keeps an index of one.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar, TypeVarTuple, cast

from pilothouse.routing import overlaid

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
W = TypeVar("W")
P = TypeVar("P", bound=Hashable)


class Living(Generic[K, V]):
    """Values for objects, by identity, each for as long as its object exists.

    Objects come and go without a new state: what is remembered of one must go with it.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[K], V]] = {}

    def get(self, of: K) -> V | None:
        """The value; None if there is none."""
        known = self._known.get(id(of))
        return None if known is None else known[1]

    def put(self, of: K, value: V) -> V:
        """Take a value, and return it."""
        key, known = id(of), self._known
        # An object is told to be gone before another one can get its identity.
        self._known[key] = (weakref.ref(of, lambda _: known.pop(key, None)), value)
        return value

    def __len__(self) -> int:
        """Of how many objects something is known."""
        return len(self._known)


class _Entry(NamedTuple):
    args: tuple[object, ...]
    value: object
    child: Memo | None


class _Mapped(NamedTuple):
    items: Mapping[Any, Any]
    more: Mapping[Any, Any]
    args: tuple[object, ...]
    values: dict[Any, Any]
    children: dict[Any, Memo]


class _Turned(NamedTuple):
    items: Mapping[Any, Any]
    values: Mapping[Any, Any]


_NO_PLACES: Final = _Turned({}, {})
_NONE: Final = _Mapped({}, {}, (), {}, {})
_Table = dict[tuple[Callable[..., object], Hashable], Any]


class Memo:
    """One generation of calls; looks back one generation, and forgets what that did not use."""

    __slots__ = ("_current", "_previous")

    def __init__(self, previous: _Table | None = None) -> None:
        self._previous: _Table = {} if previous is None else previous
        self._current: _Table = {}

    def next(self) -> Memo:
        """The next generation; one that nobody used is skipped, so a burst loses nothing."""
        return Memo(self._current or self._previous)

    def turn(self) -> None:
        """Begin the next generation here: for many calls in one state, of which few come again."""
        self._previous, self._current = self._current, {}

    def leaf(self, function: Callable[[*Ts], R], slot: Hashable, *args: *Ts) -> R:
        """The value of ``function(*args)``; the same object as before when it is equal to that."""
        key = (function, slot)
        known = self._current.get(key) or self._previous.get(key)
        if known is None or known.args != args:
            value = _settle(known, function(*args))
            known = _Entry(args, value, None)
        self._current[key] = known
        return cast("R", known.value)

    def group(self, function: Callable[[Memo, *Ts], R], slot: Hashable, *args: *Ts) -> R:
        """The value of ``function(memo, *args)``, which remembers its own parts in that memo.

        With equal arguments the function is not called, and its parts are kept.
        """
        key = (function, slot)
        known = self._current.get(key) or self._previous.get(key)
        if known is None or known.args != args:
            child = Memo(known.child._current if known and known.child else None)  # noqa: SLF001
            value = _settle(known, function(child, *args))
            child._previous = {}
            known = _Entry(args, value, child)
        self._current[key] = known
        return cast("R", known.value)

    def whole(
        self, function: Callable[[tuple[V, ...]], R], slot: Hashable, parts: tuple[V, ...]
    ) -> R:
        """The value of ``function(parts)`` for large parts that are remembered themselves.

        They are compared by identity: of two that differ in the last of thousands of places, a
        comparison would look at all the others, for everybody who has them.
        """
        key = (function, slot)
        known = self._current.get(key) or self._previous.get(key)
        if known is None or [*map(id, known.args)] != [*map(id, parts)]:
            known = _Entry(parts, function(parts), None)
        self._current[key] = known
        return cast("R", known.value)

    def mapped(
        self, function: Callable[[V, *Ts], R], slot: Hashable, items: Mapping[K, V], *args: *Ts
    ) -> Mapping[K, R]:
        """``function(value, *args)`` of every value, by the same keys and in their order.

        With equal ``args`` only other values than before are looked at. The mapping is the same
        object as before when it is equal to that; ``items`` must not be changed afterwards.
        """
        return self._map(slot, function, items, {}, args)

    def mapped_group(
        self,
        function: Callable[[Memo, V, *Ts], R],
        slot: Hashable,
        items: Mapping[K, V],
        *args: *Ts,
    ) -> Mapping[K, R]:
        """``mapped`` with ``function(memo, value, *args)``, which remembers its parts by key."""
        return self._map(slot, function, items, {}, args, parts=True)

    def joined(
        self,
        function: Callable[[tuple[V, tuple[W, ...]]], R],
        slot: Hashable,
        items: Mapping[K, V],
        more: Mapping[K, tuple[W, ...]],
    ) -> Mapping[K, R]:
        """``mapped`` with ``function((value, what more has by its key))``.

        What ``more`` does not have is empty there; what it has besides is left out.
        """
        return self._map(slot, function, items, more, (), joined=True)

    def joined_group(
        self,
        function: Callable[[Memo, tuple[V, tuple[W, ...]]], R],
        slot: Hashable,
        items: Mapping[K, V],
        more: Mapping[K, tuple[W, ...]],
    ) -> Mapping[K, R]:
        """``joined`` with ``function(memo, ...)``, which remembers its parts by key."""
        return self._map(slot, function, items, more, (), parts=True, joined=True)

    def _map(
        self,
        slot: Hashable,
        function: Callable[..., R],
        items: Mapping[K, Any],
        more: Mapping[K, Any],
        args: tuple[object, ...],
        *,
        parts: bool = False,
        joined: bool = False,
    ) -> Mapping[K, R]:
        key = (function, slot)
        known: _Mapped = self._current.get(key) or self._previous.get(key) or _NONE
        same = known.args == args
        if items is not known.items or more is not known.more or not same:
            fresh: dict[K, R] = {}
            children: dict[K, Memo] = {}
            steady = _same_keys(known.items, items)
            for one in _concerned(known, items, more, steady=steady) if same else items:
                value: Any = (items[one], more.get(one, ())) if joined else items[one]
                if parts:
                    before = known.children.get(one)
                    children[one] = child = Memo(before._current if before else None)  # noqa: SLF001
                    made = function(child, value, *args)
                    child._previous = {}
                else:
                    made = function(value, *args)
                if one not in known.values or known.values[one] != made:
                    fresh[one] = made
            values = _patched(known.values, fresh, items, steady=steady)
            kept = _patched(known.children, children, items, steady=steady) if parts else {}
            known = _Mapped(items, more, args, values, kept)
        self._current[key] = known
        return known.values

    def turned(
        self, slot: Hashable, items: Mapping[K, tuple[tuple[P, V], ...]]
    ) -> Mapping[P, Mapping[K, tuple[V, ...]]]:
        """What is at each place, by the keys of ``items``: of ``{key: ((place, value), ...)}``.

        Keys, which must have an order, are in order at each place. Places are in none: look them
        up, or sort them. A place where nothing changed has the same object as before.
        """
        key = (Memo.turned, slot)
        known: _Turned = self._current.get(key) or self._previous.get(key) or _NO_PLACES
        if items is not known.items:
            steady = _same_keys(known.items, items)
            gone = [] if steady else _gone(known.items, items)
            found: dict[P, dict[K, tuple[V, ...]]] = {}
            for one in (*gone, *_changed(known.items, items, steady=steady)):
                _move(one, known.items.get(one, ()), items.get(one, ()), known.values, found)
            known = _Turned(items, _replaced(known.values, found))
        self._current[key] = known
        return known.values


def differing(before: Mapping[K, V], now: Mapping[K, V]) -> list[K]:
    """The keys of other objects than before, and those that are gone.

    No step of Python's for each key, while the keys are the same.
    """
    steady = _same_keys(before, now)
    found = [*_others(before, now, steady=steady)]
    return found if steady else found + _gone(before, now)


def _concerned(
    known: _Mapped, items: Mapping[K, Any], more: Mapping[K, Any], *, steady: bool
) -> list[K]:
    """The keys of ``items`` whose value, or whatever else there is of them, is another."""
    found = _changed(known.items, items, steady=steady)
    if more is known.more:
        return found
    steady = _same_keys(known.more, more)
    others = _changed(known.more, more, steady=steady)
    others += [] if steady else _gone(known.more, more)
    return [*dict.fromkeys((*found, *(one for one in others if one in items)))]


def _changed(before: Mapping[K, V], now: Mapping[K, V], *, steady: bool) -> list[K]:
    """The keys of other values than before. Most values are the same objects.

    ``steady`` is true when the keys are the same.
    """
    if now is before:
        return []
    others = _others(before, now, steady=steady)
    return [key for key in others if key not in before or now[key] != before[key]]


_NOTHING: Final = object()


def _others(before: Mapping[K, V], now: Mapping[K, V], *, steady: bool) -> Iterator[K]:
    """The keys that have another object than before.

    Without a step of Python's for each key: this is what a change costs in a large mesh.
    """
    known = before.values() if steady else map(before.get, now, itertools.repeat(_NOTHING))
    return itertools.compress(now, map(operator.is_not, now.values(), known))


def _gone(before: Mapping[K, object], now: Mapping[K, object]) -> list[K]:
    return [*itertools.filterfalse(now.__contains__, before)]


def _same_keys(one: Mapping[K, object], other: Mapping[K, object]) -> bool:
    """Tell whether the keys are the same, in the same order."""
    return one is other or (len(one) == len(other) and [*one] == [*other])


def _patched(
    before: dict[K, R], fresh: dict[K, R], keys: Mapping[K, object], *, steady: bool
) -> dict[K, R]:
    """What was there before with what is new, by these keys; the same object if it is the same."""
    if not steady:
        every = before | fresh
        return dict(zip(keys, map(every.__getitem__, keys), strict=True))
    if not fresh:
        return before
    patched = before.copy()
    patched.update(fresh)
    return patched


def _move(
    key: K,
    before: tuple[tuple[P, V], ...],
    now: tuple[tuple[P, V], ...],
    known: Mapping[P, Mapping[K, tuple[V, ...]]],
    found: dict[P, dict[K, tuple[V, ...]]],
) -> None:
    """Take a key from where it was to where it is."""
    there: dict[P, tuple[V, ...]] = {place: () for place, _ in before}
    for place, value in now:
        there[place] = (*there.get(place, ()), value)
    for place, values in there.items():
        if place not in found:
            found[place] = {**known.get(place, {})}
        if values:
            found[place][key] = values
        else:
            found[place].pop(key, None)


def _replaced(
    known: Mapping[P, Mapping[K, tuple[V, ...]]], found: dict[P, dict[K, tuple[V, ...]]]
) -> Mapping[P, Mapping[K, tuple[V, ...]]]:
    first = operator.itemgetter(0)
    fresh = {
        place: dict(sorted(members.items(), key=first))
        for place, members in found.items()
        if members and known.get(place) != members
    }
    gone = {place for place, members in found.items() if not members and place in known}
    if not fresh and not gone:
        return known
    return overlaid.edited(known, fresh, gone)


def _settle(known: _Entry | None, value: Any) -> Any:
    return known.value if known is not None and known.value == value else value
