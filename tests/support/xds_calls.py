# SPDX-License-Identifier: Apache-2.0
"""xDS clients over raw gRPC calls, that count what they send and get.

A client holds a stream for all types, or one for each type on that type's own service. It
acknowledges every response that it reads.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import grpc.aio
from google.protobuf import message

from pilothouse.adapters.rpc import services
from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.core.v3 import extension_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2, scoped_route_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.api.envoy.service.runtime.v3 import rtds_pb2
from pilothouse.xds import types

Call = grpc.aio.StreamStreamCall[Any, Any]
Heard = Callable[[int], Awaitable[None]]
M = TypeVar("M", discovery_pb2.DiscoveryResponse, discovery_pb2.DeltaDiscoveryResponse)
DEADLINE = 45.0
MESSAGES: Final[Mapping[str, type[message.Message]]] = {
    types.CLUSTER.type_url: cluster_pb2.Cluster,
    types.ENDPOINT.type_url: endpoint_pb2.ClusterLoadAssignment,
    types.LISTENER.type_url: listener_pb2.Listener,
    types.ROUTE.type_url: route_pb2.RouteConfiguration,
    types.SCOPED_ROUTE.type_url: scoped_route_pb2.ScopedRouteConfiguration,
    types.VIRTUAL_HOST.type_url: route_components_pb2.VirtualHost,
    types.SECRET.type_url: secret_pb2.Secret,
    types.EXTENSION.type_url: extension_pb2.TypedExtensionConfig,
    types.RUNTIME.type_url: rtds_pb2.Runtime,
}
"""All of Envoy's; the harness knows the first four."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response, decoded."""

    type_url: str
    version: str
    nonce: str
    names: frozenset[str]
    removed: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Name to version; delta alone says."""


class Client(abc.ABC):
    """What both variants share."""

    def __init__(
        self, channel: grpc.aio.Channel, *, node: str, aggregated: bool, heard: Heard
    ) -> None:
        """Open nothing yet; ``heard`` returns when the server took in so many requests."""
        self._channel = channel
        self._node = node
        self._aggregated = aggregated
        self._heard = heard
        self._calls: dict[str, Call] = {}
        self.requests = 0
        self.replies: list[Reply] = []

    @abc.abstractmethod
    def _path(self, service: services.Service) -> str: ...

    @abc.abstractmethod
    def _decode(self, encoded: bytes) -> Reply: ...

    @abc.abstractmethod
    async def _answer(self, reply: Reply, refuse: str) -> None: ...

    async def read(self, type_url: str, *, refuse: str = "") -> Reply:
        """The next response on the stream that serves a type, acknowledged or refused."""
        reply = await self._next(type_url)
        assert reply.type_url == type_url, reply
        await self._answer(reply, refuse)
        return reply

    async def read_any(self) -> Reply:
        """The next response on an aggregated stream, acknowledged."""
        reply = await self._next("")
        await self._answer(reply, "")
        return reply

    async def _next(self, type_url: str) -> Reply:
        async with asyncio.timeout(DEADLINE):
            encoded = await self._call(type_url).read()
        assert isinstance(encoded, bytes), "the server has ended the stream"
        reply = self._decode(encoded)
        self.replies.append(reply)
        return reply

    async def finish(self) -> list[Reply]:
        """Say no more, and read what the server has written meanwhile."""
        rest = []
        for call in self._calls.values():
            await call.done_writing()
            async with asyncio.timeout(DEADLINE):
                while isinstance(encoded := await call.read(), bytes):
                    rest.append(self._decode(encoded))
        self.replies += rest
        return rest

    def close(self) -> None:
        """End all calls."""
        for call in self._calls.values():
            call.cancel()

    def _call(self, type_url: str) -> Call:
        key = "" if self._aggregated else type_url
        if key not in self._calls:
            service = services.ADS
            if not self._aggregated:
                (service,) = (one for one in services.PER_TYPE if one.type_url == type_url)
            self._calls[key] = self._channel.stream_stream(self._path(service))()
        return self._calls[key]

    async def _write(
        self, request: discovery_pb2.DiscoveryRequest | discovery_pb2.DeltaDiscoveryRequest
    ) -> None:
        request.node.id = self._node
        await self._call(request.type_url).write(request.SerializeToString())
        self.requests += 1
        async with asyncio.timeout(DEADLINE):
            await self._heard(self.requests)


class SotwClient(Client):
    """State of the world."""

    def __init__(
        self, channel: grpc.aio.Channel, *, node: str, aggregated: bool, heard: Heard
    ) -> None:
        super().__init__(channel, node=node, aggregated=aggregated, heard=heard)
        self._names: dict[str, list[str]] = {}
        self._last: dict[str, Reply] = {}
        self._accepted: dict[str, str] = {}

    async def subscribe(
        self, type_url: str, *names: str, version: str = "", nonce: str = ""
    ) -> None:
        """Ask for exactly these names; none is the wildcard where it was always so.

        `version` is what is held from an earlier stream, `nonce` another one than the newest.
        """
        self._names[type_url] = list(names)
        last = self._last.get(type_url)
        await self._write(
            discovery_pb2.DiscoveryRequest(
                type_url=type_url,
                resource_names=names,
                version_info=self._accepted.get(type_url, version),
                response_nonce=nonce or (last.nonce if last else ""),
            )
        )

    async def _answer(self, reply: Reply, refuse: str) -> None:
        self._last[reply.type_url] = reply
        if not refuse:
            self._accepted[reply.type_url] = reply.version
        request = discovery_pb2.DiscoveryRequest(
            type_url=reply.type_url,
            resource_names=self._names[reply.type_url],
            version_info=self._accepted.get(reply.type_url, ""),
            response_nonce=reply.nonce,
        )
        if refuse:
            request.error_detail.code, request.error_detail.message = 3, refuse
        await self._write(request)

    def _path(self, service: services.Service) -> str:
        return f"/{service.name}/{service.sotw}"

    def _decode(self, encoded: bytes) -> Reply:
        response = discovery_pb2.DiscoveryResponse.FromString(encoded)
        names = [name_of(one.type_url, one.value) for one in response.resources]
        assert len(set(names)) == len(names)
        return Reply(
            type_url=response.type_url,
            version=response.version_info,
            nonce=response.nonce,
            names=frozenset(names),
            missing=_missing(response),
        )


class DeltaClient(Client):
    """Delta."""

    async def subscribe(
        self, type_url: str, *names: str, held: Mapping[str, str] | None = None
    ) -> None:
        """Ask for these names too; `held` is name to version from an earlier stream."""
        await self._write(
            discovery_pb2.DeltaDiscoveryRequest(
                type_url=type_url,
                resource_names_subscribe=names,
                initial_resource_versions=held,
            )
        )

    async def unsubscribe(self, type_url: str, *names: str) -> None:
        """Ask for these names no more."""
        await self._write(
            discovery_pb2.DeltaDiscoveryRequest(type_url=type_url, resource_names_unsubscribe=names)
        )

    async def _answer(self, reply: Reply, refuse: str) -> None:
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=reply.type_url, response_nonce=reply.nonce
        )
        if refuse:
            request.error_detail.code, request.error_detail.message = 3, refuse
        await self._write(request)

    def _path(self, service: services.Service) -> str:
        return service.delta_path

    def _decode(self, encoded: bytes) -> Reply:
        response = discovery_pb2.DeltaDiscoveryResponse.FromString(encoded)
        there = [one for one in response.resources if one.HasField("resource")]
        versions = {one.name: one.version for one in there}
        assert len(versions) == len(there)
        for one in there:
            assert name_of(one.resource.type_url, one.resource.value) == one.name
        return Reply(
            type_url=response.type_url,
            version=response.system_version_info,
            nonce=response.nonce,
            names=frozenset(versions),
            removed=frozenset(response.removed_resources),
            missing=_missing(response).union(
                one.name for one in response.resources if one not in there
            ),
            versions=versions,
        )


def _missing(response: M) -> frozenset[str]:
    return frozenset(one.resource_name.name for one in response.resource_errors)


def name_of(type_url: str, body: bytes) -> str:
    """The name in an encoded resource."""
    read: Any = MESSAGES[type_url].FromString(body)
    return str(read.cluster_name if type_url == types.ENDPOINT.type_url else read.name)


def named(type_url: str, name: str) -> Any:
    """A resource that has a name and nothing else."""
    kind: Any = MESSAGES[type_url]
    return kind(**{"cluster_name" if type_url == types.ENDPOINT.type_url else "name": name})
