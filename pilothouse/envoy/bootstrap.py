# SPDX-License-Identifier: Apache-2.0
"""The bootstrap of an Envoy: who it is, where its configuration comes from, what never changes.

Everything else an Envoy is given arrives over ADS. Equal parameters give equal bytes, so a changed
bootstrap means that somebody changed a parameter. What the node's metadata says is read by
discovery: its keys are an agreement of the two.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from typing import Final

from google.protobuf import any_pb2, duration_pb2, json_format, message, struct_pb2

from pilothouse.api.envoy.config.bootstrap.v3 import bootstrap_pb2
from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.core.v3 import (
    address_pb2,
    backoff_pb2,
    base_pb2,
    config_source_pb2,
    grpc_service_pb2,
    protocol_pb2,
)
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from pilothouse.api.envoy.config.metrics.v3 import stats_pb2
from pilothouse.api.envoy.config.overload.v3 import overload_pb2
from pilothouse.api.envoy.extensions.resource_monitors.downstream_connections.v3 import (
    downstream_connections_pb2,
)
from pilothouse.api.envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from pilothouse.api.envoy.type.matcher.v3 import string_pb2
from pilothouse.envoy import names
from pilothouse.model import keys, mapped, proxy, services
from pilothouse.routing import peers

XDS_CLUSTER: Final = "pilothouse-xds"
PEERS_CLUSTER: Final = "pilothouse-peers"
"""The proxy and its replicas. Nothing is sent there: Envoy weighs zones by it."""
_PROTOCOL_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_CONNECTION_LIMIT: Final = "envoy.resource_monitors.global_downstream_max_connections"


@dataclasses.dataclass(frozen=True, slots=True)
class HostPort:
    """A TCP address."""

    host: str
    port: int

    def __str__(self) -> str:
        """HOST:PORT, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclasses.dataclass(frozen=True, slots=True)
class UnixSocket:
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        """As gRPC writes it."""
        return f"unix:{self.path}"


Address = HostPort | UnixSocket

_MAX_SOCKET_PATH: Final = 107
"""What the kernel's sun_path holds, less its terminating zero."""


def parse_address(text: str) -> Address:
    """Read ``HOST:PORT``, ``[IPV6]:PORT``, ``unix:PATH`` or an absolute path, else ValueError."""
    path = text.removeprefix("unix:")
    if path != text or text.startswith("/"):
        if not 0 < len(path.encode()) <= _MAX_SOCKET_PATH:
            msg = f"{text!r}: the path of a Unix socket has 1 to {_MAX_SOCKET_PATH} bytes"
            raise ValueError(msg)
        return UnixSocket(path)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        msg = f"{text!r} is neither HOST:PORT nor unix:PATH"
        raise ValueError(msg)
    return HostPort(host, int(port))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapParameters:
    """All that a bootstrap depends on. Times are seconds."""

    node_id: proxy.NodeId
    cluster: str
    """The node's cluster: the service it belongs to, as traces and statistics call it."""
    version: str
    """Of Pilothouse; told to discovery."""
    discovery: Address
    """Where ADS is served: the agent's relay, or discovery itself."""
    admin: Address
    """Where Envoy's admin page listens: loopback or a Unix socket, never what others can reach."""
    labels: keys.Labels = ()
    locality: services.Locality = services.Locality()
    interception: proxy.Interception = proxy.Interception.EXPLICIT
    bind_address: str = proxy.DEFAULT_BIND_ADDRESS
    application_address: str = proxy.DEFAULT_APPLICATION_ADDRESS
    outbound_port: int = proxy.DEFAULT_OUTBOUND_PORT
    mapped: tuple[mapped.MappedPort, ...] = ()
    delta: bool = True
    """Ask for changes only (DELTA_GRPC) instead of whole types (GRPC)."""
    connect_timeout: float = 5.0
    initial_fetch_timeout: float = 15.0
    """How long Envoy's start waits for the first answer to each type; 0 waits for ever."""
    stats_prefixes: tuple[str, ...] = ()
    """Keep only statistics whose names begin so; empty keeps all."""
    max_connections: int = 50_000
    """Connections from clients, over all listeners; more are refused. The admin page is exempt."""
    tracing_flush: float | None = None
    """Send spans this often, each as soon as it ends; None is Envoy's own pace, 5 s or 5 spans."""
    log_json: bool = False
    """Envoy's own log as a JSON object a line."""
    load_reports: bool = False
    """Report to discovery how much is asked of each cluster: 100 bytes a cluster, asked or not, as
    often as discovery says."""


