# SPDX-License-Identifier: Apache-2.0
"""Delta clients that behave as an Envoy does: all clusters, the endpoints of each, if asked to all
listeners and their routes too, and an ACK for each response.

Each has a connection of its own. Bytes are handed through; a response is parsed for its type, nonce
and names only, which is about what an Envoy's own share of the work would be.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

import grpc

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import types

SUBSCRIBE_SECONDS = 240.0
RETRY_SECONDS = 0.25

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
_CHANNEL = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
)
CDS, EDS = types.CLUSTER.type_url, types.ENDPOINT.type_url
LDS, RDS = types.LISTENER.type_url, types.ROUTE.type_url
SDS = types.SECRET.type_url

Held = Mapping[str, Mapping[str, str]]
"""Type URL to name to version."""
Call = grpc.aio.StreamStreamCall[bytes, bytes]


class Tally:
    """Counts clients that reached something, and wakes one waiter at the last of them."""

    def __init__(self, wanted: int) -> None:
        self._left = wanted
        self._done = asyncio.Event()
        if not wanted:
            self._done.set()

    def one(self) -> None:
        """One more has reached it."""
        self._left -= 1
        if self._left == 0:
            self._done.set()

    async def all(self, seconds: float) -> None:
        """Wait until all have."""
        async with asyncio.timeout(seconds):
            await self._done.wait()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """What a client asks for, beside all clusters."""

    but: frozenset[str] = frozenset()
    """Clusters whose endpoints it does not ask for."""
    routes: bool = False
    """Listeners and routes too."""
    held: Held = dataclasses.field(default_factory=dict)
    """What it holds from an earlier stream."""
    remember: bool = False
    """Keep the resources that arrive, in `resources`."""


class DeltaClient:
    """One stream on one connection."""

    def __init__(self, address: str, node_id: str, *, wants: Wants, ready: Tally) -> None:
        """Nothing is opened before ``run``."""
        self._address = address
        self._node = base_pb2.Node(id=node_id)
        self._wants = wants
        self._ready: Tally | None = ready
        self.watching: tuple[str, Tally] | None = None
        """Tell the tally of the next acknowledged response of this type."""
        self.received_bytes = 0
        self.received: collections.Counter[str] = collections.Counter()
        """Resources by type URL."""
        self.acked_at = 0.0
        """When the newest response was acknowledged, by ``time.perf_counter``."""
        self.resources: dict[str, dict[str, discovery_pb2.Resource]] = {}
        """Type URL to name to what arrived last, if it is to remember."""

    async def run(self) -> None:
        """Open the stream and acknowledge everything, until cancelled.

        gRPC's servers turn streams away while thousands wait to be taken; Envoy comes back then.
        """
        while True:
            try:
                return await self._stream()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.CANCELLED or self.received_bytes:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _stream(self) -> None:
        channel = grpc.aio.insecure_channel(self._address, options=_CHANNEL)
        try:
            call: Call = channel.stream_stream(METHOD)()
            await self._ask(call, CDS, node=self._node)
            for url, held in self._wants.held.items():
                if url != CDS:
                    await self._ask(call, url, () if url == LDS else held)
            if self._wants.held:
                # What nobody has is answered always: when the answer comes, all else was read.
                await self._ask(call, SDS, ("absent",))
            while isinstance(raw := await call.read(), bytes):
                self.received_bytes += len(raw)
                await self._answer(call, discovery_pb2.DeltaDiscoveryResponse.FromString(raw))
        finally:
            await channel.close()

    async def _ask(
        self, call: Call, url: str, names: Iterable[str] = (), node: base_pb2.Node | None = None
    ) -> None:
        await call.write(
            discovery_pb2.DeltaDiscoveryRequest(
                node=node,
                type_url=url,
                resource_names_subscribe=names,
                initial_resource_versions=self._wants.held.get(url),
            ).SerializeToString()
        )

    async def _answer(self, call: Call, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        url = response.type_url
        ack = discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=response.nonce)
        await call.write(ack.SerializeToString())
        first = url not in self.received
        self.received[url] += len(response.resources)
        self.acked_at = time.perf_counter()
        if self._wants.remember:
            named = self.resources.setdefault(url, {})
            named.update((resource.name, resource) for resource in response.resources)
        if self.watching is not None and self.watching[0] == url:
            _, tally = self.watching
            self.watching = None
            tally.one()
        if first and url not in self._wants.held:
            await self._follow(call, response)

    async def _follow(self, call: Call, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        """Ask for what the first response of a type leads to, in Envoy's order."""
        match response.type_url:
            case types.CLUSTER.type_url:
                names = [one.name for one in response.resources if one.name not in self._wants.but]
                await self._ask(call, EDS, names)
            case types.ENDPOINT.type_url if self._wants.routes:
                await self._ask(call, LDS)
            case types.LISTENER.type_url:
                await self._ask(call, RDS, sorted(_routes(response.resources)))
            case _ if self._ready is not None:
                self._ready.one()
                self._ready = None


def _routes(resources: Iterable[discovery_pb2.Resource]) -> set[str]:
    """Names of the route configurations that listeners refer to."""
    names = set()
    for resource in resources:
        listener = listener_pb2.Listener.FromString(resource.resource.value)
        for chain in (*listener.filter_chains, listener.default_filter_chain):
            for each in chain.filters:
                manager = manager_pb2.HttpConnectionManager()
                if each.typed_config.Unpack(manager) and manager.HasField("rds"):
                    names.add(manager.rds.route_config_name)
    return names


def sidecar(number: int) -> str:
    """The node id of one of many sidecars, ten replicas for each workload."""
    address = f"10.9.{number >> 8}.{number & 255}"
    return f"sidecar~{address}~w{number // 10}-{number % 10}.default~cluster.local"


@contextlib.asynccontextmanager
async def swarm(
    address: str,
    count: int,
    *,
    wants: Wants = Wants(),
    node: Callable[[int], str] = sidecar,
    seconds: float = SUBSCRIBE_SECONDS,
) -> AsyncIterator[Sequence[DeltaClient]]:
    """Clients for the time of the block, each with all that it asked for."""
    ready = Tally(0 if wants.held else count)
    clients = [DeltaClient(address, node(n), wants=wants, ready=ready) for n in range(count)]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    try:
        await ready.all(seconds)
        yield clients
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def versions(client: DeltaClient) -> Held:
    """What a client that remembers holds, as it would say when it comes back."""
    return {
        url: {name: resource.version for name, resource in named.items()}
        for url, named in client.resources.items()
    }
