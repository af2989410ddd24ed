# SPDX-License-Identifier: Apache-2.0
"""How a DestinationPolicy is read: each section as its fields' comments say."""

import pytest

from pilothouse.model import secrets
from pilothouse.routing import clusters, parsed, policies, upstreams
from tests.support import meshes


def read(spec: str) -> parsed.Policy:
    (config,) = meshes.policy("p", f"{{service: reviews, {spec}}}").values()
    return policies.policy(config)


def settings(*specs: str, port: int = 80) -> upstreams.Settings:
    return clusters.settings(tuple(read(spec) for spec in specs), port)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("labels: {}", upstreams.Settings()),
        ("loadBalancer: {}", upstreams.Settings()),
        (
            "loadBalancer: {policy: ROUND_ROBIN, minHealthyPercent: 0}",
            upstreams.Settings(
                load_balancer=upstreams.LoadBalancer(policy="round_robin", min_healthy_percent=0)
            ),
        ),
        (
            (
                "loadBalancer: {policy: RING_HASH, ringMinSize: 3, hashBy: [{header: X-User},"
                " {queryParameter: Q}, {cookie: {name: c, ttl: 0s, path: /}},"
                " {cookie: {name: d}}, {sourceIp: true}]}"
            ),
            upstreams.Settings(
                load_balancer=upstreams.LoadBalancer(
                    policy="ring_hash",
                    ring_min_size=3,
                    hash_by=(
                        upstreams.HashKey(kind="header", name="x-user"),
                        upstreams.HashKey(kind="query_parameter", name="Q"),
                        upstreams.HashKey(kind="cookie", name="c", ttl_s=0, path="/"),
                        upstreams.HashKey(kind="cookie", name="d"),
                        upstreams.HashKey(kind="source_ip"),
                    ),
                )
            ),
        ),
        (
            "loadBalancer: {policy: MAGLEV, maglevTableSize: 7, hashBy: [{sourceIp: true}]}",
            upstreams.Settings(
                load_balancer=upstreams.LoadBalancer(
                    policy="maglev",
                    maglev_table_size=7,
                    hash_by=(upstreams.HashKey(kind="source_ip"),),
                )
            ),
        ),
        (
            "loadBalancer: {warmup: {duration: 1m, aggression: 2}}",
            upstreams.Settings(
                load_balancer=upstreams.LoadBalancer(
                    warmup=upstreams.Warmup(duration_ms=60_000, min_percent=10, aggression=2.0)
                )
            ),
        ),
        (
            "circuitBreaker: {maxConnections: 1, maxRetries: 0}",
            upstreams.Settings(
                circuit_breaker=upstreams.CircuitBreaker(max_connections=1, max_retries=0)
            ),
        ),
        (
            "circuitBreaker: {retryBudget: {percent: 12.5}}",
            upstreams.Settings(
                circuit_breaker=upstreams.CircuitBreaker(
                    retry_budget=upstreams.RetryBudget(percent=12.5, min_concurrency=3)
                )
            ),
        ),
        (
            "circuitBreaker: {retryBudget: {minConcurrency: 0}}",
            upstreams.Settings(
                circuit_breaker=upstreams.CircuitBreaker(
                    retry_budget=upstreams.RetryBudget(percent=20, min_concurrency=0)
                )
            ),
        ),
        (
            "outlierDetection: {}",
            upstreams.Settings(outlier_detection=upstreams.OutlierDetection()),
        ),
        (
            (
                "outlierDetection: {consecutive5xx: 0, consecutiveGatewayErrors: 2,"
                " consecutiveLocalOriginFailures: 3, interval: 1s500ms, baseEjectionTime: 2s,"
                " maxEjectionTime: 1m, maxEjectionPercent: 50}"
            ),
            upstreams.Settings(
                outlier_detection=upstreams.OutlierDetection(
                    consecutive_5xx=0,
                    consecutive_gateway_errors=2,
                    consecutive_local_origin_failures=3,
                    interval_ms=1500,
                    base_ejection_ms=2000,
                    max_ejection_ms=60_000,
                    max_ejection_percent=50,
                )
            ),
        ),
        (
            "outlierDetection: {baseEjectionTime: 1h}",
            upstreams.Settings(
                outlier_detection=upstreams.OutlierDetection(
                    base_ejection_ms=3_600_000, max_ejection_ms=3_600_000
                )
            ),
        ),
        ("healthCheck: {}", upstreams.Settings()),
        ("connectionPool: {}", upstreams.Settings()),
        (
            "connectionPool: {proxyProtocol: V2}",
            upstreams.Settings(connection_pool=upstreams.ConnectionPool(proxy_protocol="v2")),
        ),
        ("locality: {}", upstreams.Settings()),
        ("tls: {mode: DISABLE}", upstreams.Settings()),
        (
            "tls: {sni: Api.example, caCertificates: pem}",
            upstreams.Settings(
                tls=upstreams.Tls(
                    sni="api.example", ca_certificates="pem", subject_alt_names=("api.example",)
                )
            ),
        ),
        (
            "tls: {sni: a.example, subjectAltNames: [c.example, b.example, c.example]}",
            upstreams.Settings(
                tls=upstreams.Tls(sni="a.example", subject_alt_names=("b.example", "c.example"))
            ),
        ),
        (
            "tls: {mode: MUTUAL, sni: a.example, clientCertificate: me, insecureSkipVerify: true}",
            upstreams.Settings(
                tls=upstreams.Tls(
                    sni="a.example",
                    certificate=secrets.SecretKey("default", "me"),
                )
            ),
        ),
        (
            "locality: {failover: {regions: [{from: us, to: eu}, {from: eu, to: us}]}}",
            upstreams.Settings(locality=upstreams.Failover(regions=(("eu", "us"), ("us", "eu")))),
        ),
        (
            (
                "locality: {distribution: {shares: [{from: eu, to: {us: 0, eu/a: 1}},"
                " {from: '*', to: {'*': 1}}]}}"
            ),
            upstreams.Settings(
                locality=upstreams.Distribution(
                    shares=(("*", (("*", 1),)), ("eu", (("eu/a", 1), ("us", 0))))
                )
            ),
        ),
        (
            (
                "connectionPool: {httpVersion: HTTP2, maxRequestsPerConnection: 1, idleTimeout: 0s,"
                " maxDuration: 2s, maxConcurrentStreams: 3, tcpKeepalive: {probes: 4, time: 5s},"
                " http2Keepalive: {interval: 6s}}"
            ),
            upstreams.Settings(
                connection_pool=upstreams.ConnectionPool(
                    http_version="http2",
                    max_requests_per_connection=1,
                    idle_timeout_ms=0,
                    max_duration_ms=2000,
                    max_concurrent_streams=3,
                    tcp_keepalive=upstreams.TcpKeepalive(probes=4, time_s=5),
                    http2_keepalive=upstreams.Http2Keepalive(interval_ms=6000, timeout_ms=10_000),
                )
            ),
        ),
        (
            "healthCheck: {tcp: {}}",
            upstreams.Settings(health_check=upstreams.HealthCheck(check=upstreams.TcpCheck())),
        ),
        (
            (
                "healthCheck: {grpc: {service: s}, timeout: 1s500ms, unhealthyThreshold: 1,"
                " idleInterval: 1s}"
            ),
            upstreams.Settings(
                health_check=upstreams.HealthCheck(
                    check=upstreams.GrpcCheck(service="s"),
                    timeout_ms=1500,
                    interval_ms=5000,
                    idle_interval_ms=1000,
                    unhealthy_threshold=1,
                    healthy_threshold=2,
                )
            ),
        ),
        (
            (
                "healthCheck: {http: {path: /h, host: a.b, statuses: [{first: 200, last: 299},"
                " {first: 404}]}, interval: 2m}"
            ),
            upstreams.Settings(
                health_check=upstreams.HealthCheck(
                    check=upstreams.HttpCheck(
                        path="/h", host="a.b", statuses=((200, 299), (404, 404))
                    ),
                    interval_ms=120_000,
                    idle_interval_ms=120_000,
                )
            ),
        ),
        (
            "healthCheck: {http: {path: /h}}",
            upstreams.Settings(
                health_check=upstreams.HealthCheck(
                    check=upstreams.HttpCheck(path="/h", statuses=((200, 200),))
                )
            ),
        ),
    ],
)
def test_sections(spec: str, expected: upstreams.Settings):
    """What is set counts, and what is not has its documented default."""
    assert settings(spec) == expected


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (80, upstreams.Settings(connect_timeout_ms=1000)),
        (
            81,
            upstreams.Settings(
                connect_timeout_ms=1000,
                circuit_breaker=upstreams.CircuitBreaker(max_retries=2),
                load_balancer=upstreams.LoadBalancer(policy="round_robin"),
            ),
        ),
        (82, upstreams.Settings(connect_timeout_ms=3000)),
    ],
)
def test_a_port_may_have_sections_of_its_own(port: int, expected: upstreams.Settings):
    """They win over the same policy's, whole; a policy that wins does so for every port."""
    found = settings(
        "connectTimeout: 1s, ports: [{port: 82, connectTimeout: 3s},"
        " {port: 81, loadBalancer: {policy: ROUND_ROBIN}, circuitBreaker: {maxRetries: 2}}]",
        (
            "connectTimeout: 9s, ports: [{port: 81, connectTimeout: 8s,"
            " circuitBreaker: {maxRequests: 1}}]"
        ),
        port=port,
    )
    assert found == expected


def test_an_empty_health_check_takes_back_what_another_policy_says():
    """The one with labels wins, and says that nobody is asked."""
    assert settings("healthCheck: {}", "healthCheck: {tcp: {}}").health_check is None


def test_an_empty_section_wins_whole():
    """It says the defaults, and nothing of what the losing policy says in that section."""
    won = settings("loadBalancer: {}", "loadBalancer: {policy: RANDOM}, connectTimeout: 1s")
    assert won == upstreams.Settings(connect_timeout_ms=1000)
