# SPDX-License-Identifier: Apache-2.0
"""Remember what a pure function gave, for as long as somebody uses it.

Identity comes first: whoever plans hands over the same objects for what did not change, and looking
at one costs nothing then. An equal object that was made anew is found by its value.

The table holds weakly. ``Memo.entry`` gives an entry, and whoever uses its result keeps the entry;
when the last user is gone the table forgets by itself. So nothing is counted, nothing leaks, and
what an unchanged layer uses is never made twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)
R = TypeVar("R")


class Entry(Generic[V, R]):
    """A value and what the function gave for it."""

    __slots__ = ("__weakref__", "result", "value")

    def __init__(self, value: V, result: R) -> None:
        self.value = value
        self.result = result


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
        # An entry keeps its value alive, so no other object can get the identity it is found by.
        self._by_identity: weakref.WeakValueDictionary[int, Entry[V, R]] = (
            weakref.WeakValueDictionary()
        )
        self._by_value: weakref.WeakValueDictionary[_Hashed[V], Entry[V, R]] = (
            weakref.WeakValueDictionary()
        )

    def entry(self, value: V) -> Entry[V, R]:
        """The entry of this very object; its result is shared with every equal one."""
        found = self._by_identity.get(id(value))
        if found is not None:
            return found
        hashed = _Hashed(value)
        equal = self._by_value.get(hashed)
        made = Entry(value, self._compute(value) if equal is None else equal.result)
        self._by_identity[id(value)] = made
        self._by_value[hashed] = made
        return made

    def __len__(self) -> int:
        """How many values it remembers."""
        return len(self._by_value)
