# SPDX-License-Identifier: Apache-2.0
"""Mirrors as routing plans them."""

from pilothouse.model import keys
from pilothouse.routing import plan
from tests.support import meshes

RULE = (
    "{{parents: [{{service: reviews}}], http: [{{destinations: [{{service: reviews}}],"
    " mirrors: [{{destination: {}, percent: 0.5}}]}}]}}"
)


def forward(whole: plan.ProxyPlan) -> plan.Forward:
    """What the rule's route does."""
    (found,) = (
        route.action
        for layer in whole.layers
        for configuration in layer.route_configurations
        for host in configuration.virtual_hosts
        for route in host.routes
        if route.name.startswith("RouteRule/")
    )
    assert isinstance(found, plan.Forward)
    return found


def test_a_mirror_has_a_cluster_and_endpoints():
    """Also one by labels that nothing else uses."""
    mesh = meshes.mesh(
        meshes.service("reviews"),
        meshes.service("copies"),
        meshes.rule("r", RULE.format("{service: copies, labels: {version: v9}}")),
        endpoints={"copies": [meshes.endpoint("10.0.0.1", version="v9")]},
    )
    whole = meshes.planned(mesh, meshes.sidecar())
    (mirror,) = forward(whole).mirrors
    assert mirror.millionths == 5_000
    assert mirror.cluster.labels == keys.labels(version="v9")
    assert mirror.cluster in {one.key for layer in whole.layers for one in layer.clusters}
    assert mirror.cluster in {one.key for layer in whole.layers for one in layer.endpoints}


def test_a_mirror_goes_where_the_clients_own_policy_says():
    """A namespace with a policy of its own has a cluster of its own, for copies too."""
    mesh = meshes.mesh(
        meshes.service("reviews"),
        meshes.service("copies"),
        meshes.rule("r", RULE.format("{service: copies}")),
        meshes.policy("p.shop", "{service: copies, namespace: default, connectTimeout: 1s}"),
    )
    whole = meshes.planned(mesh, meshes.sidecar("client.shop"))
    assert forward(whole).mirrors[0].cluster.scope == "shop"


def test_a_mirror_that_leads_nowhere_is_told():
    """By its field; the route goes on without it."""
    mesh = meshes.mesh(meshes.service("reviews"), meshes.rule("r", RULE.format("{service: gone}")))
    assert forward(meshes.planned(mesh, meshes.sidecar())).mirrors == ()
    condition = meshes.condition(mesh, "RouteRule", "r")
    assert condition is not None
    assert (condition.status, condition.reason) == (False, "BackendNotFound")
    assert condition.message.startswith("spec.http[0].mirrors[0].destination: ")
