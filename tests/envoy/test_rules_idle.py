# SPDX-License-Identifier: Apache-2.0
"""How long nothing may move on a connection or in a session, as RouteRules say and Envoy keeps it.

Each is shown by another one, of a service without a rule, that is there all the time.
"""

import asyncio
import contextlib

import pytest

from pilothouse.model import services
from tests.support import meshes, stream_worlds, tcp_backends, waiting

pytestmark = pytest.mark.envoy

PORT = stream_worlds.PORT
AT = {"db": 7001, "one": 7002}
MAPS = tuple(f"{port}={name}.default:{PORT}" for name, port in AT.items())
SESSIONS = {"brief": 7003, "long": 7004}


@pytest.mark.parametrize("family", ["tcp", "tls"])
async def test_an_idle_connection_is_closed_in_its_time(family: str) -> None:
    """And no other; one on which something moves goes on."""
    db = stream_worlds.tcp("db", protocol=family.upper())
    rule = meshes.rule("db", f"{{parents: [{{service: db}}], {family}: [{{idleTimeout: 2s}}]}}")
    async with stream_worlds.world(maps=MAPS) as world:
        await world.give(db, rule)
        async with (
            tcp_backends.stream(world.envoy.address, AT["one"]) as other,
            tcp_backends.stream(world.envoy.address, AT["db"]) as busy,
            tcp_backends.stream(world.envoy.address, AT["db"]) as idle,
        ):

            async def move() -> None:
                while True:
                    assert await busy.echo("still") == "still"

            moving = asyncio.create_task(move(), name="moving")
            try:
                async with asyncio.timeout(30):
                    with contextlib.suppress(ConnectionResetError):
                        assert await idle.reader.read() == b""
                assert not moving.done()
            finally:
                moving.cancel()
                await asyncio.wait((moving,))
            assert await other.echo("still") == "still"


async def test_an_idle_session_is_forgotten_in_its_time() -> None:
    """What comes from its client later begins another one."""
    maps = tuple(f"{port}={name}.default:53/udp" for name, port in SESSIONS.items())
    async with tcp_backends.udp_backend("echo") as echo, stream_worlds.world(maps=maps) as world:
        port = meshes.port(53, "udp", services.AppProtocol.UDP)
        there = [meshes.endpoint("127.0.0.1", echo.port, "udp")]
        await world.give(
            *(meshes.service(name, port) for name in SESSIONS),
            meshes.rule("brief", "{parents: [{service: brief}], udp: [{idleTimeout: 200ms}]}"),
            endpoints=dict.fromkeys(SESSIONS, there),
        )

        async def sessions(name: str, what: str) -> int:
            """Of a service so far in `total`, or `active` now."""
            stat = f"udp.map|{world.envoy.address.replace('.', '/')}:{SESSIONS[name]}/udp"
            return await world.envoy.stat(f"{stat}.downstream_sess_{what}")

        async with (
            tcp_backends.datagrams(world.envoy.address, SESSIONS["long"]) as long,
            tcp_backends.datagrams(world.envoy.address, SESSIONS["brief"]) as brief,
        ):

            async def heard(client: tcp_backends.Datagrams, text: str) -> None:
                async def answered() -> bool:
                    return await client.ask(text) == f"echo:{text}"

                await waiting.eventually(answered, what="an answer")

            for client in (long, brief):
                await heard(client, "hello")
            before = await sessions("brief", "total")

            async def forgotten() -> bool:
                return await sessions("brief", "active") == 0

            await waiting.eventually(forgotten, what="the session is over")
            await heard(brief, "again")
            assert await sessions("brief", "total") > before
            await heard(long, "again")
            assert (await sessions("long", "active"), await sessions("long", "total")) == (1, 1)
