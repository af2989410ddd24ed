# SPDX-License-Identifier: Apache-2.0
"""Proxies of one kind are planned once, and a proxy is looked at again only when its own place is
another."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from pilothouse.model import keys, proxy, services
from pilothouse.routing import kinship, plan, planner, state
from tests.support import meshes

SERVICES = (meshes.service("a"), meshes.service("b", selector=()))
REPLICAS = [
    meshes.sidecar(f"a-{number}", f"10.0.0.{number}", labels=keys.labels(app="a"))
    for number in (1, 2, 3)
]


def world(**addresses: list[str]) -> state.MeshState:
    endpoints = {
        name: tuple(meshes.endpoint(one) for one in found) for name, found in addresses.items()
    }
    return meshes.mesh_state(*SERVICES, endpoints=endpoints)


def inbound(planned: plan.ProxyPlan) -> set[int]:
    """The ports of the application that a sidecar serves."""
    return {
        one.key.port
        for layer in planned.layers
        for one in layer.clusters
        if one.key.direction is plan.Direction.INBOUND
    }


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The proxies whose kind was worked out."""
    found: list[str] = []
    real: Callable[..., Any] = kinship.sidecar

    def sidecar(of: Any, *about: Any) -> Any:
        found.append(of.id.name)
        return real(of, *about)

    monkeypatch.setattr(kinship, "sidecar", sidecar)
    return found


def test_a_change_elsewhere_looks_at_no_proxy(looked: list[str]) -> None:
    """It is planned for their kind, and all of them get the same new plan."""
    one = planner.Planner()
    before = one.update(world(a=["10.0.0.1", "10.0.0.2"], b=["10.0.9.1"]))
    old = [meshes.planned(before, replica) for replica in REPLICAS]
    assert looked == ["a-1", "a-2", "a-3"]
    after = one.update(world(a=["10.0.0.1", "10.0.0.2"], b=["10.0.9.2"]))
    new = [meshes.planned(after, replica) for replica in REPLICAS]
    assert looked == ["a-1", "a-2", "a-3"]
    assert new[0] is new[1] is not old[0]


def test_one_that_begins_to_serve_is_looked_at_alone(looked: list[str]) -> None:
    """Its address has become that of an endpoint; its neighbours stay as they are."""
    one = planner.Planner()
    before = one.update(world(b=["10.0.9.1"]))
    assert [inbound(meshes.planned(before, replica)) for replica in REPLICAS] == [set()] * 3
    looked.clear()
    after = one.update(world(b=["10.0.0.2", "10.0.9.1"]))
    found = [inbound(meshes.planned(after, replica)) for replica in REPLICAS]
    assert (found, looked) == ([set(), {9080}, set()], ["a-2"])


def test_a_pod_that_comes_to_be_known_counts(looked: list[str]) -> None:
    """Its labels are a proxy's own, when the proxy names none."""
    nameless = meshes.sidecar("x", "10.0.0.7")
    one = planner.Planner()
    assert inbound(meshes.planned(one.update(world()), nameless)) == set()
    pod = services.Workload(
        namespace="default", name="x", addresses=("10.0.0.7",), labels=keys.labels(app="a")
    )
    known = meshes.mesh_state(*SERVICES, workloads=(pod,))
    assert inbound(meshes.planned(one.update(known), nameless)) == {9080}
    assert looked == ["x", "x"]


def test_equal_kinds_are_one_object() -> None:
    """Also those that different planners found."""
    first, second = (
        planner.Planner().update(world(a=["10.0.0.1"])).kind(REPLICAS[1]) for _ in range(2)
    )
    assert first is second


def test_endpoints_that_change_concern_proxies_at_their_addresses() -> None:
    """The old ones and the new ones; those of services that stayed as they were concern nobody."""
    stays, old, new = ((meshes.endpoint(f"10.0.{number}.1"),) for number in (0, 8, 9))

    one = planner.Planner()
    first, second, third = (
        one.update(meshes.mesh_state(*SERVICES, endpoints=endpoints))
        for endpoints in ({"a": stays, "b": old}, {"a": stays, "b": new}, {"a": stays})
    )
    assert second.moved(first) == frozenset({"10.0.8.1", "10.0.9.1"})
    assert third.moved(second) == frozenset({"10.0.9.1"})
    assert third.moved(third) == frozenset()


@pytest.mark.parametrize(
    "changed",
    [
        meshes.mesh_state(*SERVICES, meshes.service("c")),
        meshes.mesh_state(
            *SERVICES,
            meshes.gateway("edge", "{listeners: [{name: http, port: 80, protocol: HTTP}]}"),
        ),
        meshes.mesh_state(*SERVICES, meshes.rule("a", "{parents: [{service: a}]}")),
        meshes.mesh_state(*SERVICES, unsynced=frozenset({"files"})),
        meshes.mesh_state(
            *SERVICES,
            workloads=(services.Workload(namespace="default", name="x", addresses=("10.0.0.7",)),),
        ),
    ],
    ids=["service", "gateway", "rule", "unsynced", "pod"],
)
def test_whatever_else_changes_may_concern_anybody(changed: state.MeshState) -> None:
    """Then nobody is taken for what it was."""
    one = planner.Planner()
    before = one.update(meshes.mesh_state(*SERVICES))
    after = one.update(changed)
    assert after.moved(before) is None
    assert one.update(changed).moved(after) == frozenset()


def test_nothing_is_kept_of_a_proxy_that_has_gone() -> None:
    """Though there is no new state; a gRPC application is of a kind of its own, by its address."""
    mesh = planner.Planner().update(world(a=["10.0.0.1"]))
    gone: list[weakref.ref[object]] = []
    for number in range(3):
        of = proxy.Proxy(
            id=proxy.NodeId(
                role=proxy.Role.GRPC, address=f"10.9.0.{number}", name="x", namespace="default"
            )
        )
        gone += [weakref.ref(of), weakref.ref(meshes.planned(mesh, of))]
        del of
    assert [one() is None for one in gone[::2]] == [True] * 3
    for number in range(2 * planner.FORGOTTEN):
        address = f"10.8.{number >> 8}.{number & 255}"
        node = proxy.NodeId(role=proxy.Role.GRPC, address=address, name="x", namespace="default")
        mesh.plan(proxy.Proxy(id=node))
    assert [one() is None for one in gone] == [True] * 6
