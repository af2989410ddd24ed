# SPDX-License-Identifier: Apache-2.0
"""Endpoints by place: priorities, weights, and which proxies share a layer."""

import dataclasses

import pytest

from pilothouse.model import keys, proxy
from pilothouse.routing import localities, plan, planner, upstreams
from tests.support import meshes, policy_worlds

PLACES = {
    "asia/a/1": 1,
    "eu/a/1": 1,
    "eu/a/2": 2,
    "eu/b/1": 1,
    "us/a/1": 4,
    "": 1,
}


def arranged(policy: upstreams.Locality, place: str) -> dict[str, plan.LocalityEndpoints]:
    """The localities of `PLACES` as a proxy at a place sees them."""
    found = plan.ClusterEndpoints(
        key=plan.ClusterKey(direction=plan.Direction.OUTBOUND, port=80),
        localities=tuple(
            plan.LocalityEndpoints(
                locality=policy_worlds.locality(name),
                addresses=tuple(plan.Address(host="10.0.0.1", port=n + 1) for n in range(count)),
            )
            for name, count in PLACES.items()
        ),
    )
    seen = localities.arrange(found, policy, policy_worlds.locality(place)).localities
    return {
        f"{one.locality.region}/{one.locality.zone}/{one.locality.sub_zone}".rstrip("/"): one
        for one in seen
    }


@pytest.mark.parametrize(
    ("place", "regions", "expected"),
    [
        ("eu/a/1", (), {"eu/a/1": 0, "eu/a/2": 1, "eu/b/1": 2, "": 3, "asia/a/1": 3, "us/a/1": 3}),
        (
            "eu/a/1",
            (("eu", "us"), ("us", "asia")),
            {"eu/a/1": 0, "eu/a/2": 1, "eu/b/1": 2, "us/a/1": 3, "": 4, "asia/a/1": 4},
        ),
        ("eu/c", (), {"eu/a/1": 0, "eu/a/2": 0, "eu/b/1": 0, "": 1, "asia/a/1": 1, "us/a/1": 1}),
        ("eu/a", (), {"eu/a/1": 0, "eu/a/2": 0, "eu/b/1": 1, "": 2, "asia/a/1": 2, "us/a/1": 2}),
        ("au", (), dict.fromkeys(PLACES, 0)),
        ("au", (("au", "us"),), dict.fromkeys(PLACES, 1) | {"us/a/1": 0}),
        ("", (("eu", "us"),), dict.fromkeys(PLACES, 0)),
    ],
)
def test_priorities(place: str, regions: tuple[tuple[str, str], ...], expected: dict[str, int]):
    """By distance, without gaps; a proxy of no known region prefers none."""
    found = arranged(upstreams.Failover(regions=regions), place)
    assert {name: one.priority for name, one in found.items()} == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("eu/a/1", {"eu/a/1": 1, "eu/a/2": 2, "us/a/1": 1}),
        ("eu/b", {"eu/b/1": 1}),
        ("us", None),
        ("", None),
    ],
)
def test_weights(place: str, expected: dict[str, int] | None):
    """The most specific place counts on both sides; a share is cut by number of endpoints."""
    policy = upstreams.Distribution(
        shares=(("eu", (("eu", 3), ("eu/b", 0), ("us/a", 1))), ("eu/b", (("eu/b/1", 1),)))
    )
    found = {name: one.weight for name, one in arranged(policy, place).items()}
    if expected is None:
        assert found == dict.fromkeys(PLACES)
    else:
        least = min(weight for weight in found.values() if weight)
        assert {name: (weight or 0) / least for name, weight in found.items()} == expected


NEAREST = meshes.policy("near", "{service: near, locality: {failover: {}}}")
ENDPOINTS = {
    name: [meshes.endpoint("10.0.0.1"), meshes.endpoint("10.0.0.2")] for name in ("near", "far")
}


def at(place: str, name: str = "client") -> proxy.Proxy:
    return meshes.sidecar(name, locality=policy_worlds.locality(place))


def mesh(*policies: object) -> planner.Mesh:
    return meshes.mesh(
        meshes.service("near"), meshes.service("far"), *policies, endpoints=ENDPOINTS
    )


