# SPDX-License-Identifier: Apache-2.0
"""Connection pools of DestinationPolicies, as a real Envoy keeps them."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pilothouse.model import services
from tests.support import (
    backends,
    envoy_plans,
    grpc_health_servers,
    meshes,
    policy_worlds,
    sockets,
    waiting,
)

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

TWO_PORTS = "two-ports"
PORTS = (policy_worlds.PORT, 81)
ONE_STREAM = "connectionPool: {maxConcurrentStreams: 1}"
POLICIES = {
    "one-request": "connectionPool: {maxRequestsPerConnection: 1}",
    "idle": "connectionPool: {idleTimeout: 100ms}",
    "short-lived": "connectionPool: {maxDuration: 100ms}",
    "h2c": "connectionPool: {httpVersion: HTTP2}",
    "http1": "connectionPool: {httpVersion: HTTP1}",
    "same": "connectionPool: {httpVersion: CLIENT}",
    "one-stream": ONE_STREAM,
    TWO_PORTS: "ports: [{port: 81, connectionPool: {maxRequestsPerConnection: 1}}]",
    "pinged": (
        "connectionPool: {httpVersion: HTTP2, http2Keepalive: {interval: 50ms, timeout: 50ms}}"
    ),
    "probed": "connectionPool: {tcpKeepalive: {probes: 3, time: 600s, interval: 60s}}",
}
PLAIN = ("plain", "one-request", "idle", "short-lived", "http1", "probed")
GRPC = ("many-streams", "one-stream", "http1")


@dataclasses.dataclass(frozen=True, slots=True)
class Pools(policy_worlds.World):
    """A world that counts connections."""

    backend: backends.Backend

    async def connections(self, service: str, kind: str = "total") -> int:
        """Connections to a service so far."""
        return await self.counter(service, f"upstream_cx_{kind}")

    def health(self, service: str) -> grpc.aio.Channel:
        """A gRPC client that asks a service through the sidecar, on a connection of its own."""
        return grpc.aio.insecure_channel(
            self.envoy.url("http-proxy", "").removeprefix("http://"),
            options=[
                ("grpc.default_authority", service),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )


async def _ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take everything, and say nothing."""
    while await reader.read(4096):
        pass
    writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[Pools]:
    async with contextlib.AsyncExitStack() as stack:
        plain = await stack.enter_async_context(backends.backend("plain"))
        _, h2c = await stack.enter_async_context(grpc_health_servers.server())
        silent = await stack.enter_async_context(
            await asyncio.start_server(_ignore, envoy_plans.LOOPBACK, 0)
        )
        endpoints = {
            **dict.fromkeys(PLAIN, (plain.port,)),
            **dict.fromkeys(("h2c", "many-streams", "one-stream"), (h2c,)),
            "same": (h2c,),
            TWO_PORTS: [
                meshes.endpoint(envoy_plans.LOOPBACK, plain.port, f"http-{port}") for port in PORTS
            ],
            "pinged": (silent.sockets[0].getsockname()[1],),
        }
        protocol = services.AppProtocol.GRPC
        inside = await stack.enter_async_context(
            policy_worlds.running(
                endpoints,
                POLICIES,
                meshes.service(TWO_PORTS, *PORTS),
                *(
                    meshes.service(name, meshes.port(policy_worlds.PORT, protocol=protocol))
                    for name in GRPC
                ),
            )
        )
        yield Pools(inside.envoy, inside.client, plain)


async def test_connections_are_used_again(world: Pools):
    """Without a policy they are, so the limits below are the policy's doing."""
    assert await world.tally("plain", 5) == {"plain": 5}
    assert await world.connections("plain") == 1


async def test_a_connection_has_so_many_requests(world: Pools):
    """With a limit of one, each request has a connection of its own."""
    assert await world.tally("one-request", 5) == {"plain": 5}
    assert await world.connections("one-request") == 5


async def test_a_port_may_differ(world: Pools):
    """What the policy says for one port of a service changes no other."""
    for port in PORTS:
        for _ in range(5):
            assert await world.reached(f"{TWO_PORTS}:{port}") == "plain"
    stats = [f"cluster.outbound|{port}||two-ports/default.upstream_cx_total" for port in PORTS]
    assert [await world.envoy.counter(one) for one in stats] == [1, 5]


@pytest.mark.parametrize(
    ("service", "why"), [("idle", "idle_timeout"), ("short-lived", "max_duration_reached")]
)
async def test_a_connection_that_is_over_is_closed(world: Pools, service: str, why: str):
    """When nothing was sent for too long, or when it is too old."""
    await world.reached(service)
    assert await world.connections(service) == 1

    async def closed() -> bool:
        return await world.connections(service, "active") == 0

    await waiting.eventually(closed)
    assert await world.connections(service, why) == 1
    assert await world.reached(service) == "plain"


async def test_http2_is_spoken_where_the_policy_says_so(world: Pools):
    """The port is plain HTTP by its service, and the server behind it speaks h2c only."""
    frame = b"\0\0\0\0\0"  # gRPC's framing of an empty HealthCheckRequest
    async with world.client.post(
        world.envoy.url("http-proxy", "/grpc.health.v1.Health/Check"),
        data=frame,
        headers={"host": "h2c", "content-type": "application/grpc", "te": "trailers"},
    ) as answer:
        assert answer.status == 200
        assert (await answer.read())[5:] == health_pb2.HealthCheckResponse(
            status=health_pb2.HealthCheckResponse.SERVING
        ).SerializeToString()
    assert await world.connections("h2c", "http2_total") == 1


async def test_http1_is_spoken_where_the_policy_says_so(world: Pools):
    """Even where the service's port says gRPC."""
    assert await world.reached("http1") == "plain"
    assert await world.connections("http1", "http1_total") == 1


async def test_each_client_is_answered_in_its_own_version(world: Pools):
    """HTTP/2 from a gRPC client, and HTTP/1.1 from a plain one, which this server cannot answer."""
    async with world.health("same") as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert await world.connections("same", "http2_total") == 1
    assert await world.connections("same", "http1_total") == 0
    assert await world.reached("same") != "200"
    assert await world.connections("same", "http1_total") > 0


@pytest.mark.parametrize(("service", "expected"), [("many-streams", 1), ("one-stream", 2)])
async def test_an_http2_connection_has_so_many_streams(world: Pools, service: str, expected: int):
    """Two watches at a time share a connection, or need two."""
    request = health_pb2.HealthCheckRequest()
    async with world.health(service) as channel:
        watches = [health_pb2_grpc.HealthStub(channel).Watch(request) for _ in range(2)]
        for watch in watches:
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert await world.connections(service, "http2_total") == expected
        for watch in watches:
            watch.cancel()


async def test_an_http2_connection_that_nobody_answers_is_closed(world: Pools):
    """The request on it fails, long before any other time is over."""
    async with world.ask("pinged") as answer:
        assert answer.status == 503
    assert await world.counter("pinged", "http2.keepalive_timeout") >= 1


async def test_tcp_asks_whether_an_idle_peer_is_still_there(world: Pools):
    """The kernel has a keepalive timer for the connection, due at the policy's time."""
    await world.reached("probed")
    await world.reached("plain")
    timers = [due for due in sockets.keepalive_timers(world.backend.port) if due > 0]
    assert len(timers) == 1
    assert 500 < timers[0] <= 600
