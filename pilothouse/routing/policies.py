# SPDX-License-Identifier: Apache-2.0
"""Reads an admitted DestinationPolicy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, cast

from google.protobuf import duration_pb2, message

from pilothouse.api.config.v1alpha1 import (
    destination_policy_pb2,
    health_check_pb2,
    upstream_tls_pb2,
)
from pilothouse.config import objects
from pilothouse.model import keys, secrets
from pilothouse.routing import parsed, readers, upstreams

_BALANCERS: dict[int, upstreams.Balancing] = {
    destination_policy_pb2.LoadBalancer.POLICY_UNSPECIFIED: "least_request",
    destination_policy_pb2.LoadBalancer.POLICY_LEAST_REQUEST: "least_request",
    destination_policy_pb2.LoadBalancer.POLICY_ROUND_ROBIN: "round_robin",
    destination_policy_pb2.LoadBalancer.POLICY_RANDOM: "random",
    destination_policy_pb2.LoadBalancer.POLICY_RING_HASH: "ring_hash",
    destination_policy_pb2.LoadBalancer.POLICY_MAGLEV: "maglev",
}

_IDLE_INTERVAL_MS = 60_000


def policy(config: objects.Config) -> parsed.Policy:
    """Read a DestinationPolicy."""
    spec = cast("destination_policy_pb2.DestinationPolicySpec", config.spec)
    external = spec.WhichOneof("target") == "external_service"
    name = spec.external_service if external else spec.service
    return parsed.Policy(
        key=config.key,
        origins=readers.origins(config.meta),
        created=config.meta.created,
        target=parsed.Ref(external, keys.ServiceKey(spec.namespace or config.key.namespace, name)),
        labels=keys.labels(dict(spec.labels)),
        sections=_sections(spec, namespace=config.key.namespace),
        ports={
            one.port: _sections(one, namespace=config.key.namespace)
            for one in sorted(spec.ports, key=lambda one: one.port)
        },
    )


def _sections(
    spec: destination_policy_pb2.DestinationPolicySpec | destination_policy_pb2.PortPolicy,
    *,
    namespace: str,
) -> upstreams.Sections:
    found = upstreams.Sections()
    if spec.HasField("connect_timeout"):
        found["connect_timeout_ms"] = readers.milliseconds(spec.connect_timeout)
    if spec.HasField("load_balancer"):
        found["load_balancer"] = _load_balancer(spec.load_balancer)
    if spec.HasField("circuit_breaker"):
        found["circuit_breaker"] = _circuit_breaker(spec.circuit_breaker)
    if spec.HasField("outlier_detection"):
        found["outlier_detection"] = _outlier_detection(spec.outlier_detection)
    if spec.HasField("health_check"):
        found["health_check"] = _health_check(spec.health_check)
    if spec.HasField("connection_pool"):
        found["connection_pool"] = _connection_pool(spec.connection_pool)
    if spec.HasField("locality"):
        found["locality"] = _locality(spec.locality)
    if spec.HasField("tls"):
        found["tls"] = _tls(spec.tls, namespace=namespace)
    return found


def _circuit_breaker(section: destination_policy_pb2.CircuitBreaker) -> upstreams.CircuitBreaker:
    given = _given(section)
    if "retry_budget" in given:
        given["retry_budget"] = upstreams.RetryBudget(**_given(section.retry_budget))
    return upstreams.CircuitBreaker(**given)


def _load_balancer(section: destination_policy_pb2.LoadBalancer) -> upstreams.LoadBalancer:
    given = _given(section) | {
        "policy": _BALANCERS[section.policy],
        "hash_by": tuple(_hash_key(one) for one in section.hash_by),
    }
    if "warmup" in given:
        given["warmup"] = upstreams.Warmup(**_given(section.warmup))
    return upstreams.LoadBalancer(**given)


def _hash_key(one: destination_policy_pb2.HashKey) -> upstreams.HashKey:
    match one.WhichOneof("key"):
        case "header":
            return upstreams.HashKey(kind="header", name=one.header.lower())
        case "query_parameter":
            return upstreams.HashKey(kind="query_parameter", name=one.query_parameter)
        case "cookie":
            ttl = one.cookie.ttl.seconds if one.cookie.HasField("ttl") else None
            return upstreams.HashKey(
                kind="cookie",
                name=one.cookie.name,
                ttl_s=ttl,
                path=one.cookie.path,
                attributes=_cookie_attributes(one.cookie),
            )
        case _:
            return upstreams.HashKey(kind="source_ip")


_SAME_SITE: dict[int, str] = {
    destination_policy_pb2.HashCookie.SAME_SITE_STRICT: "Strict",
    destination_policy_pb2.HashCookie.SAME_SITE_LAX: "Lax",
    destination_policy_pb2.HashCookie.SAME_SITE_NONE: "None",
}


def _cookie_attributes(cookie: destination_policy_pb2.HashCookie) -> tuple[tuple[str, str], ...]:
    found = []
    if cookie.domain:
        found.append(("Domain", cookie.domain.lower()))
    if cookie.same_site:
        found.append(("SameSite", _SAME_SITE[cookie.same_site]))
    if cookie.secure:
        found.append(("Secure", ""))
    if cookie.partitioned:
        found.append(("Partitioned", ""))
    return tuple(found)


def _outlier_detection(
    section: destination_policy_pb2.OutlierDetection,
) -> upstreams.OutlierDetection:
    given = {name.replace("_time_ms", "_ms"): value for name, value in _given(section).items()}
    given["failure_statuses"] = tuple(sorted(set(_statuses(section.failure_statuses))))
    found = upstreams.OutlierDetection(**given)
    if found.max_ejection_ms < found.base_ejection_ms:  # only where it is not said
        found = dataclasses.replace(found, max_ejection_ms=found.base_ejection_ms)
    return found


def _health_check(
    section: health_check_pb2.HealthCheck,
) -> upstreams.HealthCheck | None:
    given = _given(section)
    kind = section.WhichOneof("check")
    if kind is None:
        return None
    del given[kind]
    if "idle_interval_ms" not in given and "interval_ms" in given:
        given["idle_interval_ms"] = max(given["interval_ms"], _IDLE_INTERVAL_MS)
    return upstreams.HealthCheck(check=_check(section), **given)


def _check(section: health_check_pb2.HealthCheck) -> upstreams.Check:
    match section.WhichOneof("check"):
        case "http":
            statuses = _statuses(section.http.statuses)
            given = _given(section.http) | ({"statuses": statuses} if statuses else {})
            return upstreams.HttpCheck(**given)
        case "grpc":
            return upstreams.GrpcCheck(**_given(section.grpc))
        case _:
            return upstreams.TcpCheck()


def _statuses(
    ranges: Iterable[health_check_pb2.StatusRange],
) -> tuple[tuple[int, int], ...]:
    return tuple((one.first, one.last if one.HasField("last") else one.first) for one in ranges)


_HTTP_VERSIONS: dict[int, upstreams.HttpVersion] = {
    destination_policy_pb2.ConnectionPool.HTTP_VERSION_UNSPECIFIED: "port",
    destination_policy_pb2.ConnectionPool.HTTP_VERSION_HTTP1: "http1",
    destination_policy_pb2.ConnectionPool.HTTP_VERSION_HTTP2: "http2",
    destination_policy_pb2.ConnectionPool.HTTP_VERSION_CLIENT: "client",
}

_PROXY_PROTOCOLS: dict[int, Literal["v1", "v2"] | None] = {
    destination_policy_pb2.ConnectionPool.PROXY_PROTOCOL_UNSPECIFIED: None,
    destination_policy_pb2.ConnectionPool.PROXY_PROTOCOL_V1: "v1",
    destination_policy_pb2.ConnectionPool.PROXY_PROTOCOL_V2: "v2",
}


def _connection_pool(
    section: destination_policy_pb2.ConnectionPool,
) -> upstreams.ConnectionPool:
    given = _given(section) | {
        "http_version": _HTTP_VERSIONS[section.http_version],
        "proxy_protocol": _PROXY_PROTOCOLS[section.proxy_protocol],
    }
    if section.HasField("tcp_keepalive"):
        given["tcp_keepalive"] = keepalive(section.tcp_keepalive)
    if section.HasField("http2_keepalive"):
        given["http2_keepalive"] = upstreams.Http2Keepalive(**_given(section.http2_keepalive))
    return upstreams.ConnectionPool(**given)


def keepalive(section: destination_policy_pb2.TcpKeepalive) -> upstreams.TcpKeepalive:
    """Read TCP keepalive, of a policy or of the mesh's defaults."""
    return upstreams.TcpKeepalive(
        probes=section.probes if section.HasField("probes") else None,
        time_s=section.time.seconds or None,
        interval_s=section.interval.seconds or None,
    )


