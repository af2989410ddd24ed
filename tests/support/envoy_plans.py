# SPDX-License-Identifier: Apache-2.0
"""Plans for the tests of the envoy room: short ways to write one, and the golden cases."""

import dataclasses
from typing import Any

from pilothouse.model import keys, secrets, services
from pilothouse.routing import accepting, plan, upstreams
from tests.support import gateway_plans

LOOPBACK = "127.0.0.1"
ALPN = ("h2", "http/1.1")
SHOP_TLS = secrets.SecretKey("default", "shop-tls")
API_TLS = secrets.SecretKey("default", "api-tls")
RULE = keys.ObjectKey("RouteRule", "default", "reviews")
INGRESS = keys.ObjectKey("Ingress", "default", "shop")
GATEWAY = keys.ObjectKey("MeshGateway", "default", "shop")
POLICY = keys.ObjectKey("DestinationPolicy", "default", "reviews")
MESH = keys.ObjectKey("MeshConfig", "pilothouse-system", "default")


def key(name: str, port: int = 9080, **parts: Any) -> plan.ClusterKey:
    """An outbound cluster of a service in the namespace default; `version` is a label."""
    version = parts.pop("version", None)
    labels = keys.labels(version=version) if version else ()
    service = keys.ServiceKey("default", name)
    return plan.ClusterKey(
        direction=plan.Direction.OUTBOUND, port=port, service=service, labels=labels, **parts
    )


def inbound(port: int) -> plan.ClusterKey:
    """The application beside the proxy."""
    return plan.ClusterKey(direction=plan.Direction.INBOUND, port=port)


def addresses(*ports: int, host: str = LOOPBACK) -> tuple[plan.Address, ...]:
    """Ports of one host."""
    return tuple(plan.Address(host=host, port=port) for port in ports)


def static(of: plan.ClusterKey, *ports: int, **parts: Any) -> plan.Cluster:
    """A cluster of ports of this machine."""
    return plan.Cluster(key=of, resolution="static", addresses=addresses(*ports), **parts)


def assignment(of: plan.ClusterKey, *ports: int) -> plan.ClusterEndpoints:
    """Endpoints on this machine, of no known locality; none at all without ports."""
    place = plan.LocalityEndpoints(locality=services.Locality(), addresses=addresses(*ports))
    return plan.ClusterEndpoints(key=of, localities=(place,) if ports else ())


def forward(
    *to: plan.ClusterKey | tuple[plan.ClusterKey | None, int], **parts: Any
) -> plan.Forward:
    """Send on; a cluster alone has the weight 1."""
    shares = (each if isinstance(each, tuple) else (each, 1) for each in to)
    return plan.Forward(
        clusters=tuple(plan.WeightedCluster(cluster=one, weight=weight) for one, weight in shares),
        **parts,
    )


def route(action: plan.Action, name: str = "default", **match: Any) -> plan.Route:
    """A route; what is left over is its match."""
    origins = match.pop("origins", ())
    return plan.Route(name=name, match=plan.RouteMatch(**match), action=action, origins=origins)


def header(name: str, kind: Any, value: str = "") -> plan.HeaderMatch:
    """A test of a header."""
    return plan.HeaderMatch(name=name, kind=kind, value=value)


def host(name: str, *routes: plan.Route, domains: tuple[str, ...] = ()) -> plan.VirtualHost:
    """A virtual host of its own name, unless other domains are given."""
    return plan.VirtualHost(name=name, domains=domains or (name,), routes=routes)


def routes(name: str, *hosts: plan.VirtualHost) -> plan.RouteConfiguration:
    """A route configuration; virtual hosts are sorted."""
    ordered = tuple(sorted(hosts, key=lambda one: one.name))
    return plan.RouteConfiguration(name=name, virtual_hosts=ordered)


def listener(
    name: str, *, certificates: tuple[secrets.SecretKey, ...] = (), **parts: Any
) -> plan.Listener:
    """A listener of this machine on a port that it finds; its routes have its name.

    What `plan.Http` knows goes to its one chain, which terminates TLS if there are certificates.
    """
    known = {field.name for field in dataclasses.fields(plan.Http)}
    http = {"route_configuration": name} | {one: parts.pop(one) for one in known & {*parts}}
    tls = accepting.ServerTls(certificates=certificates, alpn=ALPN) if certificates else None
    given: dict[str, Any] = {
        "direction": plan.Direction.OUTBOUND,
        "address": LOOPBACK,
        "port": 0,
        "chains": (plan.Chain(name=name, serves=plan.Http(**http), tls=tls),),
    }
    return plan.Listener(name=name, **(given | parts))


def proxy(*layers: plan.Layer) -> plan.ProxyPlan:
    """A plan of these layers."""
    return plan.ProxyPlan(layers=layers)


