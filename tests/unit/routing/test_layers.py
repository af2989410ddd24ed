# SPDX-License-Identifier: Apache-2.0
"""What is in the layers of a plan, beside where calls go."""

import pytest

from pilothouse.model import keys, proxy, secrets, services
from pilothouse.routing import plan, upstreams
from tests.support import meshes

REVIEWS = meshes.service("reviews", meshes.port(80, target=9080))
PODS = {"reviews": [meshes.endpoint("10.0.0.1", 9080)]}


def all_of(whole: plan.ProxyPlan, kind: str) -> tuple[object, ...]:
    return tuple(one for layer in whole.layers for one in getattr(layer, kind))


def sidecar(*known: object, of: proxy.Proxy, **parts: object) -> plan.ProxyPlan:
    return meshes.planned(meshes.mesh(*known, **parts), of)


def http(listener: plan.Listener) -> plan.Http:
    """What its only chain serves."""
    (chain,) = listener.chains
    assert isinstance(chain.serves, plan.Http)
    return chain.serves


def test_a_sidecar_listens_in_the_stead_of_its_application():
    """On the ports that services lead to, at its own address; and as HTTP proxy."""
    whole = sidecar(
        REVIEWS,
        endpoints=PODS,
        of=meshes.sidecar(
            "r-0", "10.0.0.1", bind_address="127.0.0.9", application_address="127.0.0.8"
        ),
    )
    listeners = {one.name: one for one in all_of(whole, "listeners")}
    assert {name: (one.address, one.port) for name, one in listeners.items()} == {
        "http-proxy": ("127.0.0.9", 15001),
        "inbound|9080": ("127.0.0.9", 9080),
    }
    assert listeners["inbound|9080"].direction == plan.Direction.INBOUND
    assert listeners["http-proxy"].direction == plan.Direction.OUTBOUND
    assert not any(one.edge or one.strip_port for one in map(http, listeners.values()))
    (inbound,) = (
        one for one in all_of(whole, "clusters") if one.key.direction == plan.Direction.INBOUND
    )
    assert inbound.addresses == (plan.Address(host="127.0.0.8", port=9080),)


@pytest.mark.parametrize(
    ("target", "ports"), [(None, [80]), (9080, [9080]), ("web", []), ("9080", [])]
)
def test_a_pod_that_is_no_endpoint_yet_is_found_by_its_labels(
    target: int | str | None, ports: list[int]
):
    """So it is served before it is ready; only a port that has a name is known later."""
    pod = services.Workload(
        namespace="default",
        name="reviews-0",
        addresses=("10.0.0.1",),
        labels=keys.labels(app="reviews", version="v1"),
    )
    whole = sidecar(
        meshes.service("reviews", meshes.port(80, target=target)),
        meshes.service("others"),
        workloads=(pod,),
        of=meshes.sidecar("reviews-0", "10.0.0.1"),
    )
    found = [
        one.port for one in all_of(whole, "listeners") if one.direction == plan.Direction.INBOUND
    ]
    assert found == ports


@pytest.mark.parametrize(("name", "address"), [("client", "10.0.0.2"), ("client.shop", "10.0.0.1")])
def test_a_sidecar_without_service_sends_only(name: str, address: str):
    """Another address, or another namespace that uses the same: no inbound listener."""
    whole = sidecar(REVIEWS, endpoints=PODS, of=meshes.sidecar(name, address))
    assert [one.name for one in all_of(whole, "listeners")] == ["http-proxy"]


def test_endpoints_that_are_not_ready_are_served():
    """Else no pod could ever become ready through its sidecar."""
    pods = {"reviews": [meshes.endpoint("10.0.0.1", ready=False)]}
    whole = sidecar(REVIEWS, endpoints=pods, of=meshes.sidecar("r", "10.0.0.1"))
    assert [one.port for one in all_of(whole, "listeners")] == [9080, 15001]


def test_no_listener_sends_to_itself():
    """Where proxy and application share an address, the application takes what arrives."""
    whole = sidecar(
        REVIEWS,
        endpoints=PODS,
        of=meshes.sidecar("r", "10.0.0.1", bind_address="127.0.0.1"),
    )
    assert [one.name for one in all_of(whole, "listeners")] == ["http-proxy"]


