# SPDX-License-Identifier: Apache-2.0
"""Large dictionaries of which another one is wanted that differs in a few entries.

Copying a hundred thousand entries takes longer than all that one changed endpoint needs else. So
what differs is laid over what was there before, until that is so much that a copy is worth it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LARGE: Final = 4096
"""Entries from which on a dictionary is not copied."""
_SHARE: Final = 64
"""One part in so many of the entries may lie over the others."""


class Overlaid(Mapping[K, V], Generic[K, V]):
    """A mapping that never changes, and shares most of its entries with others; in no order."""

    __slots__ = ("_base", "_gone", "over")

    def __init__(self, base: dict[K, V], over: dict[K, V], gone: frozenset[K]) -> None:
        """Use ``edited``. The three have no key in common but what ``over`` and ``gone`` hide."""
        self._base = base
        self.over = over
        """What lies over the others."""
        self._gone = gone

    def __getitem__(self, key: K) -> V:
        """The entry of a key.

        Raises:
            KeyError: there is none.
        """
        if key in self.over:
            return self.over[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    def __iter__(self) -> Iterator[K]:
        """Each key once."""
        yield from self.over
        for key in self._base:
            if key not in self.over and key not in self._gone:
                yield key

    def __len__(self) -> int:
        """How many there are."""
        added = sum(1 for key in self.over if key not in self._base)
        return len(self._base) + added - len(self._gone)

    def edited(self, fresh: Mapping[K, V], gone: Collection[K]) -> Mapping[K, V]:
        """The same with other entries, and without those of ``gone``; none is in both."""
        over = {**self.over, **fresh}
        for key in gone:
            over.pop(key, None)
        hidden = self._gone.difference(fresh).union(key for key in gone if key in self._base)
        if len(over) + len(hidden) <= len(self._base) // _SHARE:
            return Overlaid(self._base, over, hidden)
        return edited({key: self[key] for key in self}, fresh, gone)


def edited(known: Mapping[K, V], fresh: Mapping[K, V], gone: Collection[K]) -> Mapping[K, V]:
    """A mapping with other entries.

    Args:
        known: A dictionary, or what this has given; it stays as it is.
        fresh: What is to be in place of its own.
        gone: Keys that are to be missing, none of which is in ``fresh``.
    """
    if isinstance(known, Overlaid):
        return known.edited(fresh, gone)
    few = len(fresh) + len(gone) <= len(known) // _SHARE
    if few and len(known) >= LARGE and isinstance(known, dict):
        return Overlaid(known, {}, frozenset()).edited(fresh, gone)
    found = {**known, **fresh}
    for key in gone:
        found.pop(key, None)
    return found