def _sidecar() -> plan.ProxyPlan:
    """What the demo shop's product page has beside it."""
    reviews, other = key("reviews"), key("ratings")
    v1, v3 = key("reviews", version="v1"), key("reviews", version="v3")
    domains = ("reviews", "reviews.default", "reviews.default.svc.cluster.local", "reviews:9080")
    zone = services.Locality(region="eu", zone="eu-1", sub_zone="rack-7")
    outbound = plan.Layer(
        clusters=(plan.Cluster(key=other), *(plan.Cluster(key=one) for one in (reviews, v1, v3))),
        endpoints=(
            plan.ClusterEndpoints(key=other),
            plan.ClusterEndpoints(
                key=reviews,
                localities=(
                    plan.LocalityEndpoints(
                        locality=services.Locality(), addresses=addresses(1, host="10.1.0.9")
                    ),
                    plan.LocalityEndpoints(
                        locality=zone, addresses=addresses(9080, 9081, host="10.1.0.7")
                    ),
                ),
            ),
            assignment(v1, 9080),
            assignment(v3, 9083),
        ),
        route_configurations=(
            routes(
                "http-proxy",
                host("ratings.default:9080", route(forward(other)), domains=("ratings:9080",)),
                host(
                    "reviews.default:9080",
                    route(
                        forward(v3, timeout_ms=2500),
                        "RouteRule/default/reviews/0/testers",
                        path_kind="prefix",
                        path="/reviews",
                        method="GET",
                        headers=(
                            header("x-user", "exact", "jason"),
                            header("x-old", "absent"),
                            header("x-new", "present"),
                            header("x-version", "regex", "v[0-9]+"),
                            header("x-group", "prefix", "beta-"),
                        ),
                        origins=(RULE,),
                    ),
                    route(
                        forward(
                            (v1, 75),
                            (v3, 25),
                            retry=plan.Retry(
                                attempts=3,
                                per_try_timeout_ms=500,
                                retry_on=("reset", "5xx", "retriable-status-codes"),
                                status_codes=(409, 429),
                                response_headers=(header("x-again", "present"),),
                                back_off_ms=10,
                                max_back_off_ms=2500,
                                per_try_idle_timeout_ms=250,
                                other_priorities=True,
                            ),
                        ),
                        "RouteRule/default/reviews/1",
                        origins=(RULE,),
                    ),
                    domains=tuple(sorted(domains)),
                ),
            ),
        ),
        listeners=(listener("http-proxy", port=15001),),
    )
    own = inbound(9080)
    beside = plan.Layer(
        clusters=(static(own, 9080),),
        route_configurations=(
            routes(
                "inbound|9080", host("inbound", route(forward(own, retry=None)), domains=("*",))
            ),
        ),
        listeners=(
            listener(
                "inbound|9080",
                direction=plan.Direction.INBOUND,
                address="0.0.0.0",
                port=9080,
            ),
        ),
    )
    return proxy(outbound, beside)


def _gateway() -> plan.ProxyPlan:
    """TLS with two certificates, a redirect to it, and answers without a backend."""
    web = key("web", 80)
    secure = plan.VirtualHost(
        name="shop.example.com",
        domains=("shop.example.com",),
        routes=(
            route(
                plan.DirectResponse(status=500, body="no such service: default/cart\n"),
                path_kind="exact",
                path="/cart",
            ),
            route(forward(web, timeout_ms=600_000), path_kind="regex", path="/(a|b)/.*"),
            route(plan.DirectResponse(status=404)),
        ),
        origins=(GATEWAY, INGRESS),
    )
    moved = plan.Redirect(code=308, scheme="https", host="shop.example.com", port=8443, path="/new")
    return proxy(
        plan.Layer(
            clusters=(plan.Cluster(key=web, http2=True),),
            endpoints=(assignment(web, 8080),),
            route_configurations=(
                routes("gateway|8080", host("shop", route(moved), domains=("*",))),
                plan.RouteConfiguration(name="gateway|8443", virtual_hosts=(secure,)),
            ),
            listeners=(
                listener("gateway|8080", port=8080, edge=True, strip_port=True, origins=(GATEWAY,)),
                listener(
                    "gateway|8443",
                    port=8443,
                    edge=True,
                    strip_port=True,
                    certificates=(SHOP_TLS, API_TLS),
                    origins=(GATEWAY,),
                ),
            ),
            certificates=(API_TLS, SHOP_TLS),
        )
    )