def test_the_http_proxy_keeps_its_port():
    """A service whose target port is the same is not served there."""
    whole = sidecar(REVIEWS, endpoints=PODS, of=meshes.sidecar("r", "10.0.0.1", outbound_port=9080))
    assert [one.name for one in all_of(whole, "listeners")] == ["http-proxy"]


@pytest.mark.parametrize(
    ("protocols", "http2"),
    [(["GRPC"], True), (["HTTP2", "GRPC"], True), (["HTTP"], False), (["HTTP", "GRPC"], False)],
)
def test_http2_to_the_application(protocols: list[str], *, http2: bool):
    """Where all services that lead to a port say so."""
    known = [
        meshes.service(f"s{n}", meshes.port(80, protocol=services.AppProtocol(name)))
        for n, name in enumerate(protocols)
    ]
    pods = {one.key.name: [meshes.endpoint("10.0.0.1")] for one in known}
    whole = sidecar(*known, endpoints=pods, of=meshes.sidecar("r", "10.0.0.1"))
    (inbound,) = (
        one for one in all_of(whole, "clusters") if one.key.direction == plan.Direction.INBOUND
    )
    assert inbound.http2 is http2
    outbound = [one.http2 for one in all_of(whole, "clusters") if one.key.service is not None]
    assert outbound == [name != "HTTP" for name in protocols]


def test_endpoints_by_locality():
    """Sorted by locality, and within it by address; each address once."""
    east, west = (services.Locality(region="eu", zone=zone) for zone in ("east", "west"))
    pods = [
        meshes.endpoint("10.0.0.3", locality=west),
        meshes.endpoint("10.0.0.2", locality=east),
        meshes.endpoint("10.0.0.1", locality=east),
        meshes.endpoint("10.0.0.1", locality=east, workload="again"),
    ]
    whole = sidecar(REVIEWS, endpoints={"reviews": pods}, of=meshes.sidecar())
    (found,) = all_of(whole, "endpoints")
    assert found.localities == (
        plan.LocalityEndpoints(
            locality=east,
            addresses=(
                plan.Address(host="10.0.0.1", port=9080),
                plan.Address(host="10.0.0.2", port=9080),
            ),
        ),
        plan.LocalityEndpoints(
            locality=west, addresses=(plan.Address(host="10.0.0.3", port=9080),)
        ),
    )


def cluster(*known: object, name: str = "reviews", client: str = "client", **labels: str):
    whole = sidecar(REVIEWS, *known, of=meshes.sidecar(client))
    (found,) = (
        one
        for one in all_of(whole, "clusters")
        if one.key.service == meshes.service_key(name) and one.key.labels == keys.labels(labels)
    )
    return found


def test_defaults_of_a_cluster():
    """10 s to connect, least request, no limits; and no object that it comes from."""
    assert cluster() == plan.Cluster(
        key=plan.ClusterKey(
            direction=plan.Direction.OUTBOUND, port=80, service=meshes.service_key("reviews")
        ),
        settings=upstreams.Settings(
            connect_timeout_ms=10_000,
            load_balancer=upstreams.LoadBalancer(policy="least_request"),
            circuit_breaker=upstreams.CircuitBreaker(),
        ),
    )


VERSION = meshes.rule(
    "v1",
    "{parents: [{service: reviews}],"
    " http: [{destinations: [{service: reviews, labels: {version: v1}}]}]}",
)
WHOLE = meshes.policy(
    "whole",
    "{service: reviews, connectTimeout: 1s, circuitBreaker: {maxConnections: 1, maxRetries: 0}}",
)
PART = meshes.policy(
    "part",
    "{service: reviews, labels: {version: v1}, loadBalancer: {policy: RANDOM},"
    " circuitBreaker: {maxRequests: 5}}",
)


def test_a_policy_with_labels_is_merged_by_whole_section():
    """Over the one without; only for exactly these labels."""
    v1 = cluster(VERSION, WHOLE, PART, version="v1")
    assert v1.settings == upstreams.Settings(
        connect_timeout_ms=1000,
        load_balancer=upstreams.LoadBalancer(policy="random"),
        circuit_breaker=upstreams.CircuitBreaker(max_requests=5),
    )
    every = cluster(VERSION, WHOLE, PART)
    assert every.settings == upstreams.Settings(
        connect_timeout_ms=1000,
        circuit_breaker=upstreams.CircuitBreaker(max_connections=1, max_retries=0),
    )


