# SPDX-License-Identifier: Apache-2.0
"""What is the same object: between proxies of one state, and between one state and the next."""

import dataclasses

import pytest

from pilothouse.model import keys, services
from pilothouse.routing import plan, planner, state
from tests.support import meshes

SERVICES = tuple(meshes.service(name) for name in ("a", "b", "c.shop", "d.shop"))
RULE = """{parents: [{service: a}], http: [{destinations: [
  {service: a, labels: {version: v1}, weight: %d}, {service: b}]}]}"""
POLICY = meshes.policy("b", "{service: b, loadBalancer: {policy: RANDOM}}")
EDGE = meshes.gateway(
    "edge", "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP}]}"
)
ATTACHED = tuple(
    meshes.rule(
        f"at-{host}",
        f"{{parents: [{{gateway: edge}}], hosts: [{host}.com], http:"
        f" [{{destinations: [{{service: {host}}}]}}]}}",
    )
    for host in ("a", "b")
)
ENDPOINTS = {
    "a": (meshes.endpoint("10.0.0.1", version="v1"), meshes.endpoint("10.0.0.2", version="v2")),
    "b": (meshes.endpoint("10.0.1.1"),),
    "c.shop": (meshes.endpoint("10.0.2.1"),),
}


def world(*more: object, weight: int = 1, **parts: object) -> state.MeshState:
    rule = meshes.rule("a", RULE % weight)
    parts = {"endpoints": ENDPOINTS, **parts}
    return meshes.mesh_state(*SERVICES, rule, POLICY, EDGE, *ATTACHED, *more, **parts)


PROXIES = (
    meshes.sidecar("a-1", "10.0.0.1", labels=keys.labels(app="a")),
    meshes.sidecar("c-1.shop", "10.0.2.1", labels=keys.labels(app="c")),
    meshes.sidecar("batch.jobs", labels=keys.labels(app="batch")),
    meshes.edge(),
)


def plans(mesh: planner.Mesh) -> list[plan.ProxyPlan]:
    return [meshes.planned(mesh, proxy) for proxy in PROXIES]


def served(by: planner.Planner, one: state.MeshState) -> planner.Mesh:
    """The mesh of a state, after all proxies have asked for their plans."""
    mesh = by.update(one)
    plans(mesh)
    return mesh


def parts(whole: plan.ProxyPlan) -> dict[tuple[str, str], object]:
    """Everything that a plan holds, by kind and name."""
    found: dict[tuple[str, str], object] = {}
    for layer in whole.layers:
        found |= {("cluster", str(one.key)): one for one in layer.clusters}
        found |= {("endpoints", str(one.key)): one for one in layer.endpoints}
        found |= {("listener", one.name): one for one in layer.listeners}
        for routes in layer.route_configurations:
            found |= {(routes.name, one.name): one for one in routes.virtual_hosts}
    return found


def renewed(before: planner.Mesh, after: planner.Mesh, proxy: int = 0) -> set[tuple[str, str]]:
    """What is not the same object any more."""
    old, new = (parts(plans(mesh)[proxy]) for mesh in (before, after))
    return {name for name in old.keys() | new.keys() if old.get(name) is not new.get(name)}


def test_replicas_share_every_layer():
    """Nothing of a pod is in its configuration."""
    replica = meshes.sidecar("a-2", "10.0.0.2", labels=keys.labels(app="a"))
    mesh = planner.Planner().update(world())
    first, second = (meshes.planned(mesh, one) for one in (PROXIES[0], replica))
    assert first is second
    assert all(one is other for one, other in zip(first.layers, second.layers, strict=True))


def test_all_share_the_endpoints_layer():
    """Sidecars of all namespaces, and gateways."""
    mesh = planner.Planner().update(world())
    layers = [layer for whole in plans(mesh) for layer in whole.layers if layer.endpoints]
    assert len(layers) == len(PROXIES)
    assert all(layer is layers[0] for layer in layers)


def test_namespaces_without_anything_share_the_outbound_layer():
    """There is no limit to their number."""
    mesh = planner.Planner().update(world())
    one, other = (meshes.planned(mesh, meshes.sidecar(name)) for name in ("x.one", "x.two"))
    assert one.layers[0] is other.layers[0]


