# SPDX-License-Identifier: Apache-2.0
"""What goes on while listeners or routes are refused: all the rest, in its order.

A listener may be refused for a port that is taken; that is no reason for routes to stand still.
"""

import pytest

from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS, body, cluster, resource, route, snapshot


@pytest.fixture(params=("sotw", "delta"))
def peer(request):
    return xds_peer.connect(request.param)


def _view(*clusters, listener="good", routes="", endpoints="1"):
    """Clusters with endpoints, a listener, and a route that leads to all of the clusters."""
    return snapshot(
        *(cluster(name) for name in clusters),
        *(resource(EDS, name, endpoints) for name in clusters),
        resource(LDS, "l", listener, refers=[(RDS, "r")]),
        route("r", *clusters, *([routes] if routes else [])),
    )


def _start(peer, view, *clusters):
    peer.stream.update(view)
    for kind, names in ((CDS, ()), (EDS, clusters), (LDS, ()), (RDS, ("r",))):
        peer.ask(kind, *names)
    peer.settle()
    assert peer.stream.in_sync


def _settle(peer, refused):
    """Acknowledge everything but a type; give what was read, as type and names."""
    seen = []
    while replies := peer.read():
        for one in replies:
            peer.answer(one, refuse="no" if one.type_url == refused else None)
            seen.append((one.type_url, *sorted(one.resources)))
    return seen


def test_routes_move_in_steps_beside_a_refused_listener(peer):
    """The new cluster, then its route; the listener is not sent again."""
    _start(peer, _view("a"), "a")
    peer.stream.update(_view("a", listener="bad"))
    assert _settle(peer, LDS) == [(LDS, "l")]

    peer.stream.update(_view("a", "b", listener="bad"))
    clusters = peer.read_one()
    assert clusters.type_url == CDS
    assert peer.read() == [], "the route waits for its cluster"
    peer.answer(clusters)
    routes = peer.read_one()
    assert routes.resources == {"r": body("r", "a+b")}
    peer.answer(routes)
    assert peer.read() == []
    assert not peer.stream.in_sync


def test_clusters_stay_while_a_listener_is_refused(peer):
    """It may be the one of before that uses them. They go when a listener is accepted."""
    _start(peer, _view("a"), "a")
    peer.stream.update(_view("a", listener="bad"))
    _settle(peer, LDS)
    peer.stream.update(_view("b", listener="bad"))
    seen = _settle(peer, LDS)
    assert [kind for kind, *_ in seen] == [CDS, RDS]
    assert seen[-1] == (RDS, "r")

    peer.stream.update(_view("b", listener="better"))
    last = [one for one in peer.settle() if one.type_url in (LDS, CDS)]
    assert peer.stream.in_sync
    assert last[0].type_url == LDS
    assert last[-1].type_url == CDS
    if peer.variant == "delta":
        assert last[-1].removed == ("a",)
    else:
        assert set(last[-1].resources) == {"b"}


def test_endpoints_move_while_a_listener_is_refused(peer):
    """Those of clusters that are on their way out too."""
    _start(peer, _view("a"), "a")
    peer.stream.update(_view("a", listener="bad"))
    _settle(peer, LDS)
    peer.stream.update(_view("a", listener="bad", endpoints="2"))
    assert _settle(peer, LDS) == [(EDS, "a")]


def test_listeners_go_on_beside_a_refused_route(peer):
    """And the route of before keeps its clusters."""
    _start(peer, _view("a"), "a")
    peer.stream.update(_view("a", routes="bad"))
    assert _settle(peer, RDS) == [(RDS, "r")]
    peer.stream.update(_view("a", routes="bad", listener="other"))
    assert _settle(peer, RDS) == [(LDS, "l")]
    peer.stream.update(_view("a", listener="other"))
    peer.settle()
    assert peer.stream.in_sync


def test_a_refused_cluster_holds_up_what_may_need_it(peer):
    """Routes that lead to it would be answered 503."""
    _start(peer, _view("a"), "a")
    peer.stream.update(_view("a", "bad"))
    assert [kind for kind, *_ in _settle(peer, CDS)] == [CDS]
    peer.stream.update(_view("a", "bad", listener="other"))
    assert _settle(peer, CDS) == []


@pytest.mark.parametrize("variant", ["sotw", "delta"])
def test_clusters_stay_while_the_first_routes_are_refused(variant):
    """The client may use routes from before its stream; each new target leaves theirs alone."""
    peer = xds_peer.connect(variant)
    peer.stream.update(_view("a", routes="bad"))
    for kind, names in ((CDS, ()), (EDS, ("a",)), (LDS, ()), (RDS, ("r",))):
        peer.ask(kind, *names)
    _settle(peer, RDS)
    assert peer.stream.refusals == {RDS: "no"}

    peer.stream.update(_view("b"))
    told = []
    while replies := peer.read():
        for one in replies:
            if one.type_url == CDS:
                gone = "a" in one.removed or (variant == "sotw" and "a" not in one.resources)
                told.append("a goes" if gone else "a stays")
            if one.type_url == RDS:
                told.append("routes")
            if one.type_url == CDS and "b" in one.resources:
                peer.ask(EDS, "b")
            peer.answer(one)
    assert told == ["a stays", "routes", "a goes"]
    assert peer.stream.in_sync
