# SPDX-License-Identifier: Apache-2.0
"""A discovery server inside the test's own process, and a delta client that speaks raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping

import grpc
import pytest

from pilothouse.adapters import telemetry
from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.api.status.v1alpha1 import status_service_pb2, status_service_pb2_grpc
from pilothouse.xds import types
from pilothouse_discovery import app, settings
from tests.support import waiting
from tests.support.agent import free_port

_METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"


@dataclasses.dataclass(slots=True)
class Running:
    """A discovery server and how to ask it."""

    server: app.Discovery
    address: str
    http: str
    folder: pathlib.Path
    stop: asyncio.Event

    async def statuses(self, kind: str = "") -> dict[str, status_service_pb2.TypeStatus]:
        """Object statuses by name."""
        async with grpc.aio.insecure_channel(self.address) as channel:
            stub = status_service_pb2_grpc.StatusServiceStub(channel)
            answer = await stub.ListObjectStatuses(
                status_service_pb2.ListObjectStatusesRequest(kind=kind)
            )
        return {one.object.name: one.status for one in answer.objects}


class Proxy:
    """A delta client as an Envoy is: all clusters and listeners, then what they refer to."""

    def __init__(
        self, address: str, node_id: str, *, labels: Mapping[str, str] | None = None
    ) -> None:
        # A connection of its own, as an Envoy has: channels to one address share one otherwise.
        self._channel = grpc.aio.insecure_channel(
            address, options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self._node = base_pb2.Node(id=node_id)
        if labels:
            self._node.metadata.update({"LABELS": dict(labels)})
        self.resources: dict[str, dict[str, bytes]] = {}
        self.order: list[str] = []
        self.refuse: Callable[[str], str] = lambda _url: ""
        self.withhold: set[str] = set()
        self._withheld: list[discovery_pb2.DeltaDiscoveryResponse] = []
        self._call: grpc.aio.StreamStreamCall[bytes, bytes] | None = None
        self._turn = asyncio.Lock()
        self.ended: grpc.StatusCode | None = None

    async def open(self) -> None:
        """Open the stream and ask for clusters and listeners."""
        self._call = self._channel.stream_stream(_METHOD)()
        await self.ask(types.CLUSTER.type_url, node=True)
        await self.ask(types.LISTENER.type_url)

    async def ask(self, url: str, *names: str, node: bool = False) -> None:
        """Subscribe."""
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=url, resource_names_subscribe=names)
        if node:
            request.node.CopyFrom(self._node)
        await self.write(request)

    async def write(self, request: discovery_pb2.DeltaDiscoveryRequest) -> None:
        """Send a request, after those that are being sent: gRPC takes one at a time."""
        assert self._call is not None
        async with self._turn:
            await self._call.write(request.SerializeToString())  # type: ignore[arg-type]

    async def run(self) -> None:
        """Take responses until the stream ends."""
        assert self._call is not None
        try:
            while isinstance(raw := await self._call.read(), bytes):
                response = discovery_pb2.DeltaDiscoveryResponse.FromString(raw)
                self.order.append(response.type_url)
                if response.type_url in self.withhold:
                    self._withheld.append(response)
                else:
                    await self._answer(response)
        except grpc.aio.AioRpcError as error:
            self.ended = error.code()

    async def release(self) -> None:
        """Acknowledge what was withheld."""
        self.withhold.clear()
        withheld, self._withheld = self._withheld, []
        for response in withheld:
            await self._answer(response)

    async def _answer(self, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        url = response.type_url
        answer = discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=response.nonce)
        reason = self.refuse(url)
        if reason:
            answer.error_detail.message = reason
        else:
            held = self.resources.setdefault(url, {})
            held.update({one.name: one.resource.value for one in response.resources})
            for name in response.removed_resources:
                held.pop(name, None)
        await self.write(answer)

    def names(self, kind: types.ResourceType) -> set[str]:
        """Names held of a type."""
        return set(self.resources.get(kind.type_url, {}))

    async def close(self) -> None:
        """Go away."""
        await self._channel.close()


@contextlib.asynccontextmanager
async def connected(
    address: str, node_id: str, *, labels: Mapping[str, str] | None = None
) -> AsyncIterator[Proxy]:
    """A proxy that is connected inside the block."""
    proxy = Proxy(address, node_id, labels=labels)
    await proxy.open()
    task = asyncio.create_task(proxy.run())
    try:
        yield proxy
    finally:
        await proxy.close()
        await asyncio.wait((task,))


@contextlib.asynccontextmanager
async def serving(
    folder: pathlib.Path,
    *,
    sources: tuple[str, ...] = (),
    tracing: telemetry.Telemetry | None = None,
    **more: object,
) -> AsyncIterator[Running]:
    """Discovery inside the block; its spans go to ``tracing``, or nowhere."""
    port, http = free_port(), f"127.0.0.1:{free_port()}"
    chosen = settings.Settings(
        config=folder,
        grpc_address=f"127.0.0.1:{port}",
        http_address=http,
        source=sources,
        shutdown_grace=0.2,
        **more,  # type: ignore[arg-type]
    )
    server = app.Discovery(chosen, tracing or telemetry.Telemetry.off())
    stop = asyncio.Event()
    task = asyncio.create_task(server.run(stop))
    try:
        running = Running(server, f"127.0.0.1:{port}", http, folder, stop)
        await waiting.eventually(lambda: server.engine.world is not None or task.done())
        yield running
    finally:
        stop.set()
        await task


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with one service of two versions."""
    (tmp_path / "reviews.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: reviews}\n"
        "spec: {selector: {app: reviews}, ports: [{name: http, port: 9080}]}\n"
        + "".join(
            f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: reviews-{v}, "
            f"labels: {{app: reviews, version: {v}}}}}\n"
            "spec: {containers: [{name: app, ports: [{containerPort: 9080}]}]}\n"
            f"status: {{podIP: 10.0.0.{n}}}\n"
            for n, v in ((1, "v1"), (2, "v2"))
        )
    )
    (tmp_path / "rule.yaml").write_text(rule("v1"))
    return tmp_path


def rule(version: str) -> str:
    """A rule that sends everything to one version."""
    return (
        "apiVersion: pilothouse.dev/v1alpha1\nkind: RouteRule\nmetadata: {name: reviews}\n"
        "spec:\n  parents: [{service: reviews}]\n  http:\n"
        f"  - destinations: [{{service: reviews, labels: {{version: {version}}}}}]\n"
    )
