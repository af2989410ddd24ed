# SPDX-License-Identifier: Apache-2.0
"""Matches for some clients only: who gets which routes, and who shares them."""

import pytest

from pilothouse.model import keys, proxy
from pilothouse.routing import plan, planner, state
from tests.support import meshes

SERVICES = tuple(
    meshes.service(name) for name in ("shop", "cart", "stock", "web.front", "batch.jobs")
)
ENDPOINTS = {
    "web.front": (
        meshes.endpoint("10.0.1.1"),
        meshes.endpoint("10.0.1.2", ready=False),
    ),
    "batch.jobs": (meshes.endpoint("10.0.2.1"),),
}
SOURCES = """{parents: [{service: shop}], http: [
  {name: web, matches: [{source: {service: web, namespace: front}}],
   destinations: [{service: cart}]},
  {name: canary, matches: [{source: {labels: {track: canary}}}],
   destinations: [{service: cart, labels: {track: canary}}]},
  {name: jobs, matches: [{source: {namespace: jobs}}, {path: {exact: /jobs}}],
   destinations: [{service: stock}]}]}"""


def world(*more: object, rule: str = SOURCES) -> state.MeshState:
    return meshes.mesh_state(*SERVICES, meshes.rule("shop", rule), *more, endpoints=ENDPOINTS)


def sidecar(name: str, address: str = "10.9.9.9", **labels: str) -> proxy.Proxy:
    return meshes.sidecar(name, address, labels=keys.labels(app="x", **labels))


def outbound(mesh: planner.Mesh, of: proxy.Proxy) -> plan.Layer:
    return meshes.planned(mesh, of).layers[0]


def host(layer: plan.Layer, name: str = "shop.default:9080") -> plan.VirtualHost:
    (configuration,) = layer.route_configurations
    return next(one for one in configuration.virtual_hosts if one.name == name)


def routes(mesh: planner.Mesh, of: proxy.Proxy) -> list[str]:
    """Names of the routes to the shop, without what they have in common."""
    return [one.name.rpartition("/")[2] for one in host(outbound(mesh, of)).routes]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (sidecar("a"), ["jobs", "default"]),
        (sidecar("a.front", "10.0.1.1"), ["jobs", "web", "default"]),
        (sidecar("a.front", "10.0.1.2"), ["jobs", "web", "default"]),
        (sidecar("a.other", "10.0.1.1"), ["jobs", "default"]),
        (sidecar("a.front", "10.0.1.3"), ["jobs", "default"]),
        (sidecar("a", track="canary"), ["jobs", "canary", "default"]),
        (sidecar("a", track="stable"), ["jobs", "default"]),
        (sidecar("a.jobs"), ["jobs", "jobs", "default"]),
        (sidecar("a.jobs", track="canary"), ["jobs", "canary", "jobs", "default"]),
    ],
)
def test_a_client_has_the_routes_whose_tests_hold_of_it(of: proxy.Proxy, expected: list[str]):
    """By the services that it is behind, ready or not, by its labels and by its namespace."""
    assert routes(planner.Planner().update(world()), of) == expected


def test_all_of_a_test_must_hold():
    """Service, labels and namespace together."""
    rule = """{parents: [{service: shop}], http: [{name: all, matches: [
      {source: {service: web, namespace: front, labels: {track: canary}}}]}]}"""
    mesh = planner.Planner().update(world(rule=rule))
    assert routes(mesh, sidecar("a.front", "10.0.1.1", track="canary")) == ["all", "default"]
    assert routes(mesh, sidecar("a.front", "10.0.1.1")) == ["default"]
    assert routes(mesh, sidecar("a.front", "10.0.1.9", track="canary")) == ["default"]
    assert routes(mesh, sidecar("a", "10.0.1.1", track="canary")) == ["default"]


def test_a_service_without_namespace_is_of_the_rules_own():
    """As everywhere in a rule."""
    rule = "{parents: [{service: shop}], http: [{name: own, matches: [{source: {service: cart}}]}]}"
    state = meshes.mesh_state(
        *SERVICES,
        meshes.rule("shop", rule),
        endpoints={"cart": (meshes.endpoint("10.0.3.1"),)},
    )
    mesh = planner.Planner().update(state)
    assert routes(mesh, sidecar("a.front", "10.0.3.1")) == ["own", "default"]


def test_clients_of_whom_the_same_tests_hold_share_the_layer():
    """Whoever they are otherwise; and others have another one."""
    mesh = planner.Planner().update(world())
    one = outbound(mesh, sidecar("a.x", "10.9.1.1", track="canary", version="1"))
    assert outbound(mesh, sidecar("b.x", "10.9.1.2", track="canary", version="2")) is one
    assert outbound(mesh, sidecar("c.y", "10.9.1.3", track="canary")) is one
    plain = outbound(mesh, sidecar("a.x", "10.9.1.1", version="1"))
    assert plain is not one
    assert outbound(mesh, sidecar("d.y", "10.9.1.4")) is plain