def build(parameters: BootstrapParameters) -> bootstrap_pb2.Bootstrap:
    """The bootstrap that these parameters ask for."""
    bootstrap = bootstrap_pb2.Bootstrap(
        node=_node(parameters),
        static_resources=bootstrap_pb2.Bootstrap.StaticResources(
            clusters=[_xds_cluster(parameters)]
        ),
        dynamic_resources=_dynamic_resources(parameters),
        admin=bootstrap_pb2.Admin(
            address=_address(parameters.admin), ignore_global_conn_limit=True
        ),
        overload_manager=_connection_limit(parameters),
        layered_runtime=_runtime(parameters),
        # A cluster without traffic costs no statistics: of a thousand clusters, most of the memory.
        deferred_stat_options=bootstrap_pb2.Bootstrap.DeferredStatOptions(
            enable_deferred_creation_stats=True
        ),
    )
    if parameters.locality != services.Locality():
        bootstrap.cluster_manager.local_cluster_name = PEERS_CLUSTER
        bootstrap.static_resources.clusters.append(_peers_cluster(parameters))
    if parameters.load_reports:
        bootstrap.cluster_manager.load_stats_config.CopyFrom(_load_reports())
    if parameters.stats_prefixes:
        bootstrap.stats_config.CopyFrom(_stats(parameters.stats_prefixes))
    if parameters.log_json:
        bootstrap.application_log_config.CopyFrom(_json_log())
    return bootstrap


def to_json(bootstrap: bootstrap_pb2.Bootstrap) -> str:
    """The bootstrap as a file for Envoy: JSON, which is YAML too, with sorted keys."""
    content = json_format.MessageToDict(bootstrap, preserving_proto_field_name=True)
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _node(parameters: BootstrapParameters) -> base_pb2.Node:
    locality = parameters.locality
    return base_pb2.Node(
        id=str(parameters.node_id),
        cluster=parameters.cluster,
        metadata=_metadata(parameters),
        locality=base_pb2.Locality(
            region=locality.region, zone=locality.zone, sub_zone=locality.sub_zone
        ),
    )


def _metadata(parameters: BootstrapParameters) -> struct_pb2.Struct:
    """What discovery reads; a value that equals the default is left out."""
    content: dict[str, object] = {
        "ROLE": str(parameters.node_id.role),
        "NAMESPACE": parameters.node_id.namespace,
        "PILOTHOUSE_VERSION": parameters.version,
    }
    if parameters.labels:
        content["LABELS"] = dict(sorted(parameters.labels))
    optional: tuple[tuple[str, object, object], ...] = (
        ("INTERCEPTION", str(parameters.interception), str(proxy.Interception.EXPLICIT)),
        ("BIND_ADDRESS", parameters.bind_address, proxy.DEFAULT_BIND_ADDRESS),
        ("APPLICATION_ADDRESS", parameters.application_address, proxy.DEFAULT_APPLICATION_ADDRESS),
        ("OUTBOUND_PORT", parameters.outbound_port, proxy.DEFAULT_OUTBOUND_PORT),
        ("MAPPED_PORTS", [str(one) for one in parameters.mapped], []),
    )
    content.update({key: value for key, value, default in optional if value != default})
    return _struct(content)


def _struct(content: dict[str, object]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    json_format.ParseDict(content, struct)
    return struct


def _xds_cluster(parameters: BootstrapParameters) -> cluster_pb2.Cluster:
    address = _address(parameters.discovery)
    options = http_protocol_options_pb2.HttpProtocolOptions(
        explicit_http_config=http_protocol_options_pb2.HttpProtocolOptions.ExplicitHttpConfig(
            http2_protocol_options=protocol_pb2.Http2ProtocolOptions(
                # A peer that died without a word is noticed, and the stream opened anew.
                connection_keepalive=protocol_pb2.KeepaliveSettings(
                    interval=_duration(30), timeout=_duration(5)
                )
            )
        )
    )
    endpoint = endpoint_components_pb2.LbEndpoint(
        endpoint=endpoint_components_pb2.Endpoint(address=address)
    )
    return cluster_pb2.Cluster(
        name=XDS_CLUSTER,
        type=_cluster_type(parameters.discovery),
        connect_timeout=_duration(parameters.connect_timeout),
        load_assignment=endpoint_pb2.ClusterLoadAssignment(
            cluster_name=XDS_CLUSTER,
            endpoints=[endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=[endpoint])],
        ),
        typed_extension_protocol_options={_PROTOCOL_OPTIONS: _any(options)},
    )


def _peers_cluster(parameters: BootstrapParameters) -> cluster_pb2.Cluster:
    """Envoy wants this one from its bootstrap; the endpoints come from discovery."""
    return cluster_pb2.Cluster(
        name=PEERS_CLUSTER,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(
            eds_config=_over_ads(parameters), service_name=names.cluster(peers.KEY)
        ),
    )


def _cluster_type(address: Address) -> cluster_pb2.Cluster.DiscoveryType.ValueType:
    if isinstance(address, UnixSocket):
        return cluster_pb2.Cluster.STATIC
    try:
        ipaddress.ip_address(address.host)
    except ValueError:
        return cluster_pb2.Cluster.STRICT_DNS
    return cluster_pb2.Cluster.STATIC


