# SPDX-License-Identifier: Apache-2.0
"""What one response is about, before it is encoded."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Final

from pilothouse.xds import framing, resources

NOT_FOUND = 5
"""google.rpc.Code: what is asked for is not there."""


_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response to write."""

    type_url: str
    nonce: str
    version: str
    body: bytes
    """The encoded DiscoveryResponse or DeltaDiscoveryResponse."""
    resources: int
    removed: int = 0
    missing: int = 0
    """Names that are told to be missing."""


_NAME: Final = operator.attrgetter("name")
_REFERENCES: Final = operator.attrgetter("references")
_SIZE: Final = operator.attrgetter("size")


class Content:
    """The content of a response; an empty one is a response still. Many streams may be sent it."""

    __slots__ = (
        *(
            "changed",
            "framed",
            "later",
            "missing",
            "names",
            "parents",
            "removed",
            "rest",
            "following",
            "response",
            "_nonce",
            "_number",
        ),
    )

    def __init__(
        self,
        *,
        changed: Sequence[resources.Resource] = (),
        removed: Sequence[str] = (),
        missing: Sequence[str] = (),
        rest: Sequence[resources.Resource] = (),
    ) -> None:
        """Say what a response is to hold."""
        self.changed = changed
        """In name order."""
        self.removed = removed
        """Names in order; delta alone says them."""
        self.missing = missing
        """Names in order that the client asked for and nobody has: told once as `resource_errors`,
        so that it need not wait for its own timer. Disjoint from the names of ``changed``."""
        self.rest = rest
        """What found no room, and comes in the next response, in name order."""
        self.later = frozenset(map(_NAME, rest))
        """The names of these."""
        self.following: Content | None = None
        """The next response, if nothing comes in between; for the next stream that gets there."""
        self.names = frozenset((*map(_NAME, changed), *removed, *missing))
        """Every name that is in the response."""
        self.framed = 0
        """How many of ``changed``, from the first, were encoded ahead of the response."""
        self.parents = any(map(_REFERENCES, changed))
        """True if something in it needs other resources."""
        self._number = next(_numbers)
        self._nonce = ""
        self.response: Response | None = None
        """As it was written last, for the next stream that is sent the same."""

    def numbered(self, short: str, *, after: int) -> tuple[int, str]:
        """A number greater than ``after``, and the nonce made of it; the same for many streams."""
        if self._number <= after:
            # A change that comes a second time, on a stream that has numbered others since.
            self._number, self._nonce = next(_numbers), ""
        if not self._nonce:
            self._nonce = f"{short}-{self._number}"
        return self._number, self._nonce


def room(changed: Sequence[resources.Resource], limit: int) -> int:
    """How many of these resources fit into so many bytes of a response; one at least.

    Nothing is encoded for that: the sizes are those that a resource has at most in any variant.
    """
    sizes = itertools.accumulate(map(_SIZE, changed))
    number = bisect.bisect_right([*sizes], limit)
    return max(1, number) if changed else 0


def errors(type_url: str, content: Content) -> Iterator[bytes]:
    """The encoded ResourceErrors of a response."""
    kind = type_url.rpartition(".")[2]
    for name in content.missing:
        text = f"{kind} {name!r} does not exist"
        yield framing.resource_error(name, code=NOT_FOUND, message=text)
