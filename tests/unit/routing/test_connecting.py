# SPDX-License-Identifier: Apache-2.0
"""How connections are made where no policy says it."""

import dataclasses

from pilothouse.model import keys
from pilothouse.routing import hosts, plan, planner, upstreams
from tests.support import meshes

MESH = keys.ObjectKey("MeshConfig", "pilothouse-system", "default")
SAYS = "{connectTimeout: 3s, tcpKeepalive: {time: 600s, probes: 2}, outboundPolicy: ALLOW_ANY}"
KEEPALIVE = upstreams.TcpKeepalive(time_s=600, probes=2)
PARTS = (
    meshes.service("web", 80),
    meshes.service("own", 80),
    meshes.service("less", 80),
    meshes.external("outside", "{hosts: [out.example], ports: [{number: 80}]}"),
    meshes.policy(
        "own",
        "{service: own, connectTimeout: 1s, connectionPool: {tcpKeepalive: {interval: 9s}},"
        " loadBalancer: {policy: RANDOM}}",
    ),
    meshes.policy("less", "{service: less, connectionPool: {idleTimeout: 60s}}"),
)


def outbound(spec: str, *more: object) -> dict[str, plan.Cluster]:
    """The clusters of a sidecar that lead elsewhere, by the name of what they lead to."""
    mesh = meshes.mesh(*PARTS, *more, meshes.defaults(spec))
    planned = meshes.planned(mesh, meshes.sidecar())
    return {
        one.key.service.name if one.key.service else "asked": one
        for layer in planned.layers
        for one in layer.clusters
        if one.key == hosts.ASKED or one.key.service is not None
    }


def test_what_the_mesh_says_holds_where_no_policy_says_it() -> None:
    """For services, hosts outside, and hosts that nothing speaks of; keepalive in any pool."""
    found = outbound(SAYS)
    assert set(found) == {"web", "own", "less", "outside", "asked"}
    said = {
        name: (one.settings.connect_timeout_ms, one.settings.connection_pool.tcp_keepalive)
        for name, one in found.items()
    }
    assert said.pop("own") == (1_000, upstreams.TcpKeepalive(interval_s=9))
    assert set(said.values()) == {(3_000, KEEPALIVE)}
    assert found["less"].settings.connection_pool.idle_timeout_ms == 60_000
    assert found["own"].settings.load_balancer.policy == "random"


def test_clusters_come_from_the_mesh_where_it_says_something() -> None:
    """So that its status counts who runs them; one that says nothing of it changes none."""
    assert all(MESH in one.origins for one in outbound(SAYS).values())
    silent = outbound("{}")
    assert all(MESH not in one.origins for one in silent.values())
    assert {one.settings.connect_timeout_ms for one in silent.values()} == {10_000, 1_000}


def test_a_policy_that_repeats_the_mesh_needs_no_cluster_of_its_own() -> None:
    """A namespace's own policies make clusters only where something is different."""
    repeats = meshes.policy("mine", "{service: web, namespace: default, connectTimeout: 3s}")
    (config,) = repeats.values()
    elsewhere = {
        keys.ObjectKey("DestinationPolicy", "team", "mine"): dataclasses.replace(
            config,
            meta=dataclasses.replace(
                config.meta, key=keys.ObjectKey("DestinationPolicy", "team", "mine")
            ),
        )
    }
    for spec, scope in ((SAYS, ""), ("{}", "team")):
        mesh = planner.Planner().update(meshes.mesh_state(*PARTS, elsewhere, meshes.defaults(spec)))
        planned = meshes.planned(mesh, meshes.sidecar("a.team"))
        scopes = {
            one.key.scope
            for layer in planned.layers
            for one in layer.clusters
            if one.key.service and one.key.service.name == "web"
        }
        assert scopes == {scope}
