# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' client speaks HTTP/2 well enough for a gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from bench import http2
from tests.support import waiting

METHOD = "/some.Service/Talk"
Context = grpc.aio.ServicerContext[bytes, bytes]


@contextlib.asynccontextmanager
async def _served(talk: Callable[[Context], Awaitable[None]], **options: int) -> AsyncIterator[str]:
    """The address of a server that holds such talks."""

    async def serve(_requests: object, context: Any) -> None:
        await talk(context)

    limits = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1}
    server = grpc.aio.server(options=[*limits.items(), *options.items()])
    handler: Any = grpc.stream_stream_rpc_method_handler(serve)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("some.Service", {"Talk": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def _echo(context: Context) -> None:
    while isinstance(message := await context.read(), bytes):
        await context.write(message)


async def test_messages_of_any_size_come_back_as_they_were_sent() -> None:
    """None is lost, cut or joined: not the empty one, nor those above every window of HTTP/2."""
    sizes = (0, 1, 300, 16_379, 16_384, 70_000, 1_000_000, 20_000_000, 5)
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    got: list[bytes] = []
    async with _served(_echo) as address:
        call = await http2.call(address, METHOD, lambda _, message: got.append(message))
        for message in sent:
            call.send(message)
        await waiting.eventually(lambda: len(got) == len(sent))
        call.close()
        await call.ended
    assert got == sent


async def test_a_server_that_ends_a_call_is_told_of_as_such() -> None:
    """Whether it says a status or goes away; words of the status are in the reason."""

    async def refuse(context: Context) -> None:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")

    async with _served(refuse) as address:
        call = await http2.call(address, METHOD, lambda *_: None)
        with pytest.raises(http2.EndedError, match="too many"):
            await asyncio.wait_for(call.ended, 30)
    got: list[bytes] = []
    async with _served(_echo) as address:
        call = await http2.call(address, METHOD, lambda _, message: got.append(message))
        call.send(b"hello")
        await waiting.eventually(lambda: got == [b"hello"])
    with pytest.raises(http2.EndedError):
        await asyncio.wait_for(call.ended, 30)


async def test_a_ping_is_answered() -> None:
    """A server that pings does not take the client for gone."""
    pings = {
        "grpc.keepalive_time_ms": 100,
        "grpc.keepalive_timeout_ms": 2_000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
    }
    answered: list[int] = []

    class Call(http2.Call):
        def _take(self, kind: int, flags: int, stream: bytes, payload: bytes) -> None:
            super()._take(kind, flags, stream, payload)
            if kind == http2.Kind.PING and not flags:
                answered.append(kind)

    async with _served(_echo, **pings) as address:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        got: list[bytes] = []
        _, call = await loop.create_connection(
            lambda: Call(METHOD, address, lambda _, message: got.append(message)), host, int(port)
        )
        await waiting.eventually(lambda: len(answered) >= 3)
        call.send(b"still here")
        await waiting.eventually(lambda: got == [b"still here"])
        call.close()