def test_the_clients_own_policy_wins_over_the_services():
    """Section by section; a section that it leaves out stays the service's."""
    own = meshes.policy(
        "own.shop", "{service: reviews, namespace: default, connectTimeout: 1500ms}"
    )
    ours = cluster(VERSION, WHOLE, PART, own, client="client.shop", version="v1")
    assert ours.key.scope == "shop"
    assert (ours.settings.connect_timeout_ms, ours.settings.load_balancer.policy) == (
        1500,
        "random",
    )
    theirs = cluster(VERSION, WHOLE, PART, own, version="v1")
    assert (theirs.key.scope, theirs.settings.connect_timeout_ms) == ("", 1000)


EXTERNAL = meshes.external("api", "{hosts: [api.example], ports: [{number: 443}, {number: 80}]}")


@pytest.mark.parametrize(("client", "scope", "timeout"), [("c", "", 1000), ("c.shop", "shop", 500)])
def test_an_external_service_has_policies_too(client: str, scope: str, timeout: int):
    """Of its own namespace, and of the clients'; a service of the same name has none of them."""
    theirs = meshes.policy(
        "theirs", "{externalService: api, connectTimeout: 1s, healthCheck: {http: {path: /}}}"
    )
    ours = meshes.policy(
        "ours.shop", "{externalService: api, namespace: default, connectTimeout: 500ms}"
    )
    whole = sidecar(EXTERNAL, theirs, ours, meshes.service("api", 443), of=meshes.sidecar(client))
    found = {one.key.external: one for one in all_of(whole, "clusters") if one.key.port == 443}
    assert found[False].settings == upstreams.Settings()
    external = found[True]
    assert (external.key.scope, external.settings.connect_timeout_ms) == (scope, timeout)
    assert external.settings.health_check.check.host == "api.example"
    assert "DestinationPolicy/theirs" in names(external.origins)
    routed = {
        share.cluster
        for one in all_of(whole, "route_configurations")
        for host in one.virtual_hosts
        for route in host.routes
        for share in route.action.clusters
    }
    assert external.key in routed
    assert not [one for one in all_of(whole, "endpoints") if one.key.external]


def names(origins: plan.Origins) -> list[str]:
    return [f"{origin.kind}/{origin.name}" for origin in origins]


def test_origins():
    """Whatever comes from an object says so: it, and what it was derived from."""
    ingress = keys.ObjectKey("Ingress", "default", "web")
    derived = meshes.rule(
        "derived",
        "{parents: [{gateway: edge}], http: [{destinations: [{service: reviews}]}]}",
        origins=(ingress,),
    )
    edge = meshes.gateway(
        "edge", "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP}]}"
    )
    api = meshes.external("api", "{hosts: [api.example], ports: [{number: 80}]}")
    mesh = meshes.mesh(
        REVIEWS, VERSION, WHOLE, derived, edge, api, meshes.tracing("{address: otel.example}")
    )
    inside = meshes.planned(mesh, meshes.sidecar())
    found = {
        **{one.name: one.origins for one in all_of(inside, "listeners")},
        **{
            host.name: host.origins
            for one in all_of(inside, "route_configurations")
            for host in one.virtual_hosts
        },
        **{
            f"cluster {one.key.service.name}{len(one.key.labels) or ''}": one.origins
            for one in all_of(inside, "clusters")
        },
    }
    assert {name: names(origins) for name, origins in found.items()} == {
        "http-proxy": ["MeshConfig/default"],
        "reviews.default:80": ["RouteRule/v1"],
        "external:api.default:80": ["ExternalService/api"],
        "cluster api": ["ExternalService/api"],
        "cluster reviews": ["DestinationPolicy/whole"],
        "cluster reviews1": ["DestinationPolicy/whole", "RouteRule/v1"],
        "cluster tracing-collector": ["MeshConfig/default"],
    }
    outside = meshes.planned(mesh, meshes.edge())
    (listener,) = all_of(outside, "listeners")
    assert names(listener.origins) == ["MeshConfig/default", "MeshGateway/edge"]
    (routes,) = all_of(outside, "route_configurations")
    (host,) = routes.virtual_hosts
    assert names(host.origins) == ["Ingress/web", "MeshGateway/edge", "RouteRule/derived"]
    assert names(host.routes[0].origins) == ["Ingress/web", "RouteRule/derived"]


