# SPDX-License-Identifier: Apache-2.0
"""Streams that come and go in hundreds while configuration changes leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from tests.support import fleet, waiting

_SERVICE = "/envoy.service.discovery.v3.AggregatedDiscoveryService"
_METHODS = (f"{_SERVICE}/DeltaAggregatedResources", f"{_SERVICE}/StreamAggregatedResources")
_STREAMS = 200
_GROWTH = 6_000_000
"""Bytes that the second and third hundreds of streams may add; one idle stream costs 40 KB."""


def _request(method: str, kind: str, *, node: int = -1, nonce: str = "") -> bytes:
    """The first or a later request for a type."""
    delta = method == _METHODS[0]
    message = discovery_pb2.DeltaDiscoveryRequest if delta else discovery_pb2.DiscoveryRequest
    made: Any = message(type_url=kind, response_nonce=nonce)
    if node >= 0:
        made.node.CopyFrom(
            base_pb2.Node(id=f"sidecar~10.0.0.1~client-{node}.default~cluster.local")
        )
    return bytes(made.SerializeToString())


def _response(method: str) -> Any:
    delta = method == _METHODS[0]
    return discovery_pb2.DeltaDiscoveryResponse if delta else discovery_pb2.DiscoveryResponse


async def _gone(call: Any, method: str) -> None:
    """Hang up at once."""
    del method
    call.cancel()


async def _goodbye(call: Any, method: str) -> None:
    """Say that there is nothing more to say, and wait for the end."""
    del method
    await call.done_writing()
    await _end(call)


async def _nonsense(call: Any, method: str) -> None:
    """Break the protocol, and wait for the end."""
    del method
    await call.write(b"\xff\xff\xff")
    await _end(call)


async def _silence(call: Any, method: str) -> None:
    """Read and never answer."""
    del method
    await call.read()
    call.cancel()


async def _conversation(call: Any, method: str) -> None:
    """Acknowledge the first responses, then hang up."""
    for _ in range(4):
        reply = _response(method).FromString(await call.read())
        await call.write(_request(method, reply.type_url, nonce=reply.nonce))
    call.cancel()


async def _end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


_WAYS = (_gone, _goodbye, _nonsense, _silence, _conversation)


async def _client(channel: grpc.aio.Channel, number: int, chance: random.Random) -> None:
    """One stream that ends in one of the ways in which streams end."""
    method, way = chance.choice(_METHODS), chance.choice(_WAYS)
    call: Any = channel.stream_stream(method)()
    try:
        await call.write(_request(method, fleet.CDS, node=number))
        await call.write(_request(method, fleet.LDS))
        async with asyncio.timeout(60):
            await way(call, method)
    except TimeoutError as error:
        raise AssertionError(f"{way.__name__} by {method} does not end") from error
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # the stream ended first
    except asyncio.CancelledError:
        if not call.cancelled():
            raise


async def _round(address: str, seed: int) -> None:
    chance = random.Random(seed)
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(60):
        await asyncio.gather(
            *(_client(channel, number, chance) for number in range(_STREAMS)),
        )


@contextlib.asynccontextmanager
async def _changing(mesh: fleet.Fleet) -> AsyncIterator[None]:
    """New rules, one after another, while the block runs."""
    built = 0

    async def change() -> None:
        nonlocal built
        for number in itertools.count(2):
            before = mesh.discovery.engine.world
            weights = {"v1": number, f"v{number % 3}": number}
            await mesh.apply({"rule.yaml": fleet.rule("app", weights)}, wait=False)
            await waiting.eventually(lambda: mesh.discovery.engine.world is not before)  # noqa: B023
            built += 1

    task = asyncio.create_task(change())
    try:
        yield
        assert not task.done(), task.exception()
        assert built > 5
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _resident() -> int:
    gc.collect()
    pages = re.search(r"^VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert pages is not None
    return int(pages[1]) * 1024


@pytest.fixture
async def mesh() -> AsyncIterator[fleet.Fleet]:
    """Discovery with a service of two versions."""
    pods = [fleet.pod("app", version, 8000 + n) for n, version in enumerate(("v0", "v1", "v2"))]
    files = {
        "app.yaml": fleet.join(fleet.service("app"), *pods),
        "rule.yaml": fleet.rule("app", {"v1": 1}),
    }
    async with fleet.fleet(files) as made:
        await made.start()
        yield made


async def test_streams_that_come_and_go_leave_nothing_behind(mesh: fleet.Fleet) -> None:
    """No exception, no client, no memory, whichever way each of them ends."""
    mishaps: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mishaps.append(context))
    sizes = []
    with structlog.testing.capture_logs() as logged:
        async with _changing(mesh):
            for seed in range(4):
                await _round(mesh.grpc, seed)
                await waiting.eventually(lambda: len(mesh.discovery.clients) == 0)
                sizes.append(_resident())
        counts = [
            line
            for line in (await mesh.get("/metrics")).splitlines()
            if line.startswith("pilot_xds{")
        ]
    assert counts == ['pilot_xds{role="sidecar"} 0.0']
    assert mishaps == []
    assert [one for one in logged if one["log_level"] in ("error", "critical")] == []
    assert sizes[-1] - sizes[0] < _GROWTH, sizes
