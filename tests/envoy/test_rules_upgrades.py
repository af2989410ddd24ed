# SPDX-License-Identifier: Apache-2.0
"""What requests may change to: WebSockets over HTTP/1.1 and HTTP/2, and tunnels by CONNECT."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import aiohttp
import hpack
import hyperframe.frame as frames
import pytest
import pytest_asyncio

from tests.support import http_clients, rule_worlds, tcp_backends

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

TO_ONE = "destinations: [{service: one}]"
RULES = {
    "open.example.com": f"{{{TO_ONE}}}",
    "shut.example.com": f"{{{TO_ONE}, upgrades: {{websocket: false}}}}",
}
AT_GATEWAY = {
    **RULES,
    "tunnel.example.com": (
        f"{{matches: [{{path: {{exact: /own}}}}], {TO_ONE}}},"
        f" {{destinations: [{{service: two}}], upgrades: {{connect: true}}}}"
    ),
    "plain.example.com": f"{{{TO_ONE}, upgrades: {{connect: false}}}}",
}
MASKED = bytes((0x81, 0x84, 0, 0, 0, 0)) + b"ahoy"
"""A frame with a text from a client (RFC 6455, section 5.2), whose mask is zero."""
ECHOED = bytes((0x81, 0x04)) + b"ahoy"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worlds() -> AsyncIterator[dict[str, rule_worlds.World]]:
    """A sidecar and a gateway."""
    names = {name.partition(".")[0]: rule for name, rule in RULES.items()}
    async with contextlib.AsyncExitStack() as stack:
        yield {
            "sidecar": await stack.enter_async_context(rule_worlds.sidecar(names)),
            "gateway": await stack.enter_async_context(rule_worlds.gateway(AT_GATEWAY)),
        }


def host(where: str, name: str) -> str:
    return name if where == "sidecar" else f"{name}.example.com"


@pytest.mark.parametrize("where", ["sidecar", "gateway"])
async def test_websockets(worlds: dict[str, rule_worlds.World], where: str):
    """They pass, unless the route says no: 403, and the application is not asked."""
    world = worlds[where]
    url = world.envoy.url(world.listener, "/echo")
    opened = world.client.ws_connect(url, headers={"host": host(where, "open")})
    async with opened as socket:
        await socket.send_str("ahoy")
        assert await socket.receive_str(timeout=20) == "ahoy"
    asked = len(world.backends["one"].requests)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await world.client.ws_connect(url, headers={"host": host(where, "shut")})
    assert caught.value.status == 403
    assert len(world.backends["one"].requests) == asked


@pytest.mark.parametrize("where", ["sidecar", "gateway"])
async def test_websockets_over_http2(worlds: dict[str, rule_worlds.World], where: str):
    """As an extended CONNECT (RFC 8441), also where the route says no."""
    world = worlds[where]
    port = world.envoy.ports[world.listener]
    async with http_clients.http2("127.0.0.1", port) as client:
        assert await upgraded(client, host(where, "open")) == ("200", ECHOED)
    async with http_clients.http2("127.0.0.1", port) as client:
        status, _ = await upgraded(client, host(where, "shut"))
        assert status == "403"


async def upgraded(client: http_clients.Http2, authority: str) -> tuple[str, bytes]:
    """The status of a WebSocket's handshake, and what comes back after a text is sent."""
    stream = client.state.get_next_available_stream_id()
    head = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", authority),
        (":path", "/echo"),
        ("sec-websocket-version", "13"),
    ]
    client.state.send_headers(stream, head)
    client.state.send_data(stream, MASKED)
    client.writer.write(client.state.data_to_send())
    # Frame by frame: Envoy says that it goes away before it refuses, and the library ends there.
    status, body, decoder = "", b"", hpack.Decoder()
    async with asyncio.timeout(20):
        while True:
            frame, length = frames.Frame.parse_frame_header(
                memoryview(await client.reader.readexactly(9))
            )
            frame.parse_body(memoryview(await client.reader.readexactly(length)))
            match frame:
                case frames.HeadersFrame():
                    status = dict(decoder.decode(frame.data))[":status"]
                case frames.DataFrame():
                    body += frame.data
                case frames.RstStreamFrame():
                    return status, body
            if "END_STREAM" in frame.flags or len(body) >= len(ECHOED):
                return status, body


async def connected(world: rule_worlds.World, authority: str) -> str:
    """The backend that answers a request inside of a tunnel; else the status of the CONNECT."""
    head = f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n".encode()
    port = world.envoy.ports[world.listener]
    async with tcp_backends.stream("127.0.0.1", port, before=head) as stream:
        _, status, *_ = stream.name.split(" ")
        while await stream.reader.readline() not in (b"\r\n", b""):
            pass
        if status != "200":
            return status
        stream.writer.write(b"GET /inside HTTP/1.1\r\nhost: any\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(20):
            answer = await stream.reader.read()
        return str(json.loads(answer.partition(b"\r\n\r\n")[2])["backend"])


async def test_connect_at_a_gateway(worlds: dict[str, rule_worlds.World]):
    """Where a route takes it: the destination gets the bytes. Everywhere else it is refused."""
    world = worlds["gateway"]
    assert await connected(world, "tunnel.example.com:443") == "two"
    assert await connected(world, "plain.example.com:443") == "404"
    assert await connected(world, "open.example.com:443") == "404"
    assert await world.reached("tunnel.example.com", "/own") == "one"
    assert await world.reached("tunnel.example.com", "/") == "two"
