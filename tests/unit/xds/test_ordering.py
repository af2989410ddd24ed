# SPDX-License-Identifier: Apache-2.0
"""Order and make before break on a stream: P49, P50, P54 and P55 of the protocol."""

import pytest

from pilothouse.xds import resources
from tests.support import xds_peer
from tests.support.xds_peer import (
    CDS,
    EDS,
    LDS,
    RDS,
    SDS,
    body,
    cluster,
    resource,
    route,
    snapshot,
)

VARIANTS = ("sotw", "delta")


@pytest.fixture(params=VARIANTS)
def peer(request):
    return xds_peer.connect(request.param)


def _mesh(name, *, version="1"):
    """One cluster with endpoints, and a listener and a route that lead to it."""
    return snapshot(
        *(cluster(name, version), resource(EDS, name)),
        *(resource(LDS, "l", refers=[(RDS, "r")]), route("r", name)),
    )


def _started(peer, view, *names):
    """A client that has all of a view, and asked for these endpoints."""
    peer.ask(CDS)
    peer.ask(LDS)
    peer.ask(RDS, "r")
    peer.ask(EDS, *names)
    peer.stream.update(view)
    peer.settle()
    assert peer.stream.in_sync


def test_p49_responses_go_out_in_the_order_of_dependence(peer):
    """Clusters, endpoints, listeners, routes, then secrets, whatever was asked first."""
    for kind in (SDS, RDS, LDS, EDS, CDS):
        peer.ask(kind, *(() if kind in (CDS, LDS) else ("x",)))
    peer.stream.update(snapshot(*(resource(kind, "x") for kind in (CDS, EDS, LDS, RDS, SDS))))
    assert [reply.type_url for reply in peer.read()] == [CDS, EDS, LDS, RDS, SDS]


def test_p50_a_route_is_repointed_in_three_acknowledged_steps(peer):
    """{X, Y}; the route to Y; {Y}: the last waits for the acknowledgement of the route."""
    _started(peer, _mesh("x"), "x")
    peer.stream.update(_mesh("y"))
    clusters = peer.read_one()
    assert clusters.type_url == CDS
    assert "y" in clusters.resources
    assert clusters.removed == ()
    assert ("x" in clusters.resources) == (peer.variant == "sotw")
    peer.ask(EDS, "y")
    peer.answer(peer.read_one())
    assert peer.read() == []
    peer.answer(clusters)
    routes = peer.read_one()
    assert routes.resources == {"r": body("r", "y")}
    assert peer.read() == []
    peer.answer(routes)
    last = peer.read_one()
    assert last.type_url == CDS
    if peer.variant == "sotw":
        assert list(last.resources) == ["y"]
    else:
        assert (last.resources, last.removed) == ({}, ("x",))
    peer.ask(EDS, drop=["x"])
    peer.answer(last)
    assert peer.read() == []
    assert peer.stream.in_sync


def test_p50_who_names_its_clusters_hears_of_routes_first(peer):
    """Else its routes of before would lead to a cluster that is gone, for as long as it takes."""
    peer.stream.update(snapshot(cluster("x"), cluster("z"), route("r", "x")))
    peer.ask(RDS, "r")
    peer.ask(CDS, "x", "z")
    peer.settle()
    peer.stream.update(snapshot(cluster("y"), cluster("z", "2"), route("r", "y")))
    assert [reply.type_url for reply in peer.read()] == [RDS, CDS]


def test_p50_a_client_that_names_its_clusters_is_not_kept_waiting(peer):
    """gRPC learns a cluster's name from the route, so the route comes at once."""
    peer.ask(LDS, "l")
    peer.ask(RDS, "r")
    peer.ask(CDS, "x")
    peer.ask(EDS, "x")
    peer.stream.update(_mesh("x"))
    peer.settle()
    peer.stream.update(_mesh("y"))
    routes = [reply for reply in peer.read() if reply.type_url == RDS]
    assert routes[0].resources == {"r": body("r", "y")}


@pytest.mark.parametrize("late", [(), (LDS,), (LDS, RDS), (RDS,), (CDS,), (CDS, LDS, RDS)])
def test_p50_types_that_are_asked_for_late_or_never_hold_up_nothing(peer, late):
    """Every combination ends in sync, before and after the late ones come."""
    names = {CDS: (), LDS: (), RDS: ("r",), EDS: ("x", "y")}
    for kind, wanted in names.items():
        if kind not in late:
            peer.ask(kind, *wanted)
    for view in (_mesh("x"), _mesh("y"), snapshot(), _mesh("x")):
        peer.stream.update(view)
        peer.settle()
        assert peer.stream.in_sync
    for number, kind in enumerate(late):
        peer.stream.update(_mesh("xy"[number % 2]))
        peer.ask(kind, *names[kind])
        peer.settle()
        assert peer.stream.in_sync
    assert peer.stream.acked(EDS) is peer.stream.target