def holding(whole: plan.ProxyPlan, name: str) -> plan.Layer:
    """The layer that holds the endpoints of a service."""
    (found,) = [
        layer
        for layer in whole.layers
        if any(one.key.service == meshes.service_key(name) for one in layer.endpoints)
    ]
    return found


def test_proxies_at_one_place_share_their_layer():
    """In whatever namespace; and everybody shares what no policy speaks of."""
    planned = mesh(NEAREST)
    here, there, elsewhere = (
        meshes.planned(planned, one) for one in (at("eu/a"), at("eu/a", "c.shop"), at("us/a"))
    )
    assert holding(here, "near") is holding(there, "near")
    assert holding(here, "near") is not holding(elsewhere, "near")
    assert holding(here, "far") is holding(elsewhere, "far")


def test_places_do_not_matter_to_a_mesh_without_policies_that_name_them():
    """The plan is the same object for all."""
    planned = mesh()
    assert meshes.planned(planned, at("eu/a")) is meshes.planned(planned, at("us/a"))


def test_a_policy_of_the_clients_own_counts_for_them_only():
    """Its cluster is theirs, and so are the priorities."""
    own = meshes.policy("own.shop", "{service: near, namespace: default, locality: {failover: {}}}")
    planned = mesh(own)
    layer = holding(meshes.planned(planned, at("eu", "c.shop")), "far")
    assert [one.key.scope for one in layer.endpoints] == ["", ""]
    placed = [
        one.key
        for other in meshes.planned(planned, at("eu", "c.shop")).layers
        if other is not layer
        for one in other.endpoints
        if one.key.service is not None
    ]
    assert [key.scope for key in placed] == ["shop"]


REGION = "topology.kubernetes.io/region"
LABELLED = {
    "both": (keys.labels(track="a", cell="1"), "eu/a"),
    "first": (keys.labels(track="a", cell="2"), "us/a"),
    "second": (keys.labels(track="b", cell="1"), "eu/b"),
    "none": ((), "eu/a"),
    "moved": ((("topology.kubernetes.io/region", "us"),), "eu/a"),
}


@pytest.mark.parametrize(
    ("labels", "own", "expected"),
    [
        ((), keys.labels(track="a"), [[*LABELLED]]),
        (
            (("track", None), ("cell", None)),
            keys.labels(track="a", cell="1"),
            [["both"], ["first"], ["second", "none", "moved"]],
        ),
        ((("track", None),), (), [["none", "moved"], ["both", "first", "second"]]),
        ((("cell", "2"),), keys.labels(cell="1"), [["first"], ["both", "second", "none", "moved"]]),
        (((REGION, None),), (), [["both", "second", "none"], ["first", "moved"]]),
        (((REGION, None),), ((REGION, "us"),), [["first", "moved"], ["both", "second", "none"]]),
        (
            ((REGION, None), ("track", "x")),
            (),
            [[], ["both", "second", "none"], ["first", "moved"]],
        ),
    ],
)
def test_endpoints_are_ranked_by_labels(
    labels: tuple[tuple[str, str | None], ...], own: keys.Labels, expected: list[list[str]]
):
    """By how many agree before the first that does not; an absent label is a value like others."""
    candidates = [
        meshes.endpoint("10.0.0.1", workload=name, locality=policy_worlds.locality(place))
        for name, (_, place) in LABELLED.items()
    ]
    candidates = [dataclasses.replace(one, labels=LABELLED[one.workload][0]) for one in candidates]
    stand = localities.Standpoint(place=policy_worlds.locality("eu/a"), labels=own)
    ranks = localities.ranked(upstreams.Failover(labels=labels), candidates, stand)
    assert [[one.workload for one in rank] for rank in ranks] == expected


def test_only_labels_that_a_policy_compares_tell_proxies_apart():
    """Two proxies that differ in others have one and the same plan."""
    policy = meshes.policy(
        "near", "{service: near, locality: {failover: {labels: [track, cell=1]}}}"
    )
    planned = mesh(policy)
    one, same, other = (
        meshes.planned(planned, meshes.sidecar(labels=keys.labels(**labels)))
        for labels in (
            {"app": "x", "track": "a", "cell": "1"},
            {"app": "x", "track": "a", "cell": "2"},
            {"app": "x", "track": "b", "cell": "1"},
        )
    )
    assert holding(one, "near") is holding(same, "near")
    assert holding(one, "near") is not holding(other, "near")
