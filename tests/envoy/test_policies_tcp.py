# SPDX-License-Identifier: Apache-2.0
"""What DestinationPolicies do for connections that are no HTTP, as a real Envoy does it.

Applications reach such ports by CONNECT, or at ports of the sidecar that are mapped to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from tests.support import certificates, meshes, stream_worlds, tcp_backends, waiting

pytestmark = pytest.mark.envoy

PORT = stream_worlds.PORT
MAPPED = {"one": 7001, "db": 7002, "vault": 7003}
SERVER, STRANGER = certificates.make("vault.example"), certificates.make("vault.example")
WAYS = ("connect", "mapped")


@contextlib.asynccontextmanager
async def worlds() -> AsyncIterator[stream_worlds.World]:
    maps = tuple(f"{port}={name}.default:{PORT}" for name, port in MAPPED.items())
    async with stream_worlds.world(maps=maps) as world:
        yield world


async def reached(world: stream_worlds.World, way: str, service: str) -> str:
    """Which backend greets; empty when there is no connection."""
    if way == "connect":
        name = await world.reached(f"{service}:{PORT}")
        return "" if name == "503" else name
    name = await world.at(MAPPED[service])
    return "" if name.endswith("Error") else name


def connected(
    world: stream_worlds.World, way: str, service: str
) -> contextlib.AbstractAsyncContextManager[tcp_backends.Stream]:
    """A connection that stays open in the block."""
    if way == "connect":
        return world.connect(f"{service}:{PORT}")
    return tcp_backends.stream(world.envoy.address, MAPPED[service])


LIMIT = meshes.policy("p", "{service: one, circuitBreaker: {maxConnections: 1}}")


async def test_connections_have_a_limit():
    """One more is closed at once, and served when another one has ended."""
    async with worlds() as world:
        await world.give(LIMIT)
        async with connected(world, "mapped", "one") as stream:
            assert await reached(world, "mapped", "one") == ""
            assert await stream.echo("still") == "still"

        async def again() -> bool:
            return await reached(world, "mapped", "one") == "one"

        await waiting.eventually(again)


async def test_by_connect_a_connection_waits_for_its_turn():
    """As a request waits for a connection; `maxPendingRequests` limits how many do."""
    async with worlds() as world:
        await world.give(LIMIT)
        async with connected(world, "connect", "one") as stream:
            second = asyncio.create_task(reached(world, "connect", "one"))
            waits = f"cluster.outbound|{PORT}||one/default.upstream_rq_pending_active"
            await waiting.eventually(lambda: world.envoy.stat(waits))
            assert await stream.echo("still") == "still"
            assert not second.done()
        assert await second == "one"


async def test_a_connection_may_last_so_long():
    """It is closed although something moves on it; one of another service goes on."""
    pool = "{maxDuration: 300ms}"
    async with worlds() as world:
        await world.give(meshes.policy("p", f"{{service: one, connectionPool: {pool}}}"))
        async with (
            connected(world, "mapped", "db") as other,
            connected(world, "mapped", "one") as stream,
        ):
            assert await other.echo("begin") == "begin"

            async def closed() -> bool:
                return await stream.echo("still") != "still"

            with contextlib.suppress(ConnectionError):
                await waiting.eventually(closed)
            assert await other.echo("end") == "end"


@pytest.mark.parametrize("way", WAYS)
async def test_tls_to_what_is_no_http(way: str):
    """The application speaks clear text; a certificate of somebody else ends the connection."""
    async with worlds() as world, tcp_backends.tcp_backend("vault", SERVER.server()) as vault:
        for pair, expected in ((SERVER, "vault"), (STRANGER, "")):
            ca = json.dumps(pair.certificate)
            await world.give(
                stream_worlds.tcp("vault"),
                meshes.policy(
                    "p", f"{{service: vault, tls: {{sni: vault.example, caCertificates: {ca}}}}}"
                ),
                endpoints={"vault": [stream_worlds.endpoint(vault.port)]},
            )
            assert await reached(world, way, "vault") == expected


@pytest.mark.parametrize("way", WAYS)
async def test_the_endpoint_is_told_the_clients_address(way: str):
    """Before anything that the client says."""
    async with worlds() as world:
        await world.give(meshes.policy("p", "{service: one, connectionPool: {proxyProtocol: V1}}"))
        async with connected(world, way, "one") as stream:
            assert (await stream.reader.readline()).startswith(b"PROXY TCP4 127.")
            assert await stream.echo("hello") == "hello"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", ["RING_HASH", "MAGLEV"])
async def test_the_key_of_a_connection_is_its_clients_address(way: str, policy: str):
    """All connections of one client reach one endpoint, and without a policy they do not."""
    hashing = f"{{service: db, loadBalancer: {{policy: {policy}, hashBy: [{{sourceIp: true}}]}}}}"
    async with worlds() as world:
        await world.give()
        assert len({await reached(world, way, "db") for _ in range(30)}) == 3
        await world.give(meshes.policy("p", hashing))
        assert len({await reached(world, way, "db") for _ in range(30)}) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_an_endpoint_that_refuses_is_left_out(way: str):
    """Failures to connect are the only ones that there are."""
    async with worlds() as world:
        await world.give(
            meshes.policy(
                "p",
                "{service: db, loadBalancer: {policy: ROUND_ROBIN}, outlierDetection:"
                " {consecutive5xx: 0, consecutiveLocalOriginFailures: 1}}",
            ),
            endpoints={
                "db": [
                    stream_worlds.endpoint(world.backends["one"].port),
                    stream_worlds.endpoint(1),
                ]
            },
        )
        ejected = f"cluster.outbound|{PORT}||db/default.outlier_detection.ejections_active"

        async def left_out() -> bool:
            await reached(world, way, "db")
            return await world.envoy.stat(ejected) == 1

        await waiting.eventually(left_out)
        assert {await reached(world, way, "db") for _ in range(10)} == {"one"}
