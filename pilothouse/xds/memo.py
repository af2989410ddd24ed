# SPDX-License-Identifier: Apache-2.0
"""What was worked out for pairs of values, as long as both are in use."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")
_Found = TypeVar("_Found")


class _Findings(dict[Hashable, _Found]):
    """A dictionary that can be held weakly."""

    __slots__ = ("__weakref__",)


class Pairs(Generic[_Value, _Found]):
    """For each pair of values, in this order, a dictionary of findings by what was asked.

    The newest pair is at hand: a thousand streams in a row ask for the same one, and three weak
    references are looked at in the fifth of the time that two look-ups by weak key take (1 us).
    """

    def __init__(self) -> None:
        """Begin with nothing found."""
        self._found: weakref.WeakKeyDictionary[
            _Value, weakref.WeakKeyDictionary[_Value, _Findings[_Found]]
        ] = weakref.WeakKeyDictionary()
        self._old: Callable[[], Any] = _nothing
        self._new: Callable[[], Any] = _nothing
        self._newest: Callable[[], _Findings[_Found] | None] = _nothing

    def of(self, old: _Value, new: _Value) -> dict[Hashable, _Found]:
        """The findings for a pair, to be read and added to."""
        if self._old() is old and self._new() is new:
            newest = self._newest()
            if newest is not None:
                return newest
        findings = self._of(old, new)
        self._old, self._new = weakref.ref(old), weakref.ref(new)
        self._newest = weakref.ref(findings)
        return findings

    def _of(self, old: _Value, new: _Value) -> _Findings[_Found]:
        # Not setdefault: that makes a dictionary for each look, a third of a look's time.
        by_new = self._found.get(old)
        if by_new is None:
            by_new = self._found[old] = weakref.WeakKeyDictionary()
        by_key = by_new.get(new)
        if by_key is None:
            by_key = by_new[new] = _Findings()
        return by_key


def _nothing() -> None:
    """As a weak reference to something that is gone."""
