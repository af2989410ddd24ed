# SPDX-License-Identifier: Apache-2.0
"""Which proxies wait for which sources."""

import pytest

from pilothouse.model import proxy
from pilothouse.routing import plan
from tests.support import calls, meshes

REVIEWS = meshes.service("reviews", meshes.port(80, target=9080))


EGRESS = meshes.external(
    "bank", "{hosts: [bank.example], ports: [{number: 80}], throughEgressGateway: true}"
)


@pytest.mark.parametrize(
    ("unsynced", "known", "of", "waits"),
    [
        ({"files"}, (), meshes.sidecar(), ("files",)),
        ({"ingress", "kubernetes", "files"}, (), meshes.sidecar(), ("files", "kubernetes")),
        ({"ingress", "egress"}, (), meshes.sidecar(), ()),
        ({"ingress", "egress"}, (EGRESS,), meshes.sidecar(), ("egress",)),
        ({"ingress", "egress"}, (), meshes.edge(), ("egress", "ingress")),
        ({"files"}, (), meshes.edge(), ("files",)),
    ],
)
def test_a_proxy_waits_for_the_sources_that_it_needs(
    unsynced: set[str], known: tuple[object, ...], of: proxy.Proxy, waits: tuple[str, ...]
):
    """Nothing that was not read yet counts as empty; nobody waits for what cannot concern it."""
    found = meshes.mesh(*known, unsynced=frozenset(unsynced)).plan(of)
    if waits:
        assert found == plan.NotReady(waiting_for=waits)
    else:
        assert isinstance(found, plan.ProxyPlan)


def test_a_source_gets_nothing():
    """Other services are no proxies."""
    of = proxy.Proxy(
        id=proxy.NodeId(
            role=proxy.Role.SOURCE, address="", name="ingress", namespace="pilothouse-system"
        )
    )
    found = meshes.mesh(REVIEWS, unsynced=frozenset({"files"})).plan(of)
    assert found == plan.ProxyPlan(layers=())


def test_a_proxy_that_is_served_does_not_stand_still():
    """An external service behind a gateway never heard of is answered 503; the rest goes on."""
    whole = meshes.mesh(
        meshes.service("web", 80),
        meshes.external(
            "outside",
            "{hosts: [outside.example], ports: [{number: 80}], throughEgressGateway: true}",
        ),
        endpoints={"web": [meshes.endpoint("10.0.0.1", 80, "http-80")]},
        unsynced=frozenset({"egress"}),
    )
    assert whole.plan(meshes.sidecar()) == plan.NotReady(waiting_for=("egress",))
    found = whole.plan(meshes.sidecar(), served=True)
    assert calls.get(found, "http://outside.example/").status == 503
    assert calls.get(found, "http://web/").addresses == {"web.default:80": ("10.0.0.1:80",)}
