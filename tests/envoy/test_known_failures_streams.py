# SPDX-License-Identifier: Apache-2.0
"""Streams that other proxies end after some default time: here nothing but what a rule says does.

Nobody waits for minutes. That a limit is off, or how long it is, is read from a running Envoy's own
account of its configuration; that streams then outlive such a limit is shown with a short one in
its place: time has passed when a stream beside, for which it holds, has been ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from pilothouse.api.envoy.config.bootstrap.v3 import bootstrap_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.envoy import translate, wire
from pilothouse.model import services
from pilothouse.xds import resources
from tests.support import envoy_plans, envoy_static, meshes

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

SIDECAR, GATEWAY = "http-proxy", "gateway|0"
PORT = meshes.port(80, "grpc", services.AppProtocol.GRPC)
OBJECTS = (
    meshes.service("chat", PORT),
    meshes.service("brief", PORT),
    meshes.rule(
        "brief",
        "{parents: [{service: brief}], grpc: [{timeout: 300ms, destinations: [{service: chat}]}]}",
    ),
    meshes.gateway(
        "edge", "{selector: {app: edge}, listeners: [{name: http, port: 0, protocol: HTTP}]}"
    ),
    meshes.rule(
        "chat-edge", "{parents: [{gateway: edge}], grpc: [{destinations: [{service: chat}]}]}"
    ),
)


class Echo(grpc.GenericRpcHandler):
    """Any method: each message comes back, and the server never ends a stream."""

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        del handler_call_details

        async def answer(
            requests: AsyncIterator[bytes], _context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[bytes]:
            async for each in requests:
                yield each
            await asyncio.Event().wait()

        return grpc.stream_stream_rpc_method_handler(answer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def snapshots() -> AsyncIterator[dict[str, resources.Snapshot]]:
    """What a sidecar and a gateway hold, by the name of their listener."""
    server = grpc.aio.server(handlers=[Echo()])
    port = server.add_insecure_port(f"{envoy_plans.LOOPBACK}:0")
    await server.start()
    try:
        there = [meshes.endpoint(envoy_plans.LOOPBACK, port, "grpc")]
        mesh = meshes.mesh(*OBJECTS, endpoints={"chat": there})
        proxies = {
            SIDECAR: meshes.sidecar(bind_address=envoy_plans.LOOPBACK, outbound_port=0),
            GATEWAY: meshes.edge(bind_address=envoy_plans.LOOPBACK),
        }
        yield {
            name: translate.Translator().snapshot(meshes.planned(mesh, of), {})
            for name, of in proxies.items()
        }
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def stream(
    envoy: envoy_static.RunningEnvoy, listener: str, host: str
) -> AsyncIterator[grpc.aio.StreamStreamCall[bytes, bytes]]:
    """A stream to a service, over which one message went."""
    target = f"{envoy_plans.LOOPBACK}:{envoy.ports[listener]}"
    options = [("grpc.default_authority", host)]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        talk: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/chat.Chat/Talk"
        )
        call = talk(timeout=60)
        await echo(call)
        yield call
        call.cancel()


async def echo(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
    """A message goes there and comes back."""
    await call.write(b"ahoy")
    assert await call.read() == b"ahoy"


async def ended(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> grpc.StatusCode:
    """Wait until a stream on which nothing moves is ended; how."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call.read()
    return await call.code()


def found(value: Any, key: str) -> Iterator[Any]:
    """All that has a name, however deep in a JSON value."""
    if isinstance(value, dict):
        yield from (each for name, each in value.items() if name == key)
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from found(each, key)


@pytest.mark.parametrize(("listener", "idle"), [(SIDECAR, "0s"), (GATEWAY, "300s")])
async def test_no_limit_is_on_by_default(
    snapshots: dict[str, resources.Snapshot], listener: str, idle: str
) -> None:
    """No route but the one with a timeout has one; a gateway ends what does not move."""
    async with envoy_static.running(snapshots[listener]) as envoy:
        config = json.loads(await envoy.ask("/config_dump"))
    assert set(found(config, "stream_idle_timeout")) == {idle}
    for name in ("max_stream_duration", "request_timeout", "max_connection_duration"):
        assert list(found(config, name)) == [], name
    routes = [each for some in found(config, "routes") for each in some if "route" in each]
    timeouts = {each["name"]: each["route"]["timeout"] for each in routes}
    limited = {name for name, timeout in timeouts.items() if timeout != "0s"}
    assert timeouts
    assert limited == ({"RouteRule/default/brief/grpc/0"} if listener == SIDECAR else set())


async def test_a_stream_may_be_idle_as_long_as_it_likes_in_the_mesh(
    snapshots: dict[str, resources.Snapshot],
) -> None:
    """Others beside it are ended by the timeout of their rule, one after the other."""
    async with (
        envoy_static.running(snapshots[SIDECAR]) as envoy,
        stream(envoy, SIDECAR, "chat") as idle,
    ):
        for _ in range(3):
            async with stream(envoy, SIDECAR, "brief") as limited:
                await limited.done_writing()  # a timeout begins when the request is complete
                assert await ended(limited) is not grpc.StatusCode.OK
        await echo(idle)


async def test_a_stream_that_moves_lives_longer_than_the_limit_of_a_gateway(
    snapshots: dict[str, resources.Snapshot],
) -> None:
    """The limit is for streams on which nothing moves; here it is 300 ms in place of 300 s."""

    def shortened(admin: Path) -> bootstrap_pb2.Bootstrap:
        made = envoy_static.bootstrap(snapshots[GATEWAY], admin=admin)
        (listener,) = made.static_resources.listeners
        manager = http_connection_manager_pb2.HttpConnectionManager()
        (config,) = (each.typed_config for each in listener.filter_chains[0].filters)
        assert config.Unpack(manager)
        manager.stream_idle_timeout.CopyFrom(wire.duration(300))
        config.CopyFrom(wire.packed(manager))
        return made

    async with (
        envoy_static.started(shortened) as envoy,
        stream(envoy, GATEWAY, "chat.example") as busy,
    ):
        for _ in range(2):
            async with stream(envoy, GATEWAY, "chat.example") as idle:
                while not idle.done():
                    await echo(busy)
                assert await ended(idle) is not grpc.StatusCode.OK
        await echo(busy)
