# SPDX-License-Identifier: Apache-2.0
"""What one stream has asked for, of one type: names, wildcard, and the legacy wildcard.

Rules (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol, "How the client specifies
what resources to return"): an empty list means everything only while the stream never named a
resource of the type, and only for types that allow it; ``*`` and names may stand together, and
dropping either leaves the other. The name ``""`` is a name nobody has.
"""

from __future__ import annotations

from collections.abc import Iterable

WILDCARD = "*"
NOBODY = ""
"""What some clients name to ask for nothing any more."""


class Subscription:
    """The subscription of one stream to one type."""

    __slots__ = ("_named", "_wildcard_type", "names", "wildcard")

    def __init__(self, *, wildcard_type: bool) -> None:
        """Begin with nothing; ``wildcard_type`` allows the legacy wildcard."""
        self.names: set[str] = set()
        """Names asked for one by one."""
        self.wildcard = False
        """True when everything was asked for."""
        self._named = False
        self._wildcard_type = wildcard_type

    def covers(self, name: str) -> bool:
        """Tell whether the client wants this resource."""
        return self.wildcard or name in self.names

    def replace(self, names: Iterable[str]) -> set[str]:
        """State of the world: take the full list; return the names that were not in it before."""
        wanted = set(names)
        if not wanted and not self._named:
            self.wildcard = self._wildcard_type
            return set()
        self._named = True
        self.wildcard = WILDCARD in wanted
        added = wanted - self.names - {WILDCARD, NOBODY}
        self.names = wanted - {WILDCARD, NOBODY}
        return added

    def change(self, *, add: Iterable[str], remove: Iterable[str], first: bool) -> set[str]:
        """Delta: take additions and removals; return the names that must be answered.

        Every added name is answered, also one that was there before. A name that is removed while
        the wildcard goes on covering it is answered too, because the client cannot know whether it
        still has it.
        """
        added, removed = set(add), set(remove)
        if first and not added:
            self.wildcard = self._wildcard_type
        if WILDCARD in removed:
            self.wildcard = False
        if WILDCARD in added:
            self.wildcard = True
        added.discard(WILDCARD)
        removed.discard(WILDCARD)
        self.names |= added
        dropped = self.names & removed
        self.names -= removed
        return (added - removed) | (dropped if self.wildcard else set())
