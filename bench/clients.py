# SPDX-License-Identifier: Apache-2.0
"""Delta clients that behave as an Envoy does: all clusters, the endpoints of each, if asked to all
listeners and their routes too, and an ACK for each response.

Each has a connection of its own. What they read and answer is worked out once for all who read the
very same bytes: an Envoy does its own share of that on a machine of its own, and here thousands of
them share two cores with the server that is measured.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

from bench import http2
from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import types

SUBSCRIBE_SECONDS = 240.0
RETRY_SECONDS = 0.25
RETRIES = 20

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
CDS, EDS = types.CLUSTER.type_url, types.ENDPOINT.type_url
LDS, RDS = types.LISTENER.type_url, types.ROUTE.type_url
SDS = types.SECRET.type_url

Held = Mapping[str, Mapping[str, str]]
"""Type URL to name to version."""


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A response that somebody has read."""

    raw: bytes
    response: discovery_pb2.DeltaDiscoveryResponse
    ack: bytes
    """The encoded request that acknowledges it."""
    following: dict[Wants, tuple[bytes, ...]] = dataclasses.field(default_factory=dict)
    """What is asked for by those who want this, when it is their first response of a type."""


class Reader:
    """Reads responses, those that are the same once."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._newest: dict[int, _Read] = {}
        """By length: who is sent the same is sent it soon."""

    def read(self, raw: bytes) -> _Read:
        """What a response says, and its acknowledgement."""
        known = self._newest.get(len(raw))
        if known is not None and known.raw == raw:
            return known
        response = discovery_pb2.DeltaDiscoveryResponse.FromString(raw)
        ack = discovery_pb2.DeltaDiscoveryRequest(
            type_url=response.type_url, response_nonce=response.nonce
        )
        read = _Read(raw=raw, response=response, ack=ack.SerializeToString())
        self._newest[len(raw)] = read
        return read


class DeltaClient:
    """One stream on one connection."""

    def __init__(
        self, address: str, node_id: str, *, wants: Wants, ready: Tally, reader: Reader
    ) -> None:
        """Nothing is opened before ``run``."""
        self._address = address
        self._node = base_pb2.Node(id=node_id)
        self._wants = wants
        self._ready: Tally | None = ready
        self._reader = reader
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

        Who is turned away before anything was said comes back, as Envoy does.

        Raises:
            http2.EndedError: the server ended the stream later, or turned it away again and again.
        """
        for _ in range(RETRIES):
            try:
                await self._stream()
            except (http2.EndedError, OSError) as error:
                if self.received_bytes:
                    raise
                reason = error
            await asyncio.sleep(RETRY_SECONDS)
        raise http2.EndedError(f"turned away {RETRIES} times: {reason}")

    async def _stream(self) -> None:
        call = await http2.call(self._address, METHOD, self._answer)
        try:
            # Joined, two encoded messages are one with the fields of both.
            introduction = discovery_pb2.DeltaDiscoveryRequest(node=self._node).SerializeToString()
            subscribing, *others = _first(self._wants)
            call.send(introduction + subscribing)
            for request in others:
                call.send(request)
            await call.ended
        finally:
            call.close()

    def _answer(self, call: http2.Call, raw: bytes) -> None:
        read = self._reader.read(raw)
        call.send(read.ack)
        self.received_bytes += len(raw)
        response, url = read.response, read.response.type_url
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
            self._follow(call, read)

    def _follow(self, call: http2.Call, read: _Read) -> None:
        """Ask for what the first response of a type leads to, in Envoy's order."""
        following = read.following.get(self._wants)
        if following is None:
            following = read.following[self._wants] = tuple(_next(read.response, self._wants))
        for request in following:
            call.send(request)
        if not following and self._ready is not None:
            self._ready.one()
            self._ready = None


def _request(url: str, names: Iterable[str] = (), held: Held | None = None) -> bytes:
    return discovery_pb2.DeltaDiscoveryRequest(
        type_url=url,
        resource_names_subscribe=names,
        initial_resource_versions=held.get(url) if held else None,
    ).SerializeToString()


@functools.lru_cache(maxsize=2)
def _first(wants: Wants) -> tuple[bytes, ...]:
    """What is asked for at once, the clusters first."""
    held = wants.held
    again = [
        _request(url, () if url == LDS else named, held)
        for url, named in held.items()
        if url != CDS
    ]
    # What nobody has is answered always: when the answer comes, all else was read.
    last = [_request(SDS, ("absent",))] if held else []
    return (_request(CDS, held=held), *again, *last)


def _next(response: discovery_pb2.DeltaDiscoveryResponse, wants: Wants) -> Iterator[bytes]:
    match response.type_url:
        case types.CLUSTER.type_url:
            names = [one.name for one in response.resources if one.name not in wants.but]
            yield _request(EDS, names)
        case types.ENDPOINT.type_url if wants.routes:
            yield _request(LDS)
        case types.LISTENER.type_url:
            yield _request(RDS, sorted(_routes(response.resources)))
        case _:
            pass


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
    ready, reader = Tally(0 if wants.held else count), Reader()
    clients = [
        DeltaClient(address, node(number), wants=wants, ready=ready, reader=reader)
        for number in range(count)
    ]
    try:
        async with asyncio.TaskGroup() as group:
            # One that is turned away for good ends the block, with the reason.
            tasks = [group.create_task(client.run()) for client in clients]
            try:
                await ready.all(seconds)
                yield clients
            finally:
                for task in tasks:
                    task.cancel()
    except ExceptionGroup as found:
        raise found.exceptions[0] from None


def versions(client: DeltaClient) -> Held:
    """What a client that remembers holds, as it would say when it comes back."""
    return {
        url: {name: resource.version for name, resource in named.items()}
        for url, named in client.resources.items()
    }
