# SPDX-License-Identifier: Apache-2.0
"""Active health checks, in Envoy's words."""

from __future__ import annotations

from typing import Final, assert_never

from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.config.core.v3 import health_check_pb2
from pilothouse.api.envoy.type.v3 import http_pb2, range_pb2
from pilothouse.envoy import wire
from pilothouse.routing import upstreams

_ANY_STATUS: Final = range_pb2.Int64Range(start=100, end=600)


def message(section: upstreams.HealthCheck, *, http2: bool) -> health_check_pb2.HealthCheck:
    """The check; an HTTP one may still lack its host, which differs from service to service."""
    made = health_check_pb2.HealthCheck(
        timeout=wire.duration(section.timeout_ms),
        interval=wire.duration(section.interval_ms),
        no_traffic_interval=wire.duration(section.idle_interval_ms),
        unhealthy_threshold=wrappers_pb2.UInt32Value(value=section.unhealthy_threshold),
        healthy_threshold=wrappers_pb2.UInt32Value(value=section.healthy_threshold),
    )
    match section.check:
        case upstreams.HttpCheck() as check:
            _fill_http(made.http_health_check, check, http2=http2)
        case upstreams.GrpcCheck(service=service) if http2:  # Envoy refuses it elsewhere
            made.grpc_health_check.SetInParent()
            made.grpc_health_check.service_name = service
        case upstreams.GrpcCheck() | upstreams.TcpCheck():
            made.tcp_health_check.SetInParent()
        case _:
            assert_never(section.check)
    return made


def _fill_http(
    made: health_check_pb2.HealthCheck.HttpHealthCheck,
    check: upstreams.HttpCheck,
    *,
    http2: bool,
) -> None:
    made.path = check.path
    made.host = check.host
    for first, last in check.statuses:
        made.expected_statuses.add(start=first, end=last + 1)
    # Else any other status counts as if the threshold were reached.
    made.retriable_statuses.append(_ANY_STATUS)
    if http2:
        made.codec_client_type = http_pb2.HTTP2
