# SPDX-License-Identifier: Apache-2.0
"""What one response is about, before it is encoded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from pilothouse.xds import framing, resources

NOT_FOUND = 5
"""google.rpc.Code: what is asked for is not there."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a response; an empty one is a response still."""

    changed: tuple[resources.Resource, ...] = ()
    """In name order."""
    removed: tuple[str, ...] = ()
    """Names in order; delta alone says them."""
    missing: tuple[str, ...] = ()
    """Names in order that the client asked for and nobody has: told once as `resource_errors`, so
    that it need not wait for its own timer. Disjoint from the names of ``changed``."""
    later: frozenset[str] = frozenset()
    """Names that found no room, and come in the next response."""


def errors(type_url: str, content: Content) -> Iterator[bytes]:
    """The encoded ResourceErrors of a response."""
    kind = type_url.rpartition(".")[2]
    for name in content.missing:
        text = f"{kind} {name!r} does not exist"
        yield framing.resource_error(name, code=NOT_FOUND, message=text)
