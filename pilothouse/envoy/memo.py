# SPDX-License-Identifier: Apache-2.0
"""Remember what a pure function gave, for as long as somebody uses it.

Identity comes first: whoever plans hands over the same objects for what did not change, and looking
at one costs nothing then. An equal object that was made anew is found by its value.

The table holds weakly. ``Memo.entry`` gives an entry, and whoever uses its result keeps the entry;
when the last user is gone the table forgets by itself. So nothing is counted, nothing leaks, and
what an unchanged layer uses is never made twice.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar, cast

V = TypeVar("V", bound=Hashable)
R = TypeVar("R")


def _nothing() -> None:
    """As a weak reference to something that is gone."""


class _Result(Generic[R]):
    """What the function gave: one for all equal values, alive as long as the entry of any."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: R) -> None:
        self.value = value


class Entry(Generic[V, R]):
    """A value and what the function gave for it."""

    __slots__ = ("__weakref__", "_result", "_value", "result")

    def __init__(self, value: V, result: _Result[R]) -> None:
        """Made by a Memo."""
        self._value = value  # keeps it alive: no other object can get the identity it is found by
        self._result = result
        self.result = result.value
        """What the function gave."""


class _Hashed(Generic[V]):
    """A value that is hashed once: plans are deep, and a table asks for the hash time and again."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: V) -> None:
        self._value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self._value == other._value


class Memo(Generic[V, R]):
    """The table of one function, for use from one thread at a time."""

    def __init__(self, compute: Callable[[V], R]) -> None:
        """``compute`` is called for a value that no living entry has; it must be pure."""
        self._compute = compute
        self._by_identity: dict[int, weakref.ref[Entry[V, R]]] = {}
        """No weak dictionary: asking one takes several times as long."""
        self._by_value: weakref.WeakValueDictionary[_Hashed[V], _Result[R]] = (
            weakref.WeakValueDictionary()
        )

    def entries(self, values: Iterable[V]) -> list[Entry[V, R]]:
        """Those of many objects, nearly all of which it knows."""
        listed = [*values]
        # Without a step of Python's for each that it knows: of ten thousand only one may be new.
        held = map(self._by_identity.get, map(id, listed), itertools.repeat(_nothing))
        found = [*map(operator.call, held)]
        if all(found):
            return cast("list[Entry[V, R]]", found)
        return [one or self.entry(value) for one, value in zip(found, listed, strict=True)]

    def entry(self, value: V) -> Entry[V, R]:
        """The entry of this very object; its result is shared with every equal one."""
        identity, known = id(value), self._by_identity
        held = known.get(identity)
        found = None if held is None else held()
        if found is not None:
            return found
        hashed = _Hashed(value)
        result = self._by_value.get(hashed)
        if result is None:
            result = self._by_value[hashed] = _Result(self._compute(value))
        made = Entry(value, result)

        def gone(it: weakref.ref[Entry[V, R]]) -> None:
            # Another object may have the identity by now, and an entry of its own.
            if known.get(identity) is it:
                del known[identity]

        known[identity] = weakref.ref(made, gone)
        return made

    def __len__(self) -> int:
        """How many values it remembers."""
        return len(self._by_value)
