# SPDX-License-Identifier: Apache-2.0
"""The rules of a DestinationPolicy that it can break by itself."""

from __future__ import annotations

from collections.abc import Iterable

from pilothouse.api.config.v1alpha1 import destination_policy_pb2, health_check_pb2
from pilothouse.config import balancers, checks, localities, ranges, scalars, syntax, upstream_tls

# The most that Linux takes for these socket options: else no connection could be opened.
_MAX_PROBES = 127
_MAX_KEEPALIVE = 32_767
_WHOLE = 100
_MAX_RANGES = 100
_BASE_EJECTION = 30 * scalars.NANOSECONDS
"""What `OutlierDetection.base_ejection_time` is when it is unset."""


def check(spec: destination_policy_pb2.DestinationPolicySpec) -> checks.Found:
    """Every rule that the spec of a DestinationPolicy breaks, in the order of its fields."""
    match spec.WhichOneof("target"):
        case "service":
            yield from checks.required("spec.service", spec.service, syntax.label)
        case "external_service":
            name = spec.external_service
            yield from checks.required("spec.externalService", name, syntax.subdomain)
        case _:
            yield from checks.broken("spec", "one of service, externalService is required")
    yield from checks.optional("spec.namespace", spec.namespace, syntax.label)
    yield from checks.labels("spec.labels", spec.labels)
    if spec.HasField("external_service"):
        yield from _not_outside(spec)
    else:
        yield from _outside_only(spec)
    yield from _sections("spec", spec)
    ports: dict[object, str] = {}
    for index, port in enumerate(spec.ports):
        where = f"spec.ports[{index}]"
        yield from checks.required_port(f"{where}.port", port.port, ports)
        yield from _sections(where, port)


def _not_outside(spec: destination_policy_pb2.DestinationPolicySpec) -> checks.Found:
    """What an external service does not have."""
    needless = "must not be set for an external service"
    if spec.labels:
        yield from checks.broken("spec.labels", needless)
    if spec.HasField("locality"):
        yield from checks.broken("spec.locality", needless)
    for index, port in enumerate(spec.ports):
        if port.HasField("locality"):
            yield from checks.broken(f"spec.ports[{index}].locality", needless)


def _outside_only(spec: destination_policy_pb2.DestinationPolicySpec) -> checks.Found:
    """What only an external service has."""
    found = [("spec", spec.tls)]
    found += [(f"spec.ports[{index}]", port.tls) for index, port in enumerate(spec.ports)]
    for where, tls in found:
        if tls.HasField("tunnel"):
            needless = "must not be set for a service of the mesh"
            yield from checks.broken(f"{where}.tls.tunnel", needless)


def _sections(
    where: str,
    spec: destination_policy_pb2.DestinationPolicySpec | destination_policy_pb2.PortPolicy,
) -> checks.Found:
    yield from ranges.times(where, spec, "connect_timeout")
    yield from balancers.check(f"{where}.loadBalancer", spec.load_balancer)
    yield from _circuit_breaker(f"{where}.circuitBreaker", spec.circuit_breaker)
    yield from _outlier_detection(f"{where}.outlierDetection", spec.outlier_detection)
    yield from _health_check(f"{where}.healthCheck", spec.health_check)
    yield from _connection_pool(f"{where}.connectionPool", spec.connection_pool)
    yield from localities.check(f"{where}.locality", spec.locality)
    if spec.locality.HasField("zone_aware") and balancers.hashes(spec.load_balancer):
        nothing = "must not be set when loadBalancer.policy is RING_HASH or MAGLEV"
        yield from checks.broken(f"{where}.locality.zoneAware", nothing)
    if spec.HasField("tls"):
        yield from upstream_tls.check(f"{where}.tls", spec.tls)
    if spec.tls.HasField("tunnel") and spec.connection_pool.proxy_protocol:
        excluded = "must not be set together with connectionPool.proxyProtocol"
        yield from checks.broken(f"{where}.tls.tunnel", excluded)


