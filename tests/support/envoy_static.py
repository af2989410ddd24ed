# SPDX-License-Identifier: Apache-2.0
"""A snapshot as one static Envoy: for `--mode validate`, and to send real requests through.

What would come over xDS is put where it is used: endpoints into clusters, routes into listeners,
certificates beside them. Everything else is the snapshot's own. A listener of port 0 gets a free
port, which `RunningEnvoy.port` tells.
"""

import dataclasses
import functools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import aiohttp
from google.protobuf import message, struct_pb2

from pilothouse.adapters import process
from pilothouse.api.envoy.config.bootstrap.v3 import bootstrap_pb2
from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.core.v3 import address_pb2, extension_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.overload.v3 import overload_pb2
from pilothouse.api.envoy.config.route.v3 import route_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.api.envoy.extensions.resource_monitors.downstream_connections.v3 import (
    downstream_connections_pb2,
)
from pilothouse.api.envoy.extensions.transport_sockets.quic.v3 import quic_transport_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2
from pilothouse.envoy import wire
from pilothouse.xds import resources, types
from tests.support import waiting

M = TypeVar("M", bound=message.Message)

_MESSAGES: Final[dict[str, type[message.Message]]] = {
    types.CLUSTER.type_url: cluster_pb2.Cluster,
    types.ENDPOINT.type_url: endpoint_pb2.ClusterLoadAssignment,
    types.LISTENER.type_url: listener_pb2.Listener,
    types.ROUTE.type_url: route_pb2.RouteConfiguration,
    types.SECRET.type_url: secret_pb2.Secret,
    types.EXTENSION.type_url: extension_pb2.TypedExtensionConfig,
}


def messages(snapshot: resources.Snapshot, kind: types.ResourceType) -> list[message.Message]:
    """The resources of a type, read back from their bytes, in name order."""
    read = _MESSAGES[kind.type_url].FromString
    return [read(each.body) for each in snapshot.resources(kind.type_url).values()]


def bootstrap(snapshot: resources.Snapshot, *, admin: Path) -> bootstrap_pb2.Bootstrap:
    """An Envoy that holds all of a snapshot from the start; its admin page is a Unix socket.

    LookupError when a listener or cluster needs a resource that the snapshot lacks.
    """
    spans_at_once = struct_pb2.Struct()
    spans_at_once.update(
        {"tracing": {"opentelemetry": {"flush_interval_ms": 50, "min_flush_spans": 1}}}
    )
    limit = downstream_connections_pb2.DownstreamConnectionsConfig(
        max_active_downstream_connections=10_000
    )
    return bootstrap_pb2.Bootstrap(
        admin=bootstrap_pb2.Admin(
            address=address_pb2.Address(pipe=address_pb2.Pipe(path=str(admin)))
        ),
        layered_runtime=bootstrap_pb2.LayeredRuntime(
            layers=[bootstrap_pb2.RuntimeLayer(name="test", static_layer=spans_at_once)]
        ),
        overload_manager=overload_pb2.OverloadManager(
            resource_monitors=[
                overload_pb2.ResourceMonitor(
                    name="envoy.resource_monitors.global_downstream_max_connections",
                    typed_config=wire.packed(limit),
                )
            ]
        ),
        static_resources=bootstrap_pb2.Bootstrap.StaticResources(
            clusters=[
                _cluster(snapshot, name) for name in snapshot.resources(types.CLUSTER.type_url)
            ],
            listeners=[
                _listener(snapshot, name) for name in snapshot.resources(types.LISTENER.type_url)
            ],
            secrets=[
                secret
                for secret in messages(snapshot, types.SECRET)
                if isinstance(secret, secret_pb2.Secret)
            ],
        ),
    )


@dataclasses.dataclass(slots=True)
class RunningEnvoy:
    """An Envoy that answers."""

    admin: aiohttp.ClientSession
    ports: dict[str, int]
    """Listener to the port that it got."""
    log: Path

    def url(self, listener: str, path: str = "/") -> str:
        """Where a listener is."""
        return f"http://127.0.0.1:{self.ports[listener]}{path}"

    async def ask(self, path: str) -> str:
        """A page of its admin interface."""
        async with self.admin.get(f"http://admin{path}") as answer:
            return await answer.text()

    async def counter(self, name: str) -> int:
        """A counter or gauge; 0 when there is none."""
        listed = json.loads(await self.ask("/stats?format=json"))["stats"]
        return next((each["value"] for each in listed if each.get("name") == name), 0)


@asynccontextmanager
async def running(snapshot: resources.Snapshot) -> AsyncIterator[RunningEnvoy]:
    """A real Envoy with a snapshot, until the block ends; AssertionError with its log otherwise."""
    async with started(lambda admin: bootstrap(snapshot, admin=admin)) as envoy:
        yield envoy