def test_hosts_without_tests_are_the_same_for_all():
    """A test of one host changes no other, and what is no route of it stays shared."""
    mesh = planner.Planner().update(world())
    layers = [outbound(mesh, one) for one in (sidecar("a.x"), sidecar("a.x", track="canary"))]
    one, other = (host(layer, "web.front:9080") for layer in layers)
    assert one is other
    mine, theirs = (host(layer) for layer in layers)
    assert mine is not theirs


def test_the_own_hosts_of_a_namespace_are_shared_too():
    """Clients of a service's namespace, who may leave it out."""
    mesh = planner.Planner().update(world())
    layers = [outbound(mesh, one) for one in (sidecar("a"), sidecar("a", track="canary"))]
    one, other = (host(layer, "cart.default:9080") for layer in layers)
    assert one is other
    assert [host(layer).domains for layer in layers] == [host(layers[0]).domains] * 2
    assert "shop:9080" in host(layers[1]).domains


def test_another_rule_about_other_clients_changes_nothing():
    """What a host is made of has only the tests that its own rules ask."""
    builder = planner.Planner()
    of = sidecar("a.x", track="canary")
    before = outbound(builder.update(world()), of)
    more = meshes.rule(
        "stock", "{parents: [{service: stock}], http: [{matches: [{source: {labels: {app: y}}}]}]}"
    )
    after = outbound(builder.update(world(more)), of)
    assert host(after) is host(before)


def test_rules_of_the_clients_namespace_ask_for_clients_too():
    """And speak to nobody else."""
    consumer = meshes.rule(
        "mine.x",
        "{parents: [{service: shop, namespace: default}], http: [{name: mine,"
        " matches: [{source: {labels: {track: canary}}}], directResponse: {status: 418}}]}",
    )
    mesh = planner.Planner().update(world(consumer))
    assert routes(mesh, sidecar("a.x", track="canary"))[:2] == ["mine", "jobs"]
    assert "mine" not in routes(mesh, sidecar("a.x"))
    assert "mine" not in routes(mesh, sidecar("a.y", track="canary"))


def test_clusters_for_some_clients_are_with_them():
    """A version that only they are sent to."""
    mesh = planner.Planner().update(world())
    canary = plan.ClusterKey(
        direction=plan.Direction.OUTBOUND,
        port=9080,
        service=meshes.service_key("cart"),
        labels=keys.labels(track="canary"),
    )
    for of, there in ((sidecar("a", track="canary"), True), (sidecar("a"), False)):
        assert (canary in [one.key for one in outbound(mesh, of).clusters]) is there


def test_an_application_without_a_proxy_is_a_client():
    """Its library takes the routes that a sidecar would."""
    mesh = planner.Planner().update(world())
    node = proxy.NodeId(role=proxy.Role.GRPC, address="10.0.1.1", name="a", namespace="front")
    told = meshes.planned(mesh, proxy.Proxy(id=node)).proxyless[0]
    target = next(one for one in told.targets if one.name == "shop.default:9080")
    assert [one.route.name.rpartition("/")[2] for one in target.routes] == [
        "jobs",
        "web",
        "default",
    ]


def test_matches_for_other_gateways_or_for_gateways_only():
    """`mesh` is the clients in the mesh."""
    rule = """{parents: [{service: shop}, {gateway: edge}, {gateway: back}], http: [
      {name: in, matches: [{gateways: [mesh]}], destinations: [{service: cart}]},
      {name: edge, matches: [{gateways: [edge]}], destinations: [{service: cart}]},
      {name: back, matches: [{gateways: [default/back]}], destinations: [{service: cart}]},
      {name: all, matches: [{path: {exact: /}}], destinations: [{service: cart}]}]}"""
    gateways = [
        meshes.gateway(
            name,
            f"{{selector: {{app: {name}}}, listeners: [{{name: a, port: 80, protocol: HTTP}}]}}",
        )
        for name in ("edge", "back")
    ]
    mesh = planner.Planner().update(world(*gateways, rule=rule))
    assert routes(mesh, sidecar("a")) == ["all", "in", "default"]
    for name in ("edge", "back"):
        (configuration,) = meshes.planned(mesh, meshes.edge(name)).layers[0].route_configurations
        (only,) = configuration.virtual_hosts
        assert [one.name.rpartition("/")[2] for one in only.routes] == ["all", name]


@pytest.mark.parametrize(
    ("first", "second", "shadowed"),
    [
        ("{}", "{source: {namespace: a}}", True),
        ("{source: {namespace: a}}", "{source: {namespace: a}}", True),
        ("{source: {namespace: a}}", "{source: {namespace: b}}", False),
        ("{source: {namespace: a}}", "{}", False),
        ("{source: {namespace: a}}", "{source: {namespace: a}, path: {exact: /}}", False),
    ],
)
def test_who_is_never_reached(first: str, second: str, shadowed: bool):  # noqa: FBT001
    """What one client cannot reach another may."""
    rule = (
        f"{{parents: [{{service: shop}}], http: [{{matches: [{first}]}}, {{matches: [{second}]}}]}}"
    )
    mesh = planner.Planner().update(world(rule=rule))
    told = meshes.condition(mesh, "RouteRule", "shop", "Conflicted")
    assert (told is not None) is shadowed
