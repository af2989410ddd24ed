# SPDX-License-Identifier: Apache-2.0
"""The peers of a proxy, by which it weighs zones: who gets them, and who shares them."""

import dataclasses

import pytest

from pilothouse.model import keys, proxy, services
from pilothouse.routing import peers, plan, planner, upstreams
from tests.support import meshes, policy_worlds

AWARE = meshes.policy("p", "{service: web, locality: {zoneAware: {}}}")
PORT_AWARE = meshes.policy("p", "{service: web, ports: [{port: 9080, locality: {zoneAware: {}}}]}")


def at(address: str, place: str, **parts: object) -> services.Endpoint:
    found: services.Endpoint = meshes.endpoint(
        address, locality=policy_worlds.locality(place), **parts
    )
    return found


ENDPOINTS = {
    "web": [at("10.0.1.1", "eu/a")],
    "client": [
        at("10.0.0.1", "eu/b"),
        at("10.0.0.2", "eu/a"),
        at("10.0.0.3", "eu/a", ready=False),
    ],
    # The same workload, and a part of it that is elsewhere.
    "client-admin": [at("10.0.0.1", "eu/b", number=1), at("10.0.0.4", "us/a", number=1)],
}


def mesh(*policies: object) -> planner.Mesh:
    known = [meshes.service(name) for name in ENDPOINTS]
    return meshes.mesh(*known, *policies, endpoints=ENDPOINTS)


def client(address: str, place: str = "eu/b") -> proxy.Proxy:
    return meshes.sidecar(address=address, locality=policy_worlds.locality(place))


def held(whole: planner.Mesh, of: proxy.Proxy) -> list[plan.ClusterEndpoints]:
    """The peers in a proxy's plan, if it has any."""
    layers = meshes.planned(whole, of).layers
    return [one for layer in layers for one in layer.endpoints if one.key == peers.KEY]


@pytest.mark.parametrize("policy", [AWARE, PORT_AWARE])
def test_peers_are_the_ready_endpoints_of_the_proxys_services(policy: object):
    """Each address once, by place; also of a policy for one port only."""
    (found,) = held(mesh(policy), client("10.0.0.1"))
    assert [
        (one.locality.region, one.locality.zone, [address.host for address in one.addresses])
        for one in found.localities
    ] == [("eu", "a", ["10.0.0.2"]), ("eu", "b", ["10.0.0.1"]), ("us", "a", ["10.0.0.4"])]


@pytest.mark.parametrize(
    ("policies", "address"), [((), "10.0.0.1"), ((AWARE,), "10.0.0.9"), ((AWARE,), "10.0.1.2")]
)
def test_without_peers_they_are_told_to_be_none(policies: tuple[object, ...], address: str):
    """Nobody weighs zones, or the proxy is no endpoint; still its Envoy waits to be told."""
    assert held(mesh(*policies), client(address)) == [plan.ClusterEndpoints(key=peers.KEY)]


def test_a_proxy_that_is_nowhere_has_none():
    """It has no zone to prefer, and its bootstrap does not ask for peers."""
    assert held(mesh(AWARE), client("10.0.0.1", "")) == []


def test_replicas_share_their_peers():
    """One layer for all in the same services, another for others."""
    whole = mesh(AWARE)
    (one,), (same,), (other,) = (
        held(whole, client(address)) for address in ("10.0.0.2", "10.0.0.3", "10.0.1.1")
    )
    assert one is same
    assert other != one


def test_zones_are_weighed_among_endpoints_that_agree_on_labels():
    """All of those that agree have the first priority, in whatever zone."""
    policy = "{service: web, locality: {zoneAware: {failover: {labels: [track]}}}}"
    places = ("eu/a", "eu/b", "us/a")
    tracks = ("x", "x", "y")
    whole = meshes.mesh(
        meshes.service("web"),
        meshes.policy("p", policy),
        endpoints={
            "web": [
                dataclasses.replace(at(f"10.0.0.{n}", place), labels=keys.labels(track=track))
                for n, (place, track) in enumerate(zip(places, tracks, strict=True))
            ]
        },
    )
    of = dataclasses.replace(client("10.0.0.9", "eu/a"), labels=keys.labels(track="x"))
    (found,) = [
        one
        for layer in meshes.planned(whole, of).layers
        for one in layer.endpoints
        if one.key.service
    ]
    assert [(one.locality.zone, one.priority) for one in found.localities] == [
        ("a", 0),
        ("b", 0),
        ("a", 1),
    ]


@pytest.mark.parametrize(
    ("failover", "expected"),
    [
        (None, {"eu/a": 0, "eu/b": 0, "us/a": 0}),
        (upstreams.Failover(), {"eu/a": 0, "eu/b": 0, "us/a": 1}),
    ],
)
def test_zones_of_a_region_have_one_priority(
    failover: upstreams.Failover | None, expected: dict[str, int]
):
    """They are the proxy's to weigh; regions come one after another where the policy says so."""
    policy = "" if failover is None else "failover: {}"
    whole = meshes.mesh(
        meshes.service("web"),
        meshes.policy("p", f"{{service: web, locality: {{zoneAware: {{{policy}}}}}}}"),
        endpoints={"web": [at(f"10.0.0.{n}", place) for n, place in enumerate(expected)]},
    )
    (found,) = [
        one
        for layer in meshes.planned(whole, client("10.0.0.9", "eu/a")).layers
        for one in layer.endpoints
        if one.key.service
    ]
    assert {
        f"{one.locality.region}/{one.locality.zone}": one.priority for one in found.localities
    } == expected
