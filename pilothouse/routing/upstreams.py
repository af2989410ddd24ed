# SPDX-License-Identifier: Apache-2.0
"""How to talk to a cluster: the sections of a DestinationPolicy, as plans hold them.

Each section is a frozen value whose defaults are those of the policy's fields. Policies are merged
by whole section: what one section says never mixes with what another policy's says.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypedDict

from pilothouse.model import secrets

Balancing = Literal["least_request", "round_robin", "random", "ring_hash", "maglev"]
HttpVersion = Literal["port", "http1", "http2", "client"]
"""``port`` is by the protocol of the service's port, ``client`` what each client speaks."""
TlsVersion = Literal["1.2", "1.3"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HashKey:
    """What requests are told apart by."""

    kind: Literal["header", "cookie", "query_parameter", "source_ip"]
    name: str = ""
    """Of the header (lower case), the cookie or the parameter."""
    ttl_s: int | None = None
    """Of a cookie that is set where there is none; 0 is the session, None sets none."""
    path: str = ""
    """Of a cookie that is set."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Of a cookie that is set, as ``Set-Cookie`` has them: names and values; some have none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """How the share of a new endpoint grows."""

    duration_ms: int
    min_percent: int = 10
    aggression: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancer:
    """Which endpoint gets the next request."""

    policy: Balancing = "least_request"
    min_healthy_percent: int = 50
    """With less of its endpoints healthy, a cluster uses all of them; 0 means never."""
    hash_by: tuple[HashKey, ...] = ()
    """In the order in which they count; not empty for ``ring_hash`` and ``maglev``."""
    ring_min_size: int = 1024
    maglev_table_size: int = 65_537
    warmup: Warmup | None = None
    """None with every policy but ``least_request`` and ``round_robin``."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """How many of the requests under way may be retries."""

    percent: float = 20.0
    min_concurrency: int = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """Limits of one client proxy towards one cluster; None means no limit."""

    max_connections: int | None = None
    max_pending_requests: int | None = None
    max_requests: int | None = None
    max_retries: int | None = None
    retry_budget: RetryBudget | None = None
    """None when ``max_retries`` is set."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutlierDetection:
    """When an endpoint is left out for a while; a count of 0 means that it is not counted."""

    consecutive_5xx: int = 5
    consecutive_gateway_errors: int = 0
    consecutive_local_origin_failures: int = 0
    """Greater than 0: failures to get an answer count here only."""
    interval_ms: int = 10_000
    base_ejection_ms: int = 30_000
    max_ejection_ms: int = 300_000
    """Not less than ``base_ejection_ms``."""
    max_ejection_percent: int = 10
    """Of the endpoints, at a time; one at least."""
    failure_statuses: tuple[tuple[int, int], ...] = ()
    """The first and last of each range of bad answers, sorted; empty for 500 to 599."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HttpCheck:
    """A GET request."""

    path: str
    host: str = ""
    """Empty for the name of the service."""
    statuses: tuple[tuple[int, int], ...] = ((200, 200),)
    """The first and last of each range of good answers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TcpCheck:
    """A connection."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GrpcCheck:
    """A request of gRPC's health protocol; where HTTP/2 is not spoken, a connection."""

    service: str = ""


Check = HttpCheck | TcpCheck | GrpcCheck


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """How endpoints are asked how they are."""

    check: Check
    timeout_ms: int = 1_000
    interval_ms: int = 5_000
    idle_interval_ms: int = 60_000
    """While nothing has been sent to the cluster."""
    unhealthy_threshold: int = 3
    healthy_threshold: int = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TcpKeepalive:
    """Probes of idle connections; None is as the machine has it."""

    probes: int | None = None
    time_s: int | None = None
    interval_s: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Http2Keepalive:
    """Pings on connections."""

    interval_ms: int
    timeout_ms: int = 10_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionPool:
    """The connections to endpoints; None means no limit, or that nobody asks."""

    http_version: HttpVersion = "port"
    max_requests_per_connection: int | None = None
    idle_timeout_ms: int = 3_600_000
    """0 means never."""
    max_duration_ms: int | None = None
    max_concurrent_streams: int | None = None
    tcp_keepalive: TcpKeepalive | None = None
    http2_keepalive: Http2Keepalive | None = None
    proxy_protocol: Literal["v1", "v2"] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The nearest endpoints, and what comes after a region."""

    regions: tuple[tuple[str, str], ...] = ()
    """From where to where; sorted."""
    labels: tuple[tuple[str, str | None], ...] = ()
    """What counts in the stead of places, the most important first: names, and values, which are
    None for the proxy's own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Weights by place, for proxies in different places.

    A place is ``*``, or one to three names (region, zone, sub-zone) with ``/`` between.
    """

    shares: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    """From where to where and how much; sorted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ZoneAwareness:
    """The proxy's own zone, as far as every endpoint gets its even part."""

    percent: int = 100
    min_endpoints: int = 6
    fail_below_min_healthy: bool = False
    failover: Failover | None = None
    """By regions; None when they do not matter."""


Locality = Failover | Distribution | ZoneAwareness


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS to endpoints."""

    sni: str
    ca_certificates: str = ""
    """PEM; empty when the signer does not matter, or ``authority`` says it."""
    authority: secrets.SecretKey | None = None
    """Whose ``ca.crt`` signs, and whose ``ca.crl`` revokes; while it is missing there must be no
    connection."""
    subject_alt_names: tuple[str, ...] = ()
    """Sorted; the certificate must be for one of them. Empty when the signer does not matter."""
    revocation_lists: str = ""
    """PEM; what is on them is refused, and what is signed by whoever has none. Empty for none."""
    public_key_hashes: tuple[str, ...] = ()
    """SHA-256 of SPKI in base64, sorted. The certificate must be of one of these, or..."""
    certificate_hashes: tuple[str, ...] = ()
    """...be one of these: SHA-256 in lower-case hex, sorted. Both empty for any."""
    certificate: secrets.SecretKey | None = None
    """What the proxy shows; without it there must be no connection."""
    min_version: TlsVersion = "1.2"
    max_version: TlsVersion | None = None
    """None means the newest."""
    ciphers: tuple[str, ...] = ()
    """For TLS 1.2; empty for the proxy's own."""
    tunnel: tuple[str, int] | None = None
    """IP address and port of an HTTP proxy through which connections are made. Only for clusters
    that have addresses of their own; where the PROXY protocol is asked for too, this counts."""
    provider: str = ""
    """Of a gRPC application: what has the signers and its own certificate, by the name that its
    bootstrap gives it, in place of those above. Empty: it has nothing, and must not connect."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All sections: how proxies talk to a cluster."""

    connect_timeout_ms: int = 10_000
    load_balancer: LoadBalancer = LoadBalancer()
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    outlier_detection: OutlierDetection | None = None
    health_check: HealthCheck | None = None
    connection_pool: ConnectionPool = ConnectionPool()
    locality: Locality | None = None
    tls: Tls | None = None


DEFAULTS = Settings()


class Sections(TypedDict, total=False):
    """The sections that a policy has; those of `Settings`."""

    connect_timeout_ms: int
    load_balancer: LoadBalancer
    circuit_breaker: CircuitBreaker
    outlier_detection: OutlierDetection
    health_check: HealthCheck | None
    connection_pool: ConnectionPool
    locality: Locality | None
    tls: Tls | None
