# SPDX-License-Identifier: Apache-2.0
"""Checking the bytes of a resource, and of one that changed a little only what changed.

A route configuration of thousands of virtual hosts changes by one of them, an assignment of
thousands of endpoints by one address. So such resources are taken apart on the wire, where a
repeated message lies as one field for each of its items, and a part whose bytes were right in the
last version that was looked at is not looked at again.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf import message

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.core.v3 import extension_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from pilothouse.envoy.gate import constraints, findings
from pilothouse.xds import resources, types

_LENGTH_DELIMITED: Final = 2
_FIXED: Final = {1: 8, 5: 4}
_DIGEST: Final = 16
_SMALL: Final = 4096
"""Bytes up to which a resource is checked whole: taking it apart would cost as much."""

_KINDS: Final[Mapping[str, type[message.Message]]] = {
    types.CLUSTER.type_url: cluster_pb2.Cluster,
    types.ENDPOINT.type_url: endpoint_pb2.ClusterLoadAssignment,
    types.LISTENER.type_url: listener_pb2.Listener,
    types.ROUTE.type_url: route_pb2.RouteConfiguration,
    types.SECRET.type_url: secret_pb2.Secret,
    types.EXTENSION.type_url: extension_pb2.TypedExtensionConfig,
}


class _Split(NamedTuple):
    """A repeated field whose items are checked one by one."""

    field: str
    number: int
    kind: type[message.Message]


_SPLITS: Final[Mapping[type[message.Message], _Split]] = {
    route_pb2.RouteConfiguration: _Split("virtual_hosts", 2, route_components_pb2.VirtualHost),
    endpoint_pb2.ClusterLoadAssignment: _Split(
        "endpoints", 2, endpoint_components_pb2.LocalityLbEndpoints
    ),
    endpoint_components_pb2.LocalityLbEndpoints: _Split(
        "lb_endpoints", 2, endpoint_components_pb2.LbEndpoint
    ),
}


def parse(resource: resources.Resource) -> message.Message | None:
    """The message of a resource; None for a type that the gate does not know.

    Raises:
        google.protobuf.message.DecodeError: it is no message of its type.
    """
    kind = _KINDS.get(resource.type_url)
    return None if kind is None else kind.FromString(resource.body)


class Inspector:
    """Checks resources; remembers the right parts of the newest version of each."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._right: dict[tuple[str, str], tuple[weakref.ref[resources.Resource], set[bytes]]] = {}

    def broken(self, resource: resources.Resource) -> tuple[findings.Broken, ...]:
        """Every constraint that a resource breaks."""
        kind = _KINDS.get(resource.type_url)
        if kind is None:
            return ()
        try:
            if kind not in _SPLITS or len(resource.body) <= _SMALL:
                return constraints.broken(kind.FromString(resource.body))
            return tuple(self._split(resource, kind))
        except message.DecodeError:
            return (findings.Broken("", f"must be a {kind.DESCRIPTOR.full_name}"),)

    def _split(
        self, resource: resources.Resource, kind: type[message.Message]
    ) -> Iterator[findings.Broken]:
        key = (resource.type_url, resource.name)
        known = self._right.get(key)
        right: set[bytes] = set()
        before = known[1] if known else set[bytes]()
        if resource.parts:
            yield from _joined(kind, resource.parts, before, right)
        else:
            yield from _parts(kind, resource.body, before, right)
        self._right[key] = (weakref.ref(resource, lambda gone: self._forget(key, gone)), right)

    def _forget(self, key: tuple[str, str], gone: weakref.ref[resources.Resource]) -> None:
        known = self._right.get(key)
        if known is not None and known[0] is gone:
            del self._right[key]

    def __len__(self) -> int:
        """How many resources it remembers parts of."""
        return len(self._right)


def _parts(
    kind: type[message.Message], body: bytes, known: set[bytes], right: set[bytes]
) -> Iterator[findings.Broken]:
    """What a message breaks; parts that are right are noted in ``right``."""
    split = _SPLITS.get(kind)
    if split is None:
        yield from constraints.broken(kind.FromString(body))
        return
    rest, items = take_apart(body, split.number)
    yield from constraints.broken(kind.FromString(rest))
    digests = _digests(split.field, items)
    right.update(digests)
    for position, digest in enumerate(digests):
        if digest in known:
            continue
        found = list(_parts(split.kind, items[position], known, right))
        if found:
            right.discard(digest)
        for one in found:
            yield one.below(f"{split.field}[{position}]")


def _joined(
    kind: type[message.Message], parts: Sequence[bytes], known: set[bytes], right: set[bytes]
) -> Iterator[findings.Broken]:
    """The same of a message that is joined of parts, nearly all of which are known.

    A part is remembered as it is, for others keep it anyway, and Python has its hash.
    """
    split = _SPLITS[kind]
    right.update(known.intersection(parts))
    rest: list[bytes] = []
    broken: list[findings.Broken] = []
    for place in [place for place, part in enumerate(parts) if part not in known]:
        more, items = take_apart(parts[place], split.number)
        found = [list(_parts(split.kind, item, known, right)) for item in items]
        rest.append(more)
        if any(found):
            first = sum(len(take_apart(part, split.number)[1]) for part in parts[:place])
            for position, some in enumerate(found, start=first):
                broken += [one.below(f"{split.field}[{position}]") for one in some]
        elif not more:
            right.add(parts[place])
    yield from constraints.broken(kind.FromString(b"".join(rest)))
    yield from broken


def _digests(field: str, items: Iterable[bytes]) -> list[bytes]:
    """What items are remembered by.

    The field is part of it: the same bytes may be right for another type only.
    """
    begun = hashlib.blake2b(digest_size=_DIGEST, person=field.encode()[:_DIGEST])
    found = []
    for item in items:
        hasher = begun.copy()  # two thirds of what it takes to make one
        hasher.update(item)
        found.append(hasher.digest())
    return found


def take_apart(body: bytes, number: int) -> tuple[bytes, list[bytes]]:
    """Everything but a repeated message field, as bytes, and the field's items.

    Raises:
        google.protobuf.message.DecodeError: ``body`` is no message.
        https://protobuf.dev/programming-guides/encoding/
    """
    rest: list[bytes] = []
    items: list[bytes] = []
    at, end = 0, len(body)
    wanted = number << 3 | _LENGTH_DELIMITED
    while at < end:
        start = at
        # Nearly all of it are items of less than 16 KB, whose lengths are two bytes.
        if body[at] == wanted < 0x80 and at + 3 <= end and body[at + 1] >= 0x80 > body[at + 2]:
            at += 3 + (body[at + 1] & 0x7F | body[at + 2] << 7)
            if at > end:
                raise message.DecodeError("the message is cut off")
            items.append(body[start + 3 : at])
            continue
        tag, at = _varint(body, at)
        match tag & 7:
            case 0:
                _, at = _varint(body, at)
            case wire if wire in _FIXED:
                at += _FIXED[wire]
            case wire if wire == _LENGTH_DELIMITED:
                length, at = _varint(body, at)
                at += length
                if tag >> 3 == number and at <= end:
                    items.append(body[at - length : at])
                    continue
            case _:
                raise message.DecodeError("groups are not used")
        if at > end:
            raise message.DecodeError("the message is cut off")
        rest.append(body[start:at])
    return b"".join(rest), items


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
    except IndexError:
        raise message.DecodeError("the message is cut off") from None
