# SPDX-License-Identifier: Apache-2.0
"""Memory between one state and the next: what had equal arguments is not computed again.

Rules of this file: a function given to a memo is pure and defined at module level, so its arguments
are all it knows, and they are the cache key. A slot says which of many calls of one function is
meant; it holds the last arguments and the last value. Arguments are compared, never hashed:
unchanged parts are the same objects, and comparing those costs nothing. A new value that equals the
old one is given up for the old one, so identity tells downstream whether anything changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar, TypeVarTuple, cast

Ts = TypeVarTuple("Ts")
R = TypeVar("R")


class _Entry(NamedTuple):
    args: tuple[object, ...]
    value: object
    child: Memo | None


_Table = dict[tuple[Callable[..., object], Hashable], _Entry]


class Memo:
    """One generation of calls; looks back one generation, and forgets what that did not use."""

    __slots__ = ("_current", "_previous")

    def __init__(self, previous: _Table | None = None) -> None:
        self._previous: _Table = {} if previous is None else previous
        self._current: _Table = {}

    def next(self) -> Memo:
        """The next generation; one that nobody used is skipped, so a burst loses nothing."""
        return Memo(self._current or self._previous)

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


def _settle(known: _Entry | None, value: Any) -> Any:
    return known.value if known is not None and known.value == value else value
