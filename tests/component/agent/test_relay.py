# SPDX-License-Identifier: Apache-2.0
"""The xDS relay between a client and a server that a test controls byte by byte."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from pilothouse.envoy import bootstrap
from pilothouse_agent import observation, relay
from tests.support.waiting import eventually

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
SOTW, DELTA = "StreamAggregatedResources", "DeltaAggregatedResources"
LOADS_SERVICE, LOADS = "envoy.service.load_stats.v3.LoadReportingService", "StreamLoadStats"

# Test client and server set no limit of their own: what is shown is that the relay has none.
UNLIMITED = (("grpc.max_receive_message_length", -1),)

Serve = Callable[[AsyncIterator[bytes], Any], Awaitable[None]]


@contextlib.asynccontextmanager
async def relayed(folder: Path, serve: Serve) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a relay, in front of a server whose streams `serve` handles."""
    upstream = grpc.aio.server(options=UNLIMITED)
    handler = grpc.stream_stream_rpc_method_handler(serve)
    upstream.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(SERVICE, {SOTW: handler, DELTA: handler}),
            grpc.method_handlers_generic_handler(LOADS_SERVICE, {LOADS: handler}),
        )
    )
    address = f"unix:{folder / 'upstream.sock'}"
    upstream.add_insecure_port(address)
    await upstream.start()
    listen = bootstrap.UnixSocket(str(folder / "xds.sock"))
    relaying = relay.Relay(
        listen=listen,
        upstream=bootstrap.parse_address(address),
        observer=observation.Observer(),
    )
    try:
        async with (
            relaying.serving(),
            grpc.aio.insecure_channel(str(listen), options=UNLIMITED) as channel,
        ):
            yield channel
    finally:
        await upstream.stop(grace=None)


async def test_load_reports_pass_likewise(tmp_path: Path):
    """Both ways, and unread."""

    async def echo(requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await context.write(request[::-1])

    async with relayed(tmp_path, echo) as channel:
        call = channel.stream_stream(f"/{LOADS_SERVICE}/{LOADS}")()
        await call.write(b"\xff\x01")
        assert await call.read() == b"\x01\xff"
        call.cancel()


def open_stream(channel: grpc.aio.Channel, method: str = SOTW) -> Any:
    return channel.stream_stream(f"/{SERVICE}/{method}")()


@pytest.mark.parametrize("method", [SOTW, DELTA])
async def test_messages_pass_as_the_bytes_they_are_also_when_nobody_can_read_them(
    tmp_path: Path, method: str
):
    async def echo(requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await context.write(request[::-1])

    async with relayed(tmp_path, echo) as channel:
        call = open_stream(channel, method)
        for message in (b"\xff\xff\xff", b"", b"x" * 5_000_000):
            await call.write(message)
            assert await call.read() == message[::-1]


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.UNAVAILABLE, "not synced"),
        (grpc.StatusCode.INVALID_ARGUMENT, "node id"),
        (grpc.StatusCode.OK, ""),
    ],
)
async def test_the_end_is_passed_on_with_its_status(
    tmp_path: Path, code: grpc.StatusCode, details: str
):
    async def end(_requests: AsyncIterator[bytes], context: Any) -> None:
        await context.write(b"last")
        if code is not grpc.StatusCode.OK:
            await context.abort(code, details)

    async with relayed(tmp_path, end) as channel:
        call = open_stream(channel)
        await call.write(b"first")
        assert await call.read() == b"last"
        assert (await call.code(), await call.details()) == (code, details)


async def test_each_stream_has_its_own_upstream_and_no_leftovers(tmp_path: Path):
    seen: list[list[bytes]] = []
    gone = asyncio.Event()

    async def record(requests: AsyncIterator[bytes], context: Any) -> None:
        mine: list[bytes] = []
        seen.append(mine)
        try:
            async for request in requests:
                mine.append(request)
                await context.write(b"ok")
        finally:
            gone.set()

    async with relayed(tmp_path, record) as channel:
        first = open_stream(channel)
        await first.write(b"one")
        assert await first.read() == b"ok"
        first.cancel()
        async with asyncio.timeout(60):
            await gone.wait()
        second = open_stream(channel)
        await second.write(b"two")
        assert await second.read() == b"ok"
    assert seen == [[b"one"], [b"two"]]


async def test_a_client_that_only_writes_is_always_read(tmp_path: Path):
    """With a bound on requests, client and server would wait for each other to read."""
    let_go = asyncio.Event()

    async def stubborn(requests: AsyncIterator[bytes], context: Any) -> None:
        await let_go.wait()
        count = 0
        async for _request in requests:
            count += 1
            if count == 300:
                await context.write(b"%d" % count)

    async with relayed(tmp_path, stubborn) as channel:
        call = open_stream(channel)
        async with asyncio.timeout(60):
            for _ in range(300):  # 30 MB, far above every window of HTTP/2
                await call.write(b"x" * 100_000)
        let_go.set()
        assert await call.read() == b"300"


async def test_a_client_that_does_not_read_holds_back_its_server(tmp_path: Path):
    """One response under way at most: the rest waits where it can still be replaced."""
    written = 0

    async def flood(_requests: AsyncIterator[bytes], context: Any) -> None:
        nonlocal written
        for _ in range(1000):
            await context.write(b"x" * 1_000_000)
            written += 1

    async with relayed(tmp_path, flood) as channel:
        call = open_stream(channel)
        await call.write(b"go")
        stuck = await eventually_still(lambda: written)
        assert stuck < 100
        assert len(await call.read()) == 1_000_000


async def eventually_still(value: Callable[[], int]) -> int:
    """The value once it has not moved for ten looks in a row, and is not the first one."""
    looks: list[int] = []

    def still() -> bool:
        looks.append(value())
        return len(looks) > 10 and len(set(looks[-10:])) == 1 and looks[-1] > 0

    await eventually(still)
    return looks[-1]


async def test_a_stream_opened_before_discovery_is_there_is_served_when_it_comes(tmp_path: Path):
    address = f"unix:{tmp_path / 'upstream.sock'}"
    listen = bootstrap.UnixSocket(str(tmp_path / "xds.sock"))
    relaying = relay.Relay(
        listen=listen,
        upstream=bootstrap.parse_address(address),
        observer=observation.Observer(),
    )

    async def answer(_requests: AsyncIterator[bytes], context: Any) -> None:
        await context.write(b"here")

    async with relaying.serving(), grpc.aio.insecure_channel(str(listen)) as channel:
        call = open_stream(channel)
        await call.write(b"early")
        upstream = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(answer)
        upstream.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {SOTW: handler}),)
        )
        upstream.add_insecure_port(address)
        await upstream.start()
        try:
            async with asyncio.timeout(60):
                assert await call.read() == b"here"
        finally:
            await upstream.stop(grace=None)
