# SPDX-License-Identifier: Apache-2.0
"""What a parent and its workers say to each other, and how it is written.

A frame is a length of four bytes, the most significant first, and then so many bytes: a list of
messages in Python's own `marshal` form, each the name of its kind and its fields. That form holds
plain values and nothing else, and both ends are the same program under the same interpreter; they
compare `VERSION` before anything else nevertheless. Pure.

Numbers stand for snapshots, layers and resources. The parent's are positive, a worker's negative,
and 0 is the snapshot, or layer, without resources.

What is the same for many clients is said once, with the numbers of all of them: most have the same
target, and stand in the same place soon after. To write, read and understand a message for each
was more than half of what a client and change cost the parent.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

VERSION: Final = 2
_LENGTH: Final = struct.Struct(">I")
HEADER: Final = _LENGTH.size
"""Bytes before each frame."""
CHUNK: Final = 256
"""Messages in a frame at most, and clients that it speaks of: taking in so many is a few
milliseconds of work."""


class Hello(NamedTuple):
    """First from the parent: who it is, and what a worker is told to do."""

    version: int
    grpc_address: str
    calls: str
    """Where the parent answers the calls that a worker passes on, in gRPC's form."""
    write_timeout: float
    shutdown_grace: float
    limits: tuple[float, ...]
    """The numbers of `connections.Limits`."""


class Serving(NamedTuple):
    """A worker listens."""


class Failed(NamedTuple):
    """A worker cannot start."""

    reason: str


class Ready(NamedTuple):
    """Everything has been read and built: tell whoever checks the health."""


class Stop(NamedTuple):
    """A worker shall end its streams and itself."""


class Resource(NamedTuple):
    """A finished resource."""

    number: int
    type_url: str
    name: str
    version: str
    body: bytes
    references: tuple[tuple[str, str], ...]
    metadata: bytes


class Layer(NamedTuple):
    """A layer, as what differs from another one."""

    number: int
    base: int
    removed: tuple[tuple[str, str], ...]
    """Type URL and name of what it lacks."""
    added: tuple[int, ...]
    """Numbers of the resources that it has besides, or in place of others of their names."""


class Snapshot(NamedTuple):
    """A snapshot."""

    number: int
    layers: tuple[int, ...]


class Drop(NamedTuple):
    """These will not be named again."""

    resources: tuple[int, ...]
    layers: tuple[int, ...]
    snapshots: tuple[int, ...]


class Opened(NamedTuple):
    """A client has said who it is."""

    client: int
    node: bytes
    """An encoded ``envoy.config.core.v3.Node``."""
    peer: str


class Target(NamedTuple):
    """What some clients shall hold."""

    clients: tuple[int, ...]
    snapshot: int
    traceparent: str


class End(NamedTuple):
    """A client's stream shall end."""

    client: int
    code: str
    """Name of a gRPC status."""
    text: str


class TypePlace(NamedTuple):
    """How one type stands on a stream."""

    type_url: str
    acked: int
    """The snapshot whose content was acknowledged last."""
    refusal: str | None
    """The client's words, where it refused what it shall hold."""
    claimed: bool
    """True when the client brought something of the type along."""


class Moved(NamedTuple):
    """Where some clients stand, each of them."""

    clients: tuple[int, ...]
    target: int | None
    """The target that this is about; None before the first."""
    arrived: bool
    """True when the step that is being delivered is the target itself."""
    idle: bool
    in_sync: bool
    places: tuple[tuple[Any, ...], ...]
    """A `TypePlace` for each type asked for, in the order they were."""
    refused: tuple[tuple[str, str, str], ...] = ()
    """What each refused since it was told of last: type URL, nonce and the client's words."""
    stale: tuple[tuple[str, str], ...] = ()
    """What each answered too late since then: type URL and nonce."""


class Closed(NamedTuple):
    """A client's stream is over."""

    client: int
    code: str
    """Name of the gRPC status that it was ended with; empty when the client went."""
    text: str


class Sent(NamedTuple):
    """Responses were written."""

    sizes: tuple[tuple[str, tuple[int, ...]], ...]
    """For type URLs, the bytes of each response."""


class Queued(NamedTuple):
    """Streams that may not begin yet, and those that were refused so far."""

    waiting: int
    refused: int


class Held(NamedTuple):
    """The longest time that a worker's loop was held, in seconds."""

    seconds: float


class Ask(NamedTuple):
    """A question about a worker's clients."""

    number: int
    topic: str
    body: bytes


class Answer(NamedTuple):
    """The answer to the question of that number."""

    number: int
    body: bytes


Message = (
    Hello
    | Serving
    | Failed
    | Ready
    | Stop
    | Resource
    | Layer
    | Snapshot
    | Drop
    | Opened
    | Target
    | End
    | Moved
    | Closed
    | Sent
    | Queued
    | Held
    | Ask
    | Answer
)
_KINDS: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in Message.__args__}


def encode(messages: Iterable[Message]) -> bytes:
    """One frame, with its length before it."""
    body = marshal.dumps([(type(one).__name__, *one) for one in messages])
    return _LENGTH.pack(len(body)) + body


def length(header: bytes) -> int:
    """How long the frame behind a header is, in bytes."""
    found: int = _LENGTH.unpack(header)[0]
    return found


def decode(frame: bytes) -> list[Message]:
    """The messages of a frame.

    Raises:
        ValueError: it is none of ours.
    """
    try:
        found = marshal.loads(frame)  # noqa: S302  plain values, from our own parent or child
        return [_KINDS[kind](*fields) for kind, *fields in found]
    except (EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a frame of version {VERSION}: {error!r}") from error