def _locality(section: destination_policy_pb2.LocalityPolicy) -> upstreams.Locality | None:
    match section.WhichOneof("way"):
        case "failover":
            return _failover(section.failover)
        case "zone_aware":
            given = _given(section.zone_aware)
            if "failover" in given:
                given["failover"] = _failover(section.zone_aware.failover)
            return upstreams.ZoneAwareness(**given)
        case "distribution":
            shares = sorted(
                (getattr(one, "from"), tuple(sorted(one.to.items())))
                for one in section.distribution.shares
            )
            return upstreams.Distribution(shares=tuple(shares))
        case _:
            return None


def _failover(section: destination_policy_pb2.LocalityFailover) -> upstreams.Failover:
    pairs = sorted((getattr(one, "from"), one.to) for one in section.regions)
    labels = tuple(_compared(one) for one in section.labels)
    return upstreams.Failover(regions=tuple(pairs), labels=labels)


def _compared(label: str) -> tuple[str, str | None]:
    name, equals, value = label.partition("=")
    return name, value if equals else None


_TLS_VERSIONS: dict[int, upstreams.TlsVersion] = {
    upstream_tls_pb2.UpstreamTls.VERSION_TLS_1_2: "1.2",
    upstream_tls_pb2.UpstreamTls.VERSION_TLS_1_3: "1.3",
}


