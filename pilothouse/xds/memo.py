# SPDX-License-Identifier: Apache-2.0
"""What was worked out for pairs of values, as long as both are in use."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

_Value = TypeVar("_Value")
_Found = TypeVar("_Found")


class Pairs(Generic[_Value, _Found]):
    """For each pair of values, in this order, a dictionary of findings by text."""

    def __init__(self) -> None:
        """Begin with nothing found."""
        self._found: weakref.WeakKeyDictionary[
            _Value, weakref.WeakKeyDictionary[_Value, dict[str, _Found]]
        ] = weakref.WeakKeyDictionary()

    def of(self, old: _Value, new: _Value) -> dict[str, _Found]:
        """The findings for a pair, to be read and added to."""
        # Not setdefault: that makes a dictionary for each look, a third of a look's time.
        by_new = self._found.get(old)
        if by_new is None:
            by_new = self._found[old] = weakref.WeakKeyDictionary()
        by_key = by_new.get(new)
        if by_key is None:
            by_key = by_new[new] = {}
        return by_key
