# SPDX-License-Identifier: Apache-2.0
"""The far end of a `pilothouse.xds` stream, for tests of the protocol in both variants.

It speaks in encoded requests, and reads responses with protobuf's own runtime. It does nothing by
itself: a test says when it acknowledges.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Collection, Iterable, Mapping

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import delta, resources, sotw, streams, types

CDS = types.CLUSTER.type_url
EDS = types.ENDPOINT.type_url
LDS = types.LISTENER.type_url
RDS = types.ROUTE.type_url
SDS = types.SECRET.type_url
ECDS = types.EXTENSION.type_url
NODE = "sidecar~10.0.0.1~web-1.shop~shop.svc"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response, decoded."""

    type_url: str
    nonce: str
    version: str
    resources: Mapping[str, bytes]
    """Name to body."""
    removed: tuple[str, ...] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Name to version; delta alone says."""
    errors: Mapping[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    """Name to code and words, of what cannot be had."""


def resource(
    type_url: str, name: str, content: str = "1", *, refers: Iterable[resources.Reference] = ()
) -> resources.Resource:
    """A resource whose body tells its name, so that state of the world can be read too."""
    return resources.Resource.of(
        type_url, name, f"{name}={content}".encode(), references=tuple(refers)
    )


def cluster(name: str, content: str = "1") -> resources.Resource:
    """A cluster with endpoints of the same name."""
    return resource(CDS, name, content, refers=[(EDS, name)])


def route(name: str, *clusters: str) -> resources.Resource:
    """A route configuration that leads to these clusters."""
    return resource(RDS, name, "+".join(clusters), refers=[(CDS, one) for one in clusters])


def snapshot(*parts: resources.Resource) -> resources.Snapshot:
    """A snapshot of one layer."""
    return resources.Snapshot.of((resources.Layer.of(parts),))


def body(name: str, content: str = "1") -> bytes:
    """The body that `resource` makes."""
    return f"{name}={content}".encode()


class Peer(abc.ABC):
    """A client of one variant."""

    variant: str

    def __init__(self, stream: streams.Stream, *, node: str = NODE) -> None:
        self.stream = stream
        self._node = node
        self._introduced = False
        self.names: dict[str, set[str]] = {}
        """What was subscribed to, by type."""
        self.nonces: dict[str, str] = {}
        """The newest nonce that was read, by type."""
        self.versions: dict[str, str] = {}
        """The newest version that was acknowledged, by type."""

    @abc.abstractmethod
    def ask(
        self,
        type_url: str,
        *names: str,
        drop: Iterable[str] = (),
        held: Mapping[str, str] | None = None,
        nonce: str | None = None,
    ) -> tuple[streams.Event, ...]:
        """Subscribe to more names, and drop some.

        ``held`` is name to version of what was held before the stream began. ``nonce`` is another
        one than the newest.
        """

    @abc.abstractmethod
    def answer(self, reply: Reply, *, refuse: str | None = None) -> tuple[streams.Event, ...]:
        """Acknowledge, or refuse with these words."""

    @abc.abstractmethod
    def decode(self, encoded: bytes) -> Reply:
        """Read a response."""

    def read(self) -> list[Reply]:
        """All responses that the server has to write now, in order."""
        replies = []
        while (response := self.stream.poll()) is not None:
            reply = self.decode(response.body)
            assert (reply.type_url, reply.nonce) == (response.type_url, response.nonce)
            assert (len(reply.resources), len(reply.removed)) == (
                response.resources,
                response.removed,
            )
            assert len(reply.errors) == response.missing
            self.nonces[reply.type_url] = reply.nonce
            replies.append(reply)
        return replies

    def read_one(self) -> Reply:
        """The only response that the server has to write now."""
        (reply,) = self.read()
        return reply

    def settle(self, limit: int = 30) -> list[Reply]:
        """Read and acknowledge until there is nothing more."""
        seen: list[Reply] = []
        for _ in range(limit):
            replies = self.read()
            if not replies:
                return seen
            for reply in replies:
                self.answer(reply)
            seen += replies
        raise AssertionError(f"still not silent after {limit} rounds")


class SotwPeer(Peer):
    """State of the world."""

    variant = "sotw"

    def ask(
        self,
        type_url: str,
        *names: str,
        drop: Iterable[str] = (),
        held: Mapping[str, str] | None = None,
        nonce: str | None = None,
    ) -> tuple[streams.Event, ...]:
        known = self.names.setdefault(type_url, set())
        known |= set(names)
        known -= set(drop)
        version = "".join(held.values()) if held else self.versions.get(type_url, "")
        if nonce is None:
            nonce = self.nonces.get(type_url, "")
        return self.send(type_url, known, version=version, nonce=nonce)

    def answer(self, reply: Reply, *, refuse: str | None = None) -> tuple[streams.Event, ...]:
        if refuse is None:
            self.versions[reply.type_url] = reply.version
        return self.send(
            reply.type_url,
            self.names[reply.type_url],
            version=self.versions.get(reply.type_url, ""),
            nonce=reply.nonce,
            refuse=refuse,
        )

    def send(
        self,
        type_url: str,
        names: Iterable[str],
        *,
        version: str = "",
        nonce: str = "",
        refuse: str | None = None,
    ) -> tuple[streams.Event, ...]:
        """Send a request as it is."""
        request = discovery_pb2.DiscoveryRequest(
            type_url=type_url,
            resource_names=sorted(names),
            version_info=version,
            response_nonce=nonce,
        )
        if refuse is not None:
            request.error_detail.code, request.error_detail.message = 13, refuse
        if not self._introduced:
            request.node.id, self._introduced = self._node, True
        return self.stream.receive(request.SerializeToString())

    def decode(self, encoded: bytes) -> Reply:
        message = discovery_pb2.DiscoveryResponse.FromString(encoded)
        assert all(one.type_url == message.type_url for one in message.resources)
        named = [(one.value.partition(b"=")[0].decode(), one.value) for one in message.resources]
        assert len(dict(named)) == len(named), "one name twice in one response"
        return Reply(
            type_url=message.type_url,
            nonce=message.nonce,
            version=message.version_info,
            resources=dict(named),
            errors=_errors(message.resource_errors, dict(named)),
        )


class DeltaPeer(Peer):
    """Delta."""

    variant = "delta"

    def ask(
        self,
        type_url: str,
        *names: str,
        drop: Iterable[str] = (),
        held: Mapping[str, str] | None = None,
        nonce: str | None = None,
    ) -> tuple[streams.Event, ...]:
        known = self.names.setdefault(type_url, set())
        known |= set(names)
        known -= set(drop)
        return self.send(type_url, add=names, remove=drop, held=held or {}, nonce=nonce or "")

    def answer(self, reply: Reply, *, refuse: str | None = None) -> tuple[streams.Event, ...]:
        return self.send(reply.type_url, nonce=reply.nonce, refuse=refuse)

    def send(
        self,
        type_url: str,
        *,
        add: Iterable[str] = (),
        remove: Iterable[str] = (),
        held: Mapping[str, str] | None = None,
        nonce: str = "",
        refuse: str | None = None,
    ) -> tuple[streams.Event, ...]:
        """Send a request as it is."""
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=type_url,
            resource_names_subscribe=sorted(add),
            resource_names_unsubscribe=sorted(remove),
            initial_resource_versions=dict(held or {}),
            response_nonce=nonce,
        )
        if refuse is not None:
            request.error_detail.code, request.error_detail.message = 13, refuse
        if not self._introduced:
            request.node.id, self._introduced = self._node, True
        return self.stream.receive(request.SerializeToString())

    def decode(self, encoded: bytes) -> Reply:
        message = discovery_pb2.DeltaDiscoveryResponse.FromString(encoded)
        assert all(one.resource.type_url == message.type_url for one in message.resources)
        named = {one.name: one for one in message.resources}
        assert len(named) == len(message.resources), "one name twice in one response"
        assert not named.keys() & set(message.removed_resources)
        return Reply(
            type_url=message.type_url,
            nonce=message.nonce,
            version=message.system_version_info,
            resources={name: one.resource.value for name, one in named.items()},
            removed=tuple(message.removed_resources),
            versions={name: one.version for name, one in named.items()},
            errors=_errors(message.resource_errors, named),
        )


def _errors(
    told: Iterable[discovery_pb2.ResourceError], sent: Collection[str]
) -> dict[str, tuple[int, str]]:
    found = {
        one.resource_name.name: (one.error_detail.code, one.error_detail.message) for one in told
    }
    assert not found.keys() & set(sent), "a resource that is sent, and is said not to be there"
    return found


def connect(variant: str, *, default_type: str | None = None) -> Peer:
    """A client on a new stream."""
    if variant == "sotw":
        return SotwPeer(sotw.SotwStream(default_type=default_type))
    return DeltaPeer(delta.DeltaStream(default_type=default_type))
