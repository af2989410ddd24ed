# SPDX-License-Identifier: Apache-2.0
"""HTTP connection managers: what happens to a request before its route is looked for.

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
headers of a request          60 KB, 100 of them             the same; 96 KB, 200 on the way in
============================  =============================  =====================================

Everywhere: paths are normalised and slashes merged before they are matched, and sent on as they
were matched; an escaped slash (``%2F``) stays as it is. A trailing dot of the host is removed.
HTTP/1.0 is spoken, with a Host header.
WebSockets pass. There is no limit on a whole request but its route's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.protobuf import duration_pb2, wrappers_pb2

from pilothouse.api.envoy.config.core.v3 import grpc_service_pb2, protocol_pb2
from pilothouse.api.envoy.config.trace.v3 import http_tracer_pb2, opentelemetry_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.api.envoy.type.v3 import percent_pb2
from pilothouse.envoy import access_logs, filters, http3, names, route_actions, wire
from pilothouse.routing import plan

_Manager = http_connection_manager_pb2.HttpConnectionManager

_TRUE: Final = wrappers_pb2.BoolValue(value=True)

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
    # HTTP/1.0 is what many health checks and load generators speak; Envoy would answer 426.
    http_protocol_options=protocol_pb2.Http1ProtocolOptions(accept_http_10=True),
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
        allow_connect=True,
    ),
)
_SIDECAR: Final = _Manager(
    server_header_transformation=_Manager.PASS_THROUGH,
    # CONNECT and WebSockets over HTTP/2 (RFC 8441).
    http2_protocol_options=protocol_pb2.Http2ProtocolOptions(allow_connect=True),
    stream_idle_timeout=duration_pb2.Duration(),  # 0: no limit, where unset would be five minutes
)
_INBOUND: Final = _Manager(
    # The proxy of a client has passed the request on, with headers of its own and of its rules. One
    # that it could just take must not be too large here: over HTTP/2 the stream would be reset, and
    # the client told 503.
    max_request_headers_kb=wrappers_pb2.UInt32Value(value=96),
    common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
        max_headers_count=wrappers_pb2.UInt32Value(value=200)
    ),
)


def manager(
    serves: plan.Http, chain: str, listener: plan.Listener
) -> http_connection_manager_pb2.HttpConnectionManager:
    """The connection manager of a chain; its metrics have the chain's name.

    ``strip_port`` takes the port out of the Host header itself: applications and redirects do not
    see it then. Where the routes are at hand, ``routes.resource`` can ignore it instead.
    """
    made = _Manager(
        stat_prefix=names.stat(chain),
        rds=http_connection_manager_pb2.Rds(
            config_source=wire.ADS, route_config_name=serves.route_configuration
        ),
    )
    made.MergeFrom(_COMMON)
    by_rules = serves.edge or listener.direction is plan.Direction.OUTBOUND
    if listener.http3:
        made.http_filters.append(http3.announced(listener.port))
    made.http_filters.extend(_filters(serves, listener.direction))
    made.upgrade_configs.add(
        upgrade_type="websocket", filters=filters.WEBSOCKETS if by_rules else ()
    )
    if by_rules:
        # A route that takes CONNECT requests switches it on for itself.
        tunnel = made.upgrade_configs.add(upgrade_type="CONNECT", filters=filters.UPGRADED)
        tunnel.enabled.value = False
    made.MergeFrom(_EDGE if serves.edge else _SIDECAR)
    if not by_rules:
        made.MergeFrom(_INBOUND)
    if listener.client_address.trusted_hops:
        made.xff_num_trusted_hops = listener.client_address.trusted_hops
    if listener.transport == "udp":
        http3.speak(made)
    if serves.strip_port:
        made.strip_any_host_port = True
    if serves.access_log is not None:
        made.access_log.append(access_logs.message(serves.access_log, by_route=True))
    if serves.tracing is not None:
        made.tracing.CopyFrom(_tracing(serves.tracing, edge=serves.edge))
    return made


def _filters(
    serves: plan.Http, direction: plan.Direction
) -> Sequence[http_connection_manager_pb2.HttpFilter]:
    if serves.edge:
        return filters.AT_EDGE
    if direction is plan.Direction.OUTBOUND:
        return filters.BY_RULES
    return (filters.ROUTER,)


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