def test_p50_a_refused_cluster_is_not_kept_in_the_union(peer):
    """A newer target starts from the step that was reached, without what was refused."""
    _started(peer, _mesh("x"), "x")
    peer.stream.update(_mesh("bad"))
    peer.answer(peer.read_one(), refuse="bad")
    peer.stream.update(_mesh("z"))
    clusters = peer.read_one()
    assert "z" in clusters.resources
    assert "bad" not in clusters.resources
    if peer.variant == "delta":
        assert clusters.removed == ("bad",)
    else:
        assert "x" in clusters.resources
    peer.answer(clusters)
    peer.settle()
    assert peer.stream.in_sync


def test_p50_a_refusal_that_comes_late_turns_back_from_later_steps(peer):
    """The newer target had been joined to what is refused only now."""
    _started(peer, _mesh("x"), "x")
    peer.stream.update(_mesh("bad"))
    refused = peer.read_one()
    peer.stream.update(_mesh("z"))
    assert peer.read() == []
    peer.answer(refused, refuse="bad")
    clusters = peer.read_one()
    assert "z" in clusters.resources
    assert "bad" not in clusters.resources


def test_p50_a_refused_route_is_rolled_back_with_its_clusters_kept(peer):
    """The old route works all the time; going back to it leaves nothing behind."""
    first = _mesh("x")
    _started(peer, first, "x")
    peer.stream.update(_mesh("y"))
    peer.answer(peer.read_one())
    routes = peer.read_one()
    peer.answer(routes, refuse="no")
    assert peer.read() == []
    assert not peer.stream.in_sync
    peer.stream.update(first)
    back = peer.settle()
    assert back[0].resources == {"r": body("r", "x")}
    assert [reply.type_url for reply in back] == [RDS, CDS]
    assert peer.stream.in_sync


def test_p50_clusters_stay_while_routes_are_in_flight(peer):
    """The same target once more does not hurry the removal: the routes may yet be refused."""
    _started(peer, _mesh("x"), "x")
    peer.stream.update(_mesh("y"))
    peer.answer(peer.read_one())
    routes = peer.read_one()
    peer.stream.update(_mesh("y"))
    assert peer.read() == []
    peer.answer(routes, refuse="no")
    assert peer.read() == []
    peer.stream.update(_mesh("x"))
    assert [reply.type_url for reply in peer.settle()] == [RDS, CDS]
    assert peer.stream.in_sync


def test_p50_a_refused_cluster_alone_keeps_the_rest_where_it_is(peer):
    """Nothing else moves until there is another target."""
    _started(peer, _mesh("x"), "x")
    peer.stream.update(_mesh("bad"))
    peer.answer(peer.read_one(), refuse="bad")
    assert peer.read() == []


def test_p50_a_refused_route_that_returns_beside_others_is_not_sent_again(peer):
    """Endpoints move, and clusters come; none goes, for the route of before may use it."""
    _started(peer, _mesh("x"), "x")
    bad = [cluster("x"), resource(EDS, "x"), resource(LDS, "l", refers=[(RDS, "r")])]
    peer.stream.update(snapshot(*bad, route("r", "x", "bad")))
    peer.answer(peer.read_one(), refuse="bad")
    bad[1] = resource(EDS, "x", "2")
    peer.stream.update(snapshot(*bad, cluster("y"), route("r", "x", "bad")))
    replies = peer.settle()
    assert [one.type_url for one in replies] == [CDS, EDS]
    assert replies[1].resources == {"x": body("x", "2")}
    assert not peer.stream.in_sync


def test_p50_a_refusal_does_not_take_endpoints_from_what_is_warming(peer):
    """Clusters that were sent before the refusal, and are not acknowledged, still need them."""
    _started(peer, _mesh("x"), "x")
    peer.stream.update(
        snapshot(*(one for one in _mesh("x").layers[0] if one.type_url != RDS), route("r", "bad"))
    )
    routes = peer.read_one()
    peer.stream.update(_mesh("y"))
    assert peer.read_one().type_url == CDS
    peer.ask(EDS, "y")
    peer.answer(routes, refuse="bad")
    peer.stream.update(_mesh("x"))
    answers = [reply for reply in peer.read() if reply.type_url == EDS]
    assert [list(reply.resources) for reply in answers] == [["y"]]
    for reply in answers:
        peer.answer(reply)
    assert peer.stream.current.get(EDS, "y") is not None


