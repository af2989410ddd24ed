# SPDX-License-Identifier: Apache-2.0
"""How Envoy talks to a cluster: each section of a plan's settings in Envoy's words."""

from __future__ import annotations

from typing import Final

from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.config.cluster.v3 import (
    circuit_breaker_pb2,
    cluster_pb2,
    outlier_detection_pb2,
)
from pilothouse.envoy import balancers, connections, health_checks, tunnels, upstream_tls, wire
from pilothouse.routing import upstreams

NO_LIMIT: Final = 2**32 - 1
"""A limit that is never reached. Left unset, Envoy would take 1024 (and 3 for retries)."""


def fill(made: cluster_pb2.Cluster, settings: upstreams.Settings, *, http2: bool) -> None:
    """Write all sections into a cluster, whose port speaks HTTP/2 or does not."""
    made.connect_timeout.CopyFrom(wire.duration(settings.connect_timeout_ms))
    balancers.fill(made, settings.load_balancer, settings.locality)
    made.circuit_breakers.thresholds.append(_thresholds(settings.circuit_breaker))
    if settings.outlier_detection is not None:
        made.outlier_detection.CopyFrom(_outlier_detection(settings.outlier_detection))
    if settings.health_check is not None:
        spoken = connections.speaks_http2(settings.connection_pool, http2=http2)
        made.health_checks.append(health_checks.message(settings.health_check, http2=spoken))
    outliers = settings.outlier_detection
    failures = () if outliers is None else outliers.failure_statuses
    connections.fill(made, settings.connection_pool, http2=http2, failures=failures)
    if settings.tls is not None:
        made.transport_socket.CopyFrom(upstream_tls.transport_socket(settings.tls))
    version = settings.connection_pool.proxy_protocol
    if settings.tls is not None and settings.tls.tunnel is not None:
        made.transport_socket.CopyFrom(tunnels.transport_socket(made.transport_socket))
    elif version is not None:
        inner = made.transport_socket if settings.tls is not None else None
        made.transport_socket.CopyFrom(connections.proxy_protocol(version, inner))


def _thresholds(
    limits: upstreams.CircuitBreaker,
) -> circuit_breaker_pb2.CircuitBreakers.Thresholds:
    made = circuit_breaker_pb2.CircuitBreakers.Thresholds(
        max_connections=_limit(limits.max_connections),
        max_pending_requests=_limit(limits.max_pending_requests),
        max_requests=_limit(limits.max_requests),
        max_retries=_limit(limits.max_retries),
    )
    if limits.retry_budget is not None:
        made.retry_budget.budget_percent.value = limits.retry_budget.percent
        made.retry_budget.min_retry_concurrency.value = limits.retry_budget.min_concurrency
    return made


def _limit(limit: int | None) -> wrappers_pb2.UInt32Value:
    return wrappers_pb2.UInt32Value(value=NO_LIMIT if limit is None else limit)


def _outlier_detection(
    section: upstreams.OutlierDetection,
) -> outlier_detection_pb2.OutlierDetection:
    """Only what is asked for: Envoy would also compare the success rates of endpoints."""

    def number(value: int) -> wrappers_pb2.UInt32Value:
        return wrappers_pb2.UInt32Value(value=value)

    def counted(limit: int) -> wrappers_pb2.UInt32Value:
        return number(100 if limit else 0)

    local = section.consecutive_local_origin_failures
    made = outlier_detection_pb2.OutlierDetection(
        interval=wire.duration(section.interval_ms),
        base_ejection_time=wire.duration(section.base_ejection_ms),
        max_ejection_time=wire.duration(section.max_ejection_ms),
        max_ejection_percent=number(section.max_ejection_percent),
        always_eject_one_host=wrappers_pb2.BoolValue(value=True),
        enforcing_consecutive_5xx=counted(section.consecutive_5xx),
        enforcing_consecutive_gateway_failure=counted(section.consecutive_gateway_errors),
        enforcing_success_rate=number(0),
        enforcing_failure_percentage=number(0),
    )
    if section.consecutive_5xx:
        made.consecutive_5xx.value = section.consecutive_5xx
    if section.consecutive_gateway_errors:
        made.consecutive_gateway_failure.value = section.consecutive_gateway_errors
    if local:
        made.split_external_local_origin_errors = True
        made.consecutive_local_origin_failure.value = local
        made.enforcing_local_origin_success_rate.value = 0
    return made
