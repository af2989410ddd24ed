# SPDX-License-Identifier: Apache-2.0
"""A management server of a few lines, for tests of what stands between it and Envoy.

It sends whole types, in both variants, whenever a test sets them, and remembers what it was asked.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2, message

from pilothouse.api.envoy.config.core.v3 import address_pb2, base_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.filters.http.router.v3 import router_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as hcm_pb2,
)
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2

CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
LDS = "type.googleapis.com/envoy.config.listener.v3.Listener"

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


@dataclass(slots=True)
class AdsServer:
    """Resources by type URL and name; a type that was never set is not answered."""

    port: int = 0
    resources: dict[str, dict[str, any_pb2.Any]] = field(default_factory=dict)
    requests: list[Any] = field(default_factory=list)
    streams: int = 0
    version: int = 0
    _wake: list[asyncio.Event] = field(default_factory=list)
    _ends: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def set(self, type_url: str, *resources: message.Message) -> None:
        """Replace a type, and send it to all who asked for it."""
        self.version += 1
        self.resources[type_url] = {each.name: _any(each) for each in resources}  # type: ignore[attr-defined]
        for event in self._wake:
            event.set()

    def end_streams(self) -> None:
        """End every open stream with UNAVAILABLE; new ones are welcome."""
        self._ends.set()
        self._ends = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["AdsServer"]:
        """Listen on `port` (0: a free one) for as long as the block runs."""
        server = grpc.aio.server()
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "StreamAggregatedResources": grpc.stream_stream_rpc_method_handler(
                self._sotw,
                request_deserializer=discovery_pb2.DiscoveryRequest.FromString,
                response_serializer=discovery_pb2.DiscoveryResponse.SerializeToString,
            ),
            "DeltaAggregatedResources": grpc.stream_stream_rpc_method_handler(
                self._delta,
                request_deserializer=discovery_pb2.DeltaDiscoveryRequest.FromString,
                response_serializer=discovery_pb2.DeltaDiscoveryResponse.SerializeToString,
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        self.port = server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        try:
            yield self
        finally:
            await server.stop(grace=None)

    async def _sotw(self, requests: AsyncIterator[Any], context: Any) -> None:
        await self._stream(requests, context, delta=False)

    async def _delta(self, requests: AsyncIterator[Any], context: Any) -> None:
        await self._stream(requests, context, delta=True)

    async def _stream(self, requests: AsyncIterator[Any], context: Any, *, delta: bool) -> None:
        self.streams += 1
        wake, ends = asyncio.Event(), self._ends
        self._wake.append(wake)
        asked: set[str] = set()
        sent: dict[str, dict[str, any_pb2.Any]] = {}

        async def read() -> None:
            async for request in requests:
                self.requests.append(request)
                asked.add(request.type_url)
                wake.set()

        async def write() -> None:
            while True:
                await wake.wait()
                wake.clear()
                for type_url in sorted(asked & self.resources.keys()):
                    if sent.get(type_url) != self.resources[type_url]:
                        before = sent.get(type_url, {})
                        sent[type_url] = self.resources[type_url]
                        await context.write(self._response(type_url, before, delta=delta))

        tasks = [asyncio.ensure_future(each) for each in (read(), write(), ends.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ends.is_set():
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the test ended the stream")
        finally:
            self._wake.remove(wake)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _response(self, type_url: str, before: dict[str, any_pb2.Any], *, delta: bool) -> Any:
        now, version = self.resources[type_url], str(self.version)
        if not delta:
            return discovery_pb2.DiscoveryResponse(
                type_url=type_url, version_info=version, nonce=version, resources=now.values()
            )
        return discovery_pb2.DeltaDiscoveryResponse(
            type_url=type_url,
            system_version_info=version,
            nonce=version,
            resources=[
                discovery_pb2.Resource(name=name, version=version, resource=resource)
                for name, resource in now.items()
                if before.get(name) != resource
            ],
            removed_resources=sorted(before.keys() - now.keys()),
        )


def direct_response(name: str, *, port: int, body: str, status: int = 200) -> listener_pb2.Listener:
    """A listener on 127.0.0.1 that answers every request itself; a status below 200 is refused."""
    route = route_components_pb2.Route(
        match=route_components_pb2.RouteMatch(prefix="/"),
        direct_response=route_components_pb2.DirectResponseAction(
            status=status, body=base_pb2.DataSource(inline_string=body)
        ),
    )
    host = route_components_pb2.VirtualHost(name="all", domains=["*"], routes=[route])
    manager = hcm_pb2.HttpConnectionManager(
        stat_prefix=name,
        route_config=route_pb2.RouteConfiguration(name=name, virtual_hosts=[host]),
        http_filters=[
            hcm_pb2.HttpFilter(
                name="envoy.filters.http.router", typed_config=_any(router_pb2.Router())
            )
        ],
    )
    network_filter = listener_components_pb2.Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=_any(manager)
    )
    socket_address = address_pb2.SocketAddress(address="127.0.0.1", port_value=port)
    return listener_pb2.Listener(
        name=name,
        address=address_pb2.Address(socket_address=socket_address),
        filter_chains=[listener_components_pb2.FilterChain(filters=[network_filter])],
    )


def _any(content: message.Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(content, deterministic=True)
    return packed