def _dynamic_resources(parameters: BootstrapParameters) -> bootstrap_pb2.Bootstrap.DynamicResources:
    api = config_source_pb2.ApiConfigSource
    back_off = backoff_pb2.BackoffStrategy(base_interval=_duration(0.2), max_interval=_duration(10))
    grpc = grpc_service_pb2.GrpcService.EnvoyGrpc(
        cluster_name=XDS_CLUSTER,
        # Full jitter comes with it. Envoy's own maximum, 30 s, is long for a mesh coming back.
        retry_policy=base_pb2.RetryPolicy(retry_back_off=back_off),
    )
    over_ads = _over_ads(parameters)
    return bootstrap_pb2.Bootstrap.DynamicResources(
        ads_config=config_source_pb2.ApiConfigSource(
            api_type=api.DELTA_GRPC if parameters.delta else api.GRPC,
            transport_api_version=config_source_pb2.V3,
            set_node_on_first_message_only=True,
            grpc_services=[grpc_service_pb2.GrpcService(envoy_grpc=grpc)],
        ),
        cds_config=over_ads,
        lds_config=over_ads,
    )


def _load_reports() -> config_source_pb2.ApiConfigSource:
    grpc = grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=XDS_CLUSTER)
    return config_source_pb2.ApiConfigSource(
        api_type=config_source_pb2.ApiConfigSource.GRPC,
        transport_api_version=config_source_pb2.V3,
        grpc_services=[grpc_service_pb2.GrpcService(envoy_grpc=grpc)],
    )


def _over_ads(parameters: BootstrapParameters) -> config_source_pb2.ConfigSource:
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(),
        resource_api_version=config_source_pb2.V3,
        initial_fetch_timeout=_duration(parameters.initial_fetch_timeout),
    )


def _connection_limit(parameters: BootstrapParameters) -> overload_pb2.OverloadManager:
    limit = downstream_connections_pb2.DownstreamConnectionsConfig(
        max_active_downstream_connections=parameters.max_connections
    )
    monitor = overload_pb2.ResourceMonitor(name=_CONNECTION_LIMIT, typed_config=_any(limit))
    return overload_pb2.OverloadManager(resource_monitors=[monitor])


def _runtime(parameters: BootstrapParameters) -> bootstrap_pb2.LayeredRuntime:
    # Envoy's own limit of 100 refuses a regular expression as small as /[a-z]{100}, and with it the
    # whole response; what is too large to be right is refused long before, by validation.
    content: dict[str, object] = {"re2": {"max_program_size": {"error_level": 32768}}}
    if parameters.tracing_flush is not None:
        interval = max(1, round(parameters.tracing_flush * 1000))
        content["tracing"] = {
            "opentelemetry": {"flush_interval_ms": interval, "min_flush_spans": 1}
        }
    layers = [bootstrap_pb2.RuntimeLayer(name="pilothouse", static_layer=_struct(content))]
    # The last layer wins: what an operator sets on the admin page while hunting a fault.
    layers.append(
        bootstrap_pb2.RuntimeLayer(
            name="admin", admin_layer=bootstrap_pb2.RuntimeLayer.AdminLayer()
        )
    )
    return bootstrap_pb2.LayeredRuntime(layers=layers)


def _stats(prefixes: tuple[str, ...]) -> stats_pb2.StatsConfig:
    patterns = [string_pb2.StringMatcher(prefix=prefix) for prefix in sorted(set(prefixes))]
    kept = string_pb2.ListStringMatcher(patterns=patterns)
    return stats_pb2.StatsConfig(stats_matcher=stats_pb2.StatsMatcher(inclusion_list=kept))


def _json_log() -> bootstrap_pb2.Bootstrap.ApplicationLogConfig:
    """The keys of our own log lines; `%j` is the message, escaped for JSON."""
    fields: dict[str, object] = {
        "event": "%j",
        "level": "%l",
        "logger": "envoy.%n",
        "service": "envoy",
        "timestamp": "%Y-%m-%dT%T.%f%z",
    }
    return bootstrap_pb2.Bootstrap.ApplicationLogConfig(
        log_format=bootstrap_pb2.Bootstrap.ApplicationLogConfig.LogFormat(
            json_format=_struct(fields)
        )
    )


def _address(address: Address) -> address_pb2.Address:
    if isinstance(address, UnixSocket):
        return address_pb2.Address(pipe=address_pb2.Pipe(path=address.path))
    socket = address_pb2.SocketAddress(address=address.host, port_value=address.port)
    return address_pb2.Address(socket_address=socket)


def _any(content: message.Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(content, deterministic=True)
    return packed


def _duration(seconds: float) -> duration_pb2.Duration:
    nanos = round(seconds * 1_000_000_000)
    return duration_pb2.Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)
