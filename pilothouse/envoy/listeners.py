# SPDX-License-Identifier: Apache-2.0
"""Listeners: a port, TLS if it has certificates, and the HTTP connection manager behind it.

Two kinds of listeners meet two kinds of peers:

============================  =============================  =====================================
what                          at the edge (gateways)         beside an application (sidecars)
============================  =============================  =====================================
X-Forwarded-For               the client's address is added  kept as it is
X-Forwarded-Proto             set from the connection        kept
X-Request-Id                  always new                     kept, new when missing
X-Envoy-* of the request      removed                        removed, all that would steer Envoy
x-client-trace-id             forces no trace                forces a trace
Server of the response        ``envoy``                      the application's
nothing moves on a stream     ended after five minutes       the application's affair
headers are slow to come      ended after ten seconds        the application's affair
HTTP/2                        100 streams, small windows     Envoy's defaults
============================  =============================  =====================================

Everywhere: paths are normalised and slashes merged before they are matched, and sent on as they
were matched; an escaped slash (``%2F``) stays as it is. A trailing dot of the host is removed.
WebSockets pass. There is no limit on a whole request but its route's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.protobuf import duration_pb2, wrappers_pb2

from pilothouse.api.envoy.config.core.v3 import (
    base_pb2,
    grpc_service_pb2,
    protocol_pb2,
)
from pilothouse.api.envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from pilothouse.api.envoy.config.trace.v3 import http_tracer_pb2, opentelemetry_pb2
from pilothouse.api.envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import (
    common_pb2,
    secret_pb2,
    tls_pb2,
)
from pilothouse.api.envoy.type.v3 import percent_pb2
from pilothouse.envoy import filters, names, route_actions, wire
from pilothouse.routing import plan
from pilothouse.xds import resources, types

_Manager = http_connection_manager_pb2.HttpConnectionManager

_TRUE: Final = wrappers_pb2.BoolValue(value=True)
_DIRECTIONS: Final = {
    plan.Direction.INBOUND: base_pb2.INBOUND,
    plan.Direction.OUTBOUND: base_pb2.OUTBOUND,
}
_TLS_INSPECTOR: Final = listener_components_pb2.ListenerFilter(
    name="envoy.filters.listener.tls_inspector",
    typed_config=wire.packed(tls_inspector_pb2.TlsInspector()),
)
_TLS_HANDSHAKE_TIMEOUT: Final = duration_pb2.Duration(seconds=15)

_COMMON: Final = _Manager(
    normalize_path=_TRUE,
    merge_slashes=True,
    path_with_escaped_slashes_action=_Manager.KEEP_UNCHANGED,
    strip_trailing_host_dot=True,
    # internal_address_config is unset, which since Envoy 1.33 means that nobody is internal: an
    # address is no proof of who somebody is, and X-Forwarded-For less. So headers that steer
    # timeouts and retries are removed from every request. An empty message would not do: it means
    # the private networks.
    max_request_headers_kb=wrappers_pb2.UInt32Value(value=60),
    common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
        max_headers_count=wrappers_pb2.UInt32Value(value=100)
    ),
    delayed_close_timeout=duration_pb2.Duration(seconds=1),
)
_EDGE: Final = _Manager(
    use_remote_address=_TRUE,
    stream_idle_timeout=wire.duration(route_actions.STREAM_IDLE_TIMEOUT_MS),
    request_headers_timeout=duration_pb2.Duration(seconds=10),
    # What Envoy's guide for edge proxies says: memory that one client can take is bounded.
    http2_protocol_options=protocol_pb2.Http2ProtocolOptions(
        max_concurrent_streams=wrappers_pb2.UInt32Value(value=100),
        initial_stream_window_size=wrappers_pb2.UInt32Value(value=64 * 1024),
        initial_connection_window_size=wrappers_pb2.UInt32Value(value=1024 * 1024),
    ),
)
_SIDECAR: Final = _Manager(
    server_header_transformation=_Manager.PASS_THROUGH,
    stream_idle_timeout=duration_pb2.Duration(),  # 0: no limit, where unset would be five minutes
)


def message(listener: plan.Listener) -> listener_pb2.Listener:
    """The listener, under its own name.

    ``strip_port`` takes the port out of the Host header itself: applications and redirects do not
    see it then. Where the routes are at hand, ``routes.resource`` can ignore it instead.
    """
    chain = listener_components_pb2.FilterChain(
        filters=(
            listener_components_pb2.Filter(
                name="envoy.filters.network.http_connection_manager",
                typed_config=wire.packed(connection_manager(listener)),
            ),
        )
    )
    made = listener_pb2.Listener(
        name=listener.name,
        address=wire.address(listener.address, listener.port),
        traffic_direction=_DIRECTIONS[listener.direction],
    )
    if listener.certificates:
        made.listener_filters.append(_TLS_INSPECTOR)
        chain.transport_socket.CopyFrom(_tls(listener))
        chain.transport_socket_connect_timeout.CopyFrom(_TLS_HANDSHAKE_TIMEOUT)
    made.filter_chains.append(chain)
    return made


def connection_manager(
    listener: plan.Listener,
) -> http_connection_manager_pb2.HttpConnectionManager:
    """What happens to a request before its route is looked for."""
    made = _Manager(
        stat_prefix=listener.name,
        rds=http_connection_manager_pb2.Rds(
            config_source=wire.ADS, route_config_name=listener.route_configuration
        ),
    )
    made.MergeFrom(_COMMON)
    by_rules = listener.edge or listener.direction is plan.Direction.OUTBOUND
    made.http_filters.extend(_filters(listener))
    made.upgrade_configs.add(upgrade_type="websocket", filters=filters.UPGRADED if by_rules else ())
    made.MergeFrom(_EDGE if listener.edge else _SIDECAR)
    if listener.strip_port:
        made.strip_any_host_port = True
    if listener.tracing is not None:
        made.tracing.CopyFrom(_tracing(listener.tracing, edge=listener.edge))
    return made


def _filters(listener: plan.Listener) -> Sequence[http_connection_manager_pb2.HttpFilter]:
    if listener.edge:
        return filters.AT_EDGE
    if listener.direction is plan.Direction.OUTBOUND:
        return filters.BY_RULES
    return (filters.ROUTER,)


def resource(listener: plan.Listener) -> resources.Resource:
    """The listener as a resource for LDS; it refers to its routes, certificates and collector."""
    references = [(types.ROUTE.type_url, listener.route_configuration)]
    references.extend((types.SECRET.type_url, names.secret(key)) for key in listener.certificates)
    origins = set(listener.origins)
    if listener.tracing is not None:
        collector = names.cluster(listener.tracing.collector)
        references.append((types.CLUSTER.type_url, collector))
        origins.update(listener.tracing.origins)
    return resources.Resource.of(
        types.LISTENER.type_url,
        listener.name,
        wire.encode(message(listener)),
        references=tuple(sorted(set(references))),
        origins=tuple(sorted(origins)),
    )


def _tls(listener: plan.Listener) -> base_pb2.TransportSocket:
    """TLS 1.2 and newer; Envoy picks the certificate by SNI, else it takes the first."""
    context = tls_pb2.DownstreamTlsContext(
        common_tls_context=tls_pb2.CommonTlsContext(
            tls_params=common_pb2.TlsParameters(
                tls_minimum_protocol_version=common_pb2.TlsParameters.TLSv1_2
            ),
            alpn_protocols=("h2", "http/1.1"),
            tls_certificate_sds_secret_configs=[
                secret_pb2.SdsSecretConfig(name=names.secret(key), sds_config=wire.ADS)
                for key in listener.certificates
            ],
        )
    )
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.tls", typed_config=wire.packed(context)
    )


def _tracing(tracing: plan.Tracing, *, edge: bool) -> _Manager.Tracing:
    collector = tracing.collector
    # Envoy would send the cluster's name as :authority, and a bar is not allowed there.
    authority = (
        f"{collector.service.name}.{collector.service.namespace}" if collector.service else ""
    )
    exporter = opentelemetry_pb2.OpenTelemetryConfig(
        grpc_service=grpc_service_pb2.GrpcService(
            envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(
                cluster_name=names.cluster(collector), authority=authority or "collector"
            ),
            timeout=duration_pb2.Duration(seconds=10),
        ),
        service_name=tracing.service_name,
    )
    return _Manager.Tracing(
        # A client in the mesh may ask for a trace by x-client-trace-id, one outside may not.
        client_sampling=percent_pb2.Percent(value=0 if edge else 100),
        random_sampling=percent_pb2.Percent(value=tracing.sampling_percent),
        overall_sampling=percent_pb2.Percent(value=100),
        spawn_upstream_span=_TRUE,
        provider=http_tracer_pb2.Tracing.Http(
            name="envoy.tracers.opentelemetry", typed_config=wire.packed(exporter)
        ),
    )