def test_p50_a_start_with_refused_routes_keeps_endpoints_of_what_is_warming(peer):
    """Nothing was ever reached, so the way is straight; the leaves stay until clusters went."""
    peer.ask(CDS)
    peer.ask(RDS, "r")
    peer.stream.update(_mesh("x"))
    clusters, routes = peer.read()
    peer.answer(clusters)
    peer.answer(routes, refuse="bad")
    peer.stream.update(_mesh("y"))
    clusters = next(reply for reply in peer.read() if reply.type_url == CDS)
    peer.stream.update(snapshot())
    peer.ask(EDS, "y")
    assert [reply.resources for reply in peer.read() if reply.type_url == EDS] == [{"y": body("y")}]


def test_p50_a_route_that_is_refused_late_does_not_block_the_next(peer):
    """Clusters were in force before routes were asked for; these are refused, then mended."""
    peer.ask(CDS)
    peer.ask(EDS, "x", "y")
    peer.stream.update(_mesh("x"))
    peer.settle()
    peer.ask(RDS, "r")
    peer.answer(peer.read_one(), refuse="bad")
    peer.stream.update(_mesh("y"))
    peer.settle()
    assert peer.stream.in_sync


def test_p15_what_is_refused_after_it_was_dropped_is_nobody_s(peer):
    """The refusal crossed a change of mind, so there is nothing to wait for."""
    peer.ask(EDS, "a")
    peer.stream.update(snapshot(resource(EDS, "a", "bad")))
    reply = peer.read_one()
    peer.ask(EDS, drop=["a"], nonce="old")
    peer.answer(reply, refuse="bad")
    assert peer.read() == []
    assert peer.stream.in_sync


def test_p50_a_newer_target_does_not_jump_the_queue(peer):
    """Routes wait for the clusters of the step before, however often the target is replaced."""
    _started(peer, _mesh("x"), "x")
    peer.stream.update(_mesh("y"))
    clusters = peer.read_one()
    for _ in range(3):
        peer.stream.update(_mesh("y"))
        assert peer.read() == []
    peer.ask(EDS, "y")
    assert peer.read_one().resources == {"y": body("y")}
    peer.answer(clusters)
    assert peer.read_one().resources == {"r": body("r", "y")}


def test_p50_endpoints_do_not_wait_for_the_step(peer):
    """Newer endpoints go out while clusters are not acknowledged; old ones stay as long."""
    _started(peer, _mesh("x"), "x")
    peer.stream.update(_mesh("y"))
    peer.read_one()
    newer = list(_mesh("z").layers[0])
    peer.stream.update(snapshot(*newer, cluster("y"), resource(EDS, "y", "2")))
    assert peer.read() == []
    peer.ask(EDS, "y")
    assert peer.read_one().resources == {"y": body("y", "2")}
    assert peer.stream.current.get(EDS, "x") is not None


def test_p50_a_first_refusal_does_not_take_listeners_away(peer):
    """One bad cluster at the start, and the next target still holds what was accepted."""
    peer.ask(CDS)
    peer.ask(LDS)
    peer.stream.update(_mesh("x"))
    clusters, listeners = peer.read()
    peer.answer(listeners)
    peer.answer(clusters, refuse="bad")
    peer.stream.update(_mesh("x", version="2"))
    assert [reply.type_url for reply in peer.settle()] == [CDS]
    assert peer.stream.in_sync


def test_p54_a_request_is_answered_from_the_step_that_is_delivered(peer):
    """Routes asked for in the middle of a change fit the clusters that were sent."""
    peer.ask(CDS)
    peer.stream.update(_mesh("x"))
    peer.settle()
    peer.stream.update(_mesh("y"))
    peer.read()
    peer.ask(RDS, "r")
    assert peer.read_one().resources == {"r": body("r", "x")}


def test_p55_equal_content_is_no_response(peer):
    """A new snapshot, other layers, other origins: not a byte, and in sync at once."""
    _started(peer, _mesh("x"), "x")
    again = list(_mesh("x").layers[0])
    for view in (
        _mesh("x"),
        resources.Snapshot.of([resources.Layer.of([one]) for one in again]),
        resources.Snapshot.of([resources.EMPTY_LAYER, resources.Layer.of(again)]),
    ):
        peer.stream.update(view)
        assert peer.stream.in_sync
        assert peer.read() == []
        assert peer.stream.acked(CDS) is view


def test_p55_what_others_see_is_no_response(peer):
    """A change of what this client did not ask for settles at once."""
    peer.ask(EDS, "a")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.settle()
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b", "2"), cluster("c")))
    assert peer.stream.in_sync
    assert peer.read() == []
