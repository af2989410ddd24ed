# SPDX-License-Identifier: Apache-2.0
"""The connections of a cluster, in Envoy's words.

What is as by default is left to Envoy: HTTP/1.1, connections kept for an hour.
"""

from __future__ import annotations

from typing import Final, Literal

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.common.matcher.v3 import matcher_pb2
from pilothouse.api.envoy.config.core.v3 import base_pb2, protocol_pb2, proxy_protocol_pb2
from pilothouse.api.envoy.extensions.transport_sockets.proxy_protocol.v3 import (
    upstream_proxy_protocol_pb2,
)
from pilothouse.api.envoy.extensions.transport_sockets.raw_buffer.v3 import raw_buffer_pb2
from pilothouse.api.envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from pilothouse.envoy import wire
from pilothouse.routing import upstreams

HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
"""Envoy finds this extension by its name, so it must be this one."""

_CLEAR_TEXT: Final = base_pb2.TransportSocket(
    name="envoy.transport_sockets.raw_buffer",
    typed_config=wire.packed(raw_buffer_pb2.RawBuffer()),
)
_VERSIONS: Final = {
    "v1": proxy_protocol_pb2.ProxyProtocolConfig.V1,
    "v2": proxy_protocol_pb2.ProxyProtocolConfig.V2,
}
_DEFAULTS: Final = upstreams.ConnectionPool()


def speaks_http2(section: upstreams.ConnectionPool, *, http2: bool) -> bool:
    """Tell whether HTTP/2 is spoken in any case, on a port that does or does not speak it."""
    return section.http_version == "http2" or (section.http_version == "port" and http2)


def fill(
    made: cluster_pb2.Cluster,
    section: upstreams.ConnectionPool,
    *,
    http2: bool,
    failures: tuple[tuple[int, int], ...] = (),
) -> None:
    """Write the section into a cluster.

    Args:
        made: The cluster.
        section: What to write.
        http2: Whether its port speaks HTTP/2.
        failures: Ranges of statuses, first and last, that outlier detection takes for failures;
            empty for its own choice.
    """
    options = _options(section, http2=http2, failures=failures)
    if options is not None:
        made.typed_extension_protocol_options[HTTP_OPTIONS].CopyFrom(wire.packed(options))
    keepalive = section.tcp_keepalive
    if keepalive is not None:
        asked = made.upstream_connection_options.tcp_keepalive
        asked.SetInParent()
        for name, value in (
            ("keepalive_probes", keepalive.probes),
            ("keepalive_time", keepalive.time_s),
            ("keepalive_interval", keepalive.interval_s),
        ):
            if value is not None:
                getattr(asked, name).value = value


def proxy_protocol(
    version: Literal["v1", "v2"], inner: base_pb2.TransportSocket | None
) -> base_pb2.TransportSocket:
    """The socket that begins connections with their clients' addresses.

    Args:
        version: Of the PROXY protocol.
        inner: The socket for what comes after that; None for clear text.
    """
    made = upstream_proxy_protocol_pb2.ProxyProtocolUpstreamTransport()
    made.config.version = _VERSIONS[version]
    made.transport_socket.CopyFrom(_CLEAR_TEXT if inner is None else inner)
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.upstream_proxy_protocol", typed_config=wire.packed(made)
    )


def _options(
    section: upstreams.ConnectionPool, *, http2: bool, failures: tuple[tuple[int, int], ...]
) -> http_protocol_options_pb2.HttpProtocolOptions | None:
    """The options of HTTP; None when they are Envoy's defaults."""
    common = _common(section)
    made = http_protocol_options_pb2.HttpProtocolOptions()
    if section.http_version == "client":
        # Both must be there: a client that speaks what is not is refused.
        made.use_downstream_protocol_config.http_protocol_options.SetInParent()
        made.use_downstream_protocol_config.http2_protocol_options.CopyFrom(_http2(section))
    elif speaks_http2(section, http2=http2):
        made.explicit_http_config.http2_protocol_options.CopyFrom(_http2(section))
    elif common.ByteSize() or failures:
        made.explicit_http_config.http_protocol_options.SetInParent()
    else:
        return None
    if common.ByteSize():
        made.common_http_protocol_options.CopyFrom(common)
    if failures:
        made.outlier_detection.error_matcher.CopyFrom(_any_of(failures))
    return made


def _any_of(statuses: tuple[tuple[int, int], ...]) -> matcher_pb2.MatchPredicate:
    """Answers with one of these statuses."""
    found = []
    for first, last in statuses:
        one = matcher_pb2.MatchPredicate()
        status = one.http_response_headers_match.headers.add(name=":status")
        status.range_match.start, status.range_match.end = first, last + 1
        found.append(one)
    if len(found) == 1:
        return found[0]
    return matcher_pb2.MatchPredicate(or_match=matcher_pb2.MatchPredicate.MatchSet(rules=found))


def _common(section: upstreams.ConnectionPool) -> protocol_pb2.HttpProtocolOptions:
    made = protocol_pb2.HttpProtocolOptions()
    if section.idle_timeout_ms != _DEFAULTS.idle_timeout_ms:
        made.idle_timeout.CopyFrom(wire.duration(section.idle_timeout_ms))
    if section.max_duration_ms is not None:
        made.max_connection_duration.CopyFrom(wire.duration(section.max_duration_ms))
    if section.max_requests_per_connection is not None:
        made.max_requests_per_connection.value = section.max_requests_per_connection
    return made


def _http2(section: upstreams.ConnectionPool) -> protocol_pb2.Http2ProtocolOptions:
    # WebSockets go over HTTP/2 (RFC 8441) where the other end lets them.
    made = protocol_pb2.Http2ProtocolOptions(allow_connect=True)
    if section.max_concurrent_streams is not None:
        made.max_concurrent_streams.value = section.max_concurrent_streams
    if section.http2_keepalive is not None:
        made.connection_keepalive.interval.CopyFrom(
            wire.duration(section.http2_keepalive.interval_ms)
        )
        made.connection_keepalive.timeout.CopyFrom(
            wire.duration(section.http2_keepalive.timeout_ms)
        )
    return made