def _tls(section: upstream_tls_pb2.UpstreamTls, *, namespace: str) -> upstreams.Tls | None:
    if section.mode == upstream_tls_pb2.UpstreamTls.MODE_DISABLE:
        return None
    hashed = bool(section.public_key_hashes or section.certificate_hashes)
    authority = secrets.SecretKey(namespace, section.ca_secret) if section.ca_secret else None
    if section.system_authorities:
        authority = secrets.SYSTEM
    signed = bool(section.ca_certificates or authority)
    named = not section.insecure_skip_verify and (signed or not hashed)
    names = tuple(sorted(set(section.subject_alt_names))) or (section.sni.lower(),)
    certificate = section.client_certificate
    return upstreams.Tls(
        sni=section.sni.lower(),
        ca_certificates=section.ca_certificates,
        authority=authority,
        subject_alt_names=names if named else (),
        revocation_lists=section.revocation_lists,
        public_key_hashes=tuple(sorted(set(section.public_key_hashes))),
        certificate_hashes=readers.certificate_hashes(section.certificate_hashes),
        certificate=secrets.SecretKey(namespace, certificate) if certificate else None,
        min_version=_TLS_VERSIONS.get(section.min_version, "1.2"),
        max_version=_TLS_VERSIONS.get(section.max_version),
        ciphers=tuple(section.cipher_suites),
        tunnel=(section.tunnel.ip_address, section.tunnel.port)
        if section.HasField("tunnel")
        else None,
    )


def _given(section: message.Message) -> dict[str, Any]:
    """The fields of a section that are set, by name: a plan's value has the same names.

    A time is in milliseconds there, which its name says.
    """
    return dict(_one(field.name, value) for field, value in section.ListFields())


def _one(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, duration_pb2.Duration):
        return f"{name}_ms", readers.milliseconds(value)
    return name, value