def test_foreign_hosts_are_the_same_objects_in_every_namespace():
    """Only the own services have one more name."""
    mesh = planner.Planner().update(world())
    here, there = (parts(one) for one in plans(mesh)[:2])
    same = {name for name in here.keys() & there.keys() if here[name] is there[name]}
    assert {name for kind, name in same if kind == "http-proxy"} == {"addresses"}
    elsewhere = parts(plans(mesh)[2])
    assert here["http-proxy", "c.shop:9080"] is elsewhere["http-proxy", "c.shop:9080"]
    assert there["http-proxy", "a.default:9080"] is elsewhere["http-proxy", "a.default:9080"]


def test_an_equal_state_gives_the_same_plans():
    """Also when everything in it was read anew."""
    one = planner.Planner()
    before = plans(one.update(world()))
    after = plans(one.update(world()))
    assert all(old is new for old, new in zip(before, after, strict=True))


def test_a_new_generation_that_means_the_same_changes_nothing():
    """Metadata that reaches no proxy renews nothing."""
    one = planner.Planner()
    before = plans(one.update(world()))
    again = meshes.rule("a", RULE % 1, generation=7, annotations=(("note", "x"),))
    after = plans(one.update(world(again)))
    assert all(old is new for old, new in zip(before, after, strict=True))


def test_a_rule_renews_only_the_hosts_that_it_speaks_of():
    """Not its destinations' hosts, no cluster, no endpoints."""
    one = planner.Planner()
    before = served(one, world())
    after = one.update(world(weight=2))
    for proxy in range(3):
        assert renewed(before, after, proxy) == {("http-proxy", "a.default:9080")}
    assert plans(before)[3] is plans(after)[3]


def test_a_rule_at_a_gateway_renews_only_its_host():
    """And nothing at sidecars."""
    one = planner.Planner()
    before = served(one, world())
    other = meshes.rule(
        "at-a",
        "{parents: [{gateway: edge}], hosts: [a.com], http: [{timeout: 2s,"
        " destinations: [{service: a}]}]}",
    )
    after = one.update(world(other))
    assert renewed(before, after, 3) == {("gateway|80", "a.com")}
    assert all(plans(before)[n] is plans(after)[n] for n in range(3))


def test_endpoints_renew_only_their_own():
    """No cluster, no route: pods come and go without them."""
    one = planner.Planner()
    before = served(one, world())
    moved = {**ENDPOINTS, "a": (*ENDPOINTS["a"], meshes.endpoint("10.0.0.3", version="v2"))}
    after = one.update(world(endpoints=moved))
    (changed,) = renewed(before, after)
    assert changed[0] == "endpoints"
    assert "version" not in changed[1]
    for old, new in zip(plans(before), plans(after), strict=True):
        assert [a is b for a, b in zip(old.layers, new.layers, strict=True)].count(False) == 1


def test_a_policy_renews_only_its_cluster():
    """Not the routes to it."""
    one = planner.Planner()
    before = served(one, world())
    after = one.update(world(meshes.policy("b", "{service: b, connectTimeout: 1s}")))
    (changed,) = renewed(before, after)
    assert changed[0] == "cluster"
    assert "'b'" in changed[1]


@pytest.mark.parametrize(
    "service",
    [
        dataclasses.replace(SERVICES[1], selector=keys.labels(app="b", tier="back")),
        dataclasses.replace(SERVICES[1], key=keys.ServiceKey("default", "e")),
    ],
    ids=["a selector", "a new service"],
)
def test_services_renew_only_what_they_reach(service: services.Service):
    """A selector that no known proxy is under reaches nothing, a new service only itself."""
    one = planner.Planner()
    before = served(one, world())
    after = one.update(world(service))
    mine = {f"{service.key.name}.default:9080", f"'{service.key.name}'"}
    assert all(any(one in name for one in mine) for _, name in renewed(before, after))


def test_a_mesh_answers_for_its_own_state_after_another_came():
    """A stream that still works on the old state is not led astray."""
    one = planner.Planner()
    before = one.update(world())
    expected = planner.Planner().update(world())
    one.update(world(weight=5, endpoints={}))
    assert plans(before) == plans(expected)