@asynccontextmanager
async def started(
    wanted: Callable[[Path], bootstrap_pb2.Bootstrap],
) -> AsyncIterator[RunningEnvoy]:
    """A real Envoy with a bootstrap, which is told the socket of its admin page."""
    folder = Path(tempfile.mkdtemp(prefix="envoy-"))  # short: a Unix socket's path has 107 bytes
    try:
        config, socket, log = folder / "envoy.pb", folder / "admin", folder / "log"
        config.write_bytes(wire.encode(wanted(socket)))
        options = ("--disable-hot-restart", "--concurrency", "1", "-l", "warning")
        with log.open("wb") as output:
            child = process.Supervisor(
                (str(process.find_envoy()), "-c", str(config), *options), output=output.fileno()
            )
            await child.start()
        try:
            connector = aiohttp.UnixConnector(path=str(socket))
            async with aiohttp.ClientSession(connector=connector) as session:
                envoy = RunningEnvoy(admin=session, ports={}, log=log)
                ready: Callable[[], Awaitable[bool]] = functools.partial(_ready, envoy, child)
                live: bool = await waiting.eventually(ready, what="Envoy is ready")
                assert live
                envoy.ports.update(await _ports(envoy))
                yield envoy
        except AssertionError as error:
            error.add_note(log.read_text())
            raise
        finally:
            await child.stop(grace=5)
    finally:
        shutil.rmtree(folder)


async def _ready(envoy: RunningEnvoy, child: process.Supervisor) -> bool:
    if child.returncode is not None:
        raise RuntimeError(f"Envoy ended with {child.returncode}:\n{envoy.log.read_text()}")
    try:
        return (await envoy.ask("/ready")).strip() == "LIVE"
    except aiohttp.ClientError:
        return False


async def _ports(envoy: RunningEnvoy) -> dict[str, int]:
    listed = json.loads(await envoy.ask("/listeners?format=json"))["listener_statuses"]
    return {each["name"]: each["local_address"]["socket_address"]["port_value"] for each in listed}


def _read(snapshot: resources.Snapshot, kind: types.ResourceType, name: str, made: type[M]) -> M:
    found = snapshot.get(kind.type_url, name)
    if found is None:
        raise LookupError(f"the snapshot has no {kind.short} resource {name!r}")
    return made.FromString(found.body)


def _cluster(snapshot: resources.Snapshot, name: str) -> cluster_pb2.Cluster:
    cluster = _read(snapshot, types.CLUSTER, name, cluster_pb2.Cluster)
    if cluster.type == cluster_pb2.Cluster.EDS:
        cluster.ClearField("eds_cluster_config")
        cluster.type = cluster_pb2.Cluster.STATIC
        cluster.load_assignment.CopyFrom(
            _read(snapshot, types.ENDPOINT, name, endpoint_pb2.ClusterLoadAssignment)
        )
    context = tls_pb2.UpstreamTlsContext()
    if cluster.transport_socket.typed_config.Unpack(context):
        common = context.common_tls_context
        wanted = [*common.tls_certificate_sds_secret_configs]
        if common.HasField("combined_validation_context"):
            wanted.append(common.combined_validation_context.validation_context_sds_secret_config)
        for secret in wanted:
            _read(snapshot, types.SECRET, secret.name, secret_pb2.Secret)
            secret.ClearField("sds_config")
        cluster.transport_socket.typed_config.CopyFrom(wire.packed(context))
    return cluster


def _listener(snapshot: resources.Snapshot, name: str) -> listener_pb2.Listener:
    listener = _read(snapshot, types.LISTENER, name, listener_pb2.Listener)
    for chain in listener.filter_chains:
        for each in chain.filters:
            if each.HasField("config_discovery"):
                found = _read(
                    snapshot, types.EXTENSION, each.name, extension_pb2.TypedExtensionConfig
                )
                each.typed_config.CopyFrom(found.typed_config)
            manager = http_connection_manager_pb2.HttpConnectionManager()
            if each.typed_config.Unpack(manager):
                routes = manager.rds.route_config_name
                manager.route_config.CopyFrom(
                    _read(snapshot, types.ROUTE, routes, route_pb2.RouteConfiguration)
                )
                # What RDS does by itself: a cluster may be missing, its requests are answered.
                manager.route_config.validate_clusters.value = False
                each.typed_config.CopyFrom(wire.packed(manager))
        socket = chain.transport_socket
        context = tls_pb2.DownstreamTlsContext()
        quic = quic_transport_pb2.QuicDownstreamTransport()
        if socket.typed_config.Unpack(context):
            _without_sds(snapshot, context)
            socket.typed_config.CopyFrom(wire.packed(context))
        elif socket.typed_config.Unpack(quic):
            _without_sds(snapshot, quic.downstream_tls_context)
            socket.typed_config.CopyFrom(wire.packed(quic))
    return listener


def _without_sds(snapshot: resources.Snapshot, context: tls_pb2.DownstreamTlsContext) -> None:
    common = context.common_tls_context
    named = [*common.tls_certificate_sds_secret_configs]
    if common.HasField("combined_validation_context"):
        named.append(common.combined_validation_context.validation_context_sds_secret_config)
    for secret in named:
        _read(snapshot, types.SECRET, secret.name, secret_pb2.Secret)
        secret.ClearField("sds_config")
