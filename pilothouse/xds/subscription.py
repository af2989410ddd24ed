# SPDX-License-Identifier: Apache-2.0
"""What one stream has asked for, of one type: names, wildcard, and the legacy wildcard.

Rules (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol, "How the client specifies
what resources to return"): an empty list means everything only while the stream never named a
resource of the type, and only for types that allow it; ``*`` and names may stand together, and
dropping either leaves the other. The name ``""`` is a name nobody has.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable

WILDCARD = "*"
NOBODY = ""
"""What some clients name to ask for nothing any more."""


class Subscription:
    """The subscription of one stream to one type."""

    __slots__ = ("_named", "_wildcard_type", "names", "wildcard")

    def __init__(self, *, wildcard_type: bool) -> None:
        """Begin with nothing; ``wildcard_type`` allows the legacy wildcard."""
        self.names: set[str] | frozenset[str] = frozenset()
        """Names asked for one by one; replaced or added to, and not to be kept."""
        self.wildcard = False
        """True when everything was asked for."""
        self._named = False
        self._wildcard_type = wildcard_type

    def covers(self, name: str) -> bool:
        """Tell whether the client wants this resource."""
        return self.wildcard or name in self.names

    def without(self, names: Iterable[str]) -> frozenset[str]:
        """State of the world: what is wanted and not in this list, the wildcard by its sign."""
        wanted = frozenset(names)
        everything = {WILDCARD} if self.wildcard and (wanted or self._named) else set()
        return frozenset(everything | self.names) - wanted

    def replace(self, names: Iterable[str]) -> set[str]:
        """State of the world: take the full list; return the names that were not in it before."""
        wanted = set(map(sys.intern, names))
        if not wanted and not self._named:
            self.wildcard = self._wildcard_type
            return set()
        self._named = True
        self.wildcard = WILDCARD in wanted
        wanted -= {WILDCARD, NOBODY}
        added = wanted - self.names
        if wanted != self.names:
            self.names = _shared(wanted)
        return added

    def change(self, *, add: Iterable[str], remove: Iterable[str], first: bool) -> set[str]:
        """Delta: take additions and removals; return the names that must be answered.

        Every added name is answered, also one that was there before. A name that is removed while
        the wildcard goes on covering it is answered too, because the client cannot know whether it
        still has it.
        """
        added, removed = set(map(sys.intern, add)), set(remove)
        if first and not added:
            self.wildcard = self._wildcard_type
        if WILDCARD in removed:
            self.wildcard = False
        if WILDCARD in added:
            self.wildcard = True
        added.discard(WILDCARD)
        removed.discard(WILDCARD)
        self._add(added)
        dropped = removed & self.names
        if dropped:
            self._own().difference_update(dropped)
        if removed:
            return (added - removed) | (dropped if self.wildcard else set())
        return added

    def shared(self) -> frozenset[str]:
        """The names, as a set that equal subscriptions share."""
        if not isinstance(self.names, frozenset):
            self.names = _shared(self.names)
        return self.names

    def _add(self, added: set[str]) -> None:
        """Take names that come by the hundred as others did; those that come one by one, alone."""
        if len(added) > len(self.names):
            self.names = _shared(added | self.names if self.names else added)
        elif added:
            self._own().update(added)

    def _own(self) -> set[str]:
        """The names, to be changed in place."""
        if not isinstance(self.names, set):
            self.names = set(self.names)
        return self.names


# Most proxies of a mesh ask for the same thousand endpoints: 32 KB for each set of them, and 80 for
# the names. The key is the hash alone, for a set that is its own key would never be let go.
_known: weakref.WeakValueDictionary[int, frozenset[str]] = weakref.WeakValueDictionary()


def _shared(names: set[str] | frozenset[str]) -> frozenset[str]:
    """These names, as the set that other streams hold already."""
    found = frozenset(names)
    known = _known.setdefault(hash(found), found)
    return known if known == found else found