CHECKS: tuple[tuple[upstreams.Check, bool], ...] = (
    (upstreams.HttpCheck(path="/healthz?deep=1", statuses=((200, 299), (404, 404))), False),
    (upstreams.HttpCheck(path="/", host="a.example"), True),
    (upstreams.TcpCheck(), False),
    (upstreams.GrpcCheck(service="a.B"), True),
    (upstreams.GrpcCheck(), False),
)
"""Health checks, each with whether its cluster speaks HTTP/2."""
HASHING: tuple[upstreams.Balancing, ...] = ("maglev", "ring_hash")
HASH_BY = (
    upstreams.HashKey(kind="header", name="x-user"),
    upstreams.HashKey(kind="cookie", name="seat", ttl_s=0, path="/"),
    upstreams.HashKey(kind="cookie", name="given"),
    upstreams.HashKey(kind="query_parameter", name="user"),
    upstreams.HashKey(kind="source_ip"),
)
POOLS = (
    (upstreams.ConnectionPool(max_requests_per_connection=9), False),
    (upstreams.ConnectionPool(http_version="http1"), True),
    (
        upstreams.ConnectionPool(
            http_version="http2",
            idle_timeout_ms=0,
            max_duration_ms=1500,
            tcp_keepalive=upstreams.TcpKeepalive(),
        ),
        False,
    ),
    (
        upstreams.ConnectionPool(
            http_version="client",
            max_concurrent_streams=8,
            tcp_keepalive=upstreams.TcpKeepalive(probes=3, time_s=60, interval_s=10),
            http2_keepalive=upstreams.Http2Keepalive(interval_ms=30_000),
        ),
        True,
    ),
)
"""Connection pools, each with whether the port of its cluster speaks HTTP/2."""


def _policies() -> plan.ProxyPlan:
    """Every way to shape a cluster."""
    github = key("github", 443, external=True)
    return proxy(
        plan.Layer(
            clusters=(
                plan.Cluster(
                    key=github,
                    resolution="dns",
                    addresses=(plan.Address(host="github.example.com", port=443),),
                ),
                plan.Cluster(
                    key=key("reviews", scope="shop"),
                    settings=upstreams.Settings(
                        connect_timeout_ms=250,
                        load_balancer=upstreams.LoadBalancer(
                            policy="round_robin", warmup=upstreams.Warmup(duration_ms=1500)
                        ),
                        circuit_breaker=upstreams.CircuitBreaker(
                            max_connections=10,
                            max_pending_requests=0,
                            max_requests=20,
                            max_retries=3,
                        ),
                    ),
                    origins=(POLICY,),
                ),
                plan.Cluster(
                    key=key("reviews"),
                    http2=True,
                    settings=upstreams.Settings(
                        load_balancer=upstreams.LoadBalancer(
                            policy="random", min_healthy_percent=0
                        ),
                        circuit_breaker=upstreams.CircuitBreaker(max_requests=7),
                        outlier_detection=upstreams.OutlierDetection(
                            consecutive_gateway_errors=3, consecutive_local_origin_failures=2
                        ),
                    ),
                ),
                *(
                    plan.Cluster(
                        key=key(f"checked-{number}"),
                        http2=http2,
                        settings=upstreams.Settings(
                            health_check=upstreams.HealthCheck(check=check)
                        ),
                    )
                    for number, (check, http2) in enumerate(CHECKS)
                ),
                *(
                    plan.Cluster(
                        key=key(f"pool-{number}"),
                        http2=http2,
                        settings=upstreams.Settings(connection_pool=pool),
                    )
                    for number, (pool, http2) in enumerate(POOLS)
                ),
                *(
                    plan.Cluster(
                        key=key(f"hashed-{policy}"),
                        settings=upstreams.Settings(
                            load_balancer=upstreams.LoadBalancer(policy=policy, hash_by=HASH_BY)
                        ),
                    )
                    for policy in HASHING
                ),
                static(
                    key("legacy", 81, external=True),
                    81,
                    82,
                    settings=upstreams.Settings(
                        load_balancer=upstreams.LoadBalancer(
                            warmup=upstreams.Warmup(duration_ms=1, aggression=2.5)
                        )
                    ),
                ),
                plan.Cluster(key=key("nowhere", external=True), resolution="static"),
            ),
            endpoints=(
                plan.ClusterEndpoints(key=key("reviews")),
                plan.ClusterEndpoints(key=key("reviews", scope="shop")),
                *(plan.ClusterEndpoints(key=key(f"checked-{n}")) for n, _ in enumerate(CHECKS)),
                *(plan.ClusterEndpoints(key=key(f"pool-{n}")) for n, _ in enumerate(POOLS)),
                *(plan.ClusterEndpoints(key=key(f"hashed-{policy}")) for policy in HASHING),
            ),
        )
    )


def _tracing() -> plan.ProxyPlan:
    """A sidecar and an edge that trace, and a share that cannot be resolved."""
    collector, web = key("otel-collector", 4317, external=True), key("web", 80)
    tracing = plan.Tracing(
        collector=collector, sampling_percent=12.5, service_name="web.default", origins=(MESH,)
    )
    edge = listener("gateway|8080", edge=True, tracing=tracing)
    return proxy(
        plan.Layer(
            clusters=(static(collector, 4317, http2=True, origins=(MESH,)), static(web, 8080)),
            route_configurations=(
                routes("gateway|8080", host("web", route(forward((web, 3), (None, 1), (web, 0))))),
                routes("http-proxy", host("lost", route(forward((None, 1))))),
            ),
            listeners=(edge, listener("http-proxy", tracing=tracing)),
        )
    )


CASES = {
    "chains": gateway_plans.chains(),
    "gateway": _gateway(),
    "nothing": proxy(),
    "policies": _policies(),
    "sidecar": _sidecar(),
    "tracing": _tracing(),
}
"""Golden case to its plan."""
