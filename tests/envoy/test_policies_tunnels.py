# SPDX-License-Identifier: Apache-2.0
"""Connections to external services through an HTTP proxy, as a real Envoy makes them."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest

from tests.support import backends, certificates, meshes, policy_worlds

pytestmark = pytest.mark.envoy

SERVER = certificates.make("api.example")
TLS = f"sni: api.example, caCertificates: {json.dumps(SERVER.certificate)}"


@contextlib.asynccontextmanager
async def forward_proxy(asked: list[str]) -> AsyncIterator[int]:
    """A port where CONNECT is served; `asked` gets the targets that were asked for."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.decode().split(" ", 2)
            asked.append(f"{method} {target}")
            _, _, port = target.rpartition(":")
            inward, outward = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            async with asyncio.TaskGroup() as both:
                both.create_task(copy(reader, outward))
                both.create_task(copy(inward, writer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def _outside(name: str, spec: str, port: int) -> dict[object, object]:
    return meshes.external(  # type: ignore[return-value]
        name, f"{{hosts: [{name}.example], ports: [{{number: 80, targetPort: {port}}}], {spec}}}"
    )


async def test_connections_are_made_through_the_proxy():
    """TLS goes through the tunnel, so the proxy sees nothing but names and bytes. It is told a name
    where DNS is asked, and an address where the service has one; without a policy it is not asked.
    """
    asked: list[str] = []
    async with (
        backends.backend("secure", SERVER.server()) as secure,
        forward_proxy(asked) as proxy,
    ):
        tunnel = f"{{tls: {{{TLS}, tunnel: {{ipAddress: 127.0.0.1, port: {proxy}}}}}}}"
        named = "resolution: DNS, endpoints: [{address: localhost}]"
        static = "resolution: STATIC, endpoints: [{address: 127.0.0.1}]"
        async with policy_worlds.running(
            {"inside": (secure.port,)},
            {},
            _outside("named", named, secure.port),
            _outside("static", static, secure.port),
            _outside("direct", static, secure.port),
            meshes.policy("named", "{externalService: named, " + tunnel[1:]),
            meshes.policy("static", "{externalService: static, " + tunnel[1:]),
            meshes.policy("direct", f"{{externalService: direct, tls: {{{TLS}}}}}"),
        ) as world:
            assert await world.reached("direct.example") == "secure"
            assert asked == []
            assert await world.reached("static.example") == "secure"
            assert asked == [f"CONNECT 127.0.0.1:{secure.port}"]
            assert await world.reached("named.example") == "secure"
            assert asked[1:] == [f"CONNECT localhost:{secure.port}"]


async def test_without_the_proxy_there_is_no_connection():
    """Nobody goes round it."""
    async with backends.backend("secure", SERVER.server()) as secure:
        # Bound and not listening: whoever connects is refused, for as long as we hold it.
        refusing = socket.socket()
        refusing.bind(("127.0.0.1", 0))
        proxy = refusing.getsockname()[1]
        static = "resolution: STATIC, endpoints: [{address: 127.0.0.1}]"
        tunnel = f"tls: {{{TLS}, tunnel: {{ipAddress: 127.0.0.1, port: {proxy}}}}}"
        with refusing:
            async with policy_worlds.running(
                {"inside": (secure.port,)},
                {},
                _outside("static", static, secure.port),
                meshes.policy("static", f"{{externalService: static, {tunnel}}}"),
            ) as world:
                assert await world.reached("static.example") == "503"
                assert secure.requests == []