def _circuit_breaker(where: str, section: destination_policy_pb2.CircuitBreaker) -> checks.Found:
    if section.HasField("max_retries") and section.HasField("retry_budget"):
        yield from checks.broken(f"{where}.retryBudget", "must not be set together with maxRetries")
    percent = section.retry_budget.percent
    if not 0 <= percent <= _WHOLE:
        wrong = f"must be from 0 to {_WHOLE}, is {percent:g}"
        yield from checks.broken(f"{where}.retryBudget.percent", wrong)


def _outlier_detection(
    where: str, section: destination_policy_pb2.OutlierDetection
) -> checks.Found:
    yield from ranges.times(where, section, "interval", "base_ejection_time", "max_ejection_time")
    if section.HasField("max_ejection_time"):
        said = section.HasField("base_ejection_time")
        least = checks.in_nanoseconds(section.base_ejection_time) if said else _BASE_EJECTION
        if checks.in_nanoseconds(section.max_ejection_time) < least:
            unset = "" if said else ", which is 30s when unset"
            shorter = f"must not be shorter than baseEjectionTime{unset}"
            yield from checks.broken(f"{where}.maxEjectionTime", shorter)
    yield from ranges.percent(where, section, "max_ejection_percent", least=1)
    at, count = f"{where}.failureStatuses", len(section.failure_statuses)
    if count > _MAX_RANGES:
        yield from checks.broken(at, f"must have at most {_MAX_RANGES} entries, has {count}")
    yield from _statuses(at, section.failure_statuses)


def _health_check(where: str, section: health_check_pb2.HealthCheck) -> checks.Found:
    if section.HasField("http"):
        yield from _http_check(f"{where}.http", section.http)
    yield from checks.optional(f"{where}.grpc.service", section.grpc.service, syntax.text)
    yield from ranges.times(where, section, "timeout", "interval", "idle_interval")
    for field in ("unhealthy_threshold", "healthy_threshold"):
        yield from ranges.number(where, section, field, least=1)


def _http_check(where: str, section: health_check_pb2.HttpHealthCheck) -> checks.Found:
    yield from checks.required(f"{where}.path", section.path, syntax.path_and_query)
    yield from checks.optional(f"{where}.host", section.host, syntax.redirect_host)
    yield from _statuses(f"{where}.statuses", section.statuses)


def _statuses(where: str, ranges: Iterable[health_check_pb2.StatusRange]) -> checks.Found:
    for index, one in enumerate(ranges):
        at = f"{where}[{index}]"
        if not one.first:
            yield from checks.broken(f"{at}.first", "is required: a number from 100 to 599")
        elif not 100 <= one.first <= 599:
            yield from checks.broken(f"{at}.first", f"must be from 100 to 599, is {one.first}")
        if one.HasField("last") and not max(one.first, 100) <= one.last <= 599:
            least = max(one.first, 100)
            yield from checks.broken(f"{at}.last", f"must be from {least} to 599, is {one.last}")


def _connection_pool(where: str, section: destination_policy_pb2.ConnectionPool) -> checks.Found:
    yield from ranges.number(where, section, "max_requests_per_connection", least=1)
    if section.HasField("idle_timeout"):
        yield from checks.duration(f"{where}.idleTimeout", section.idle_timeout)
    yield from ranges.times(where, section, "max_duration")
    yield from ranges.number(where, section, "max_concurrent_streams", least=1, most=2**31 - 1)
    yield from keepalive(f"{where}.tcpKeepalive", section.tcp_keepalive)
    if section.HasField("http2_keepalive"):
        at = f"{where}.http2Keepalive"
        if not section.http2_keepalive.HasField("interval"):
            yield from checks.broken(f"{at}.interval", "is required")
        yield from ranges.times(at, section.http2_keepalive, "interval", "timeout")


def keepalive(where: str, section: destination_policy_pb2.TcpKeepalive) -> checks.Found:
    """Every rule that TCP keepalive breaks, wherever it stands."""
    yield from ranges.number(where, section, "probes", least=1, most=_MAX_PROBES)
    for field in ("time", "interval"):
        if section.HasField(field):
            time = checks.in_nanoseconds(getattr(section, field))
            seconds, rest = divmod(time, scalars.NANOSECONDS)
            if rest or not 1 <= seconds <= _MAX_KEEPALIVE:
                wrong = f"must be whole seconds, from 1s to {_MAX_KEEPALIVE}s"
                yield from checks.broken(f"{where}.{field}", wrong)