def test_listeners_of_a_gateway():
    """Ports of all gateways that the proxy serves; certificates in order, each once."""
    old = meshes.gateway(
        "z",
        "{selector: {app: edge}, listeners: [{name: tls, port: 443, protocol: HTTPS, hosts:"
        " [z.example], tls: {certificates: [{secret: b}, {secret: a}, {secret: b}]}}]}",
        created=1,
    )
    young = meshes.gateway(
        "a",
        "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP},"
        " {name: tls, port: 443, protocol: HTTPS, hosts: [a.example], tls:"
        " {certificates: [{secret: a}, {secret: 'c'}]}}]}",
        created=2,
    )
    whole = sidecar(old, young, of=meshes.edge(bind_address="127.0.0.3"))
    plain, secure = all_of(whole, "listeners")
    assert (plain.name, plain.port, plain.chains[0].tls) == ("gateway|80", 80, None)
    assert (secure.name, secure.port, secure.address) == ("gateway|443", 443, "127.0.0.3")
    shown = {one.name: [key.name for key in one.tls.certificates] for one in secure.chains}
    assert shown == {
        "gateway|443|a.default|tls": ["a", "c"],
        "gateway|443|z.default|tls": ["b", "a"],
    }
    assert all(chain.serves.edge for one in (plain, secure) for chain in one.chains)
    assert all_of(whole, "certificates") == tuple(
        secrets.SecretKey("default", name) for name in "abc"
    )


def test_a_sidecar_may_have_no_certificates():
    """Secrets are for gateways that serve them."""
    tls = meshes.gateway(
        "edge",
        "{selector: {app: edge}, listeners: [{name: tls, port: 443, protocol: HTTPS, tls:"
        " {certificates: [{secret: a}]}}]}",
    )
    assert all_of(sidecar(tls, of=meshes.sidecar()), "certificates") == ()
    assert all_of(sidecar(tls, of=meshes.edge("other")), "certificates") == ()


@pytest.mark.parametrize(
    ("spec", "resolution", "port", "sampling"),
    [
        ("{address: 192.0.2.7}", "static", 4317, 100.0),
        ("{address: '2001:db8::7', port: 5000}", "static", 5000, 100.0),
        ("{address: otel.example, samplingPercent: 0}", "dns", 4317, 0.0),
    ],
)
def test_tracing(spec: str, resolution: str, port: int, sampling: float):
    """Every listener traces to the collector, under the name of the workload."""
    whole = sidecar(
        REVIEWS,
        meshes.tracing(spec),
        endpoints=PODS,
        of=meshes.sidecar("r-0", "10.0.0.1", labels=keys.labels(app="reviews")),
    )
    (collector,) = whole.layers[-1].clusters
    assert (collector.resolution, collector.http2) == (resolution, True)
    assert collector.addresses[0].port == port
    for listener in all_of(whole, "listeners"):
        traced = http(listener).tracing
        assert traced is not None
        assert traced.collector == collector.key
        assert traced.sampling_percent == sampling
        assert traced.service_name == "reviews.default"


@pytest.mark.parametrize(
    ("name", "labels", "service"),
    [
        ("reviews-v1-7d9f8c6b5-x2kqz", {"app": "shop"}, "shop.default"),
        ("reviews-v1-7d9f8c6b5-x2kqz", {}, "reviews-v1.default"),
        ("agent-x2kqz", {}, "agent.default"),
        ("db-0", {}, "db.default"),
        ("db-12", {}, "db.default"),
        ("client", {}, "client.default"),
        ("web-front", {}, "web-front.default"),
    ],
)
def test_the_name_in_traces(name: str, labels: dict[str, str], service: str):
    """The label app, else the pod's name without what tells replicas apart."""
    whole = sidecar(
        meshes.tracing("{address: 192.0.2.7}"),
        of=meshes.sidecar(name, labels=keys.labels(labels)),
    )
    assert http(whole.layers[-2].listeners[0]).tracing.service_name == service
