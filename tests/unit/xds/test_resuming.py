# SPDX-License-Identifier: Apache-2.0
"""A client that comes back with clusters of an earlier stream, to a server that has other ones."""

import pytest

from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS, cluster, resource, route, snapshot

BEFORE = snapshot(
    *(cluster("old"), cluster("kept"), resource(EDS, "old"), resource(EDS, "kept")),
    *(resource(LDS, "l", refers=[(RDS, "r")]), route("r", "old", "kept")),
)
AFTER = snapshot(
    *(cluster("new"), cluster("kept"), resource(EDS, "new"), resource(EDS, "kept")),
    *(resource(LDS, "l", refers=[(RDS, "r")]), route("r", "new", "kept")),
)


def _claims(peer, kind, view=BEFORE):
    if peer.variant == "sotw":
        return {"": view.version(kind)}
    return {name: one.version for name, one in view.resources(kind).items()}


def _reconnect(peer, *, before=BEFORE):
    """What Envoy sends at once on a new stream."""
    for kind, names in ((CDS, ()), (EDS, ("kept", "old")), (LDS, ()), (RDS, ("r",))):
        peer.ask(kind, *names, held=_claims(peer, kind, before))


@pytest.fixture(params=("sotw", "delta"))
def peer(request):
    return xds_peer.connect(request.param)


@pytest.mark.parametrize("update_first", [True, False])
def test_listeners_and_routes_wait_for_the_clusters(peer, update_first):
    """A route that leads to a cluster which is not warm is answered 503."""
    if update_first:
        peer.stream.update(AFTER)
    _reconnect(peer)
    if not update_first:
        peer.stream.update(AFTER)
    first = peer.read()
    assert {one.type_url for one in first} == {CDS, EDS}
    (clusters,) = (one for one in first if one.type_url == CDS)
    # Envoy asks for the endpoints of what is new, and only then acknowledges clusters.
    peer.ask(EDS, "new")
    for one in first:
        if one.type_url == EDS:
            peer.answer(one)
    while replies := peer.read():
        assert {one.type_url for one in replies} == {EDS}
        for one in replies:
            peer.answer(one)
    peer.answer(clusters)
    assert RDS in {one.type_url for one in peer.read()}


def test_clusters_go_when_their_users_are_acknowledged():
    """Delta: the client's routes lead to the old ones until then."""
    peer = xds_peer.connect("delta")
    peer.stream.update(AFTER)
    _reconnect(peer)
    seen = [(one.type_url, tuple(sorted(one.resources)), one.removed) for one in peer.settle()]
    gone = seen.index((CDS, (), ("old",)))
    assert seen.index((CDS, ("new",), ())) < seen.index((RDS, ("r",), ())) < gone
    assert peer.stream.in_sync


def test_clusters_that_only_go_are_told_before_they_do():
    """Delta: an empty answer makes sure that listeners and routes were asked for by then."""
    peer = xds_peer.connect("delta")
    peer.stream.update(
        snapshot(
            *(cluster("kept"), resource(EDS, "kept")),
            *(resource(LDS, "l", refers=[(RDS, "r")]), route("r", "kept")),
        )
    )
    peer.ask(CDS, held=_claims(peer, CDS))
    empty = peer.read_one()
    assert (empty.type_url, empty.resources, empty.removed) == (CDS, {}, ())
    peer.ask(LDS, held=_claims(peer, LDS))
    peer.ask(RDS, "r", held=_claims(peer, RDS))
    assert peer.read() == []
    peer.answer(empty)
    replies = peer.settle()
    assert [(one.type_url, one.removed) for one in replies] == [(RDS, ()), (CDS, ("old",))]
    assert peer.stream.in_sync


def test_a_client_without_clusters_is_answered_at_once(peer):
    """P7 and P39: one that has just started waits for listeners, whatever else comes or not."""
    peer.stream.update(AFTER)
    for kind, names in ((CDS, ()), (LDS, ()), (RDS, ("r",))):
        peer.ask(kind, *names)
    assert [one.type_url for one in peer.read()] == [CDS, LDS, RDS]


def test_a_refusal_of_clusters_keeps_nobody_waiting(peer):
    """What can be served beside them is."""
    peer.stream.update(AFTER)
    _reconnect(peer)
    for one in peer.read():
        peer.answer(one, refuse="no" if one.type_url == CDS else None)
    assert RDS in {one.type_url for one in peer.settle()}


def test_equal_clusters_hold_nothing_up(peer):
    """Only the route changed: it is sent at once, and no cluster is; endpoints in state of the
    world, where the version does not tell which are held."""
    peer.stream.update(
        snapshot(
            *(cluster("old"), cluster("kept"), resource(EDS, "old"), resource(EDS, "kept")),
            *(resource(LDS, "l", refers=[(RDS, "r")]), route("r", "kept")),
        )
    )
    _reconnect(peer)
    sent = [one.type_url for one in peer.settle()]
    assert sent == ([RDS] if peer.variant == "delta" else [EDS, RDS])
    assert peer.stream.in_sync


def test_a_newer_target_keeps_what_it_needs(peer):
    """What was gone and is wanted again by then is not taken away, or comes back before its use."""
    peer.stream.update(AFTER)
    _reconnect(peer)
    first = peer.read()
    peer.stream.update(BEFORE)
    for one in first:
        peer.answer(one)
    peer.ask(EDS, "old")
    held = {"old", "kept"}
    for one in (*first, *peer.settle()):
        if one.type_url == CDS:
            held = set(one.resources) | (held if peer.variant == "delta" else set())
            held -= set(one.removed)
        if one.type_url == RDS:
            assert set(one.resources["r"].decode().partition("=")[2].split("+")) <= held
    assert held == {"old", "kept"}
    assert peer.stream.in_sync


def test_what_is_gone_goes_though_the_clusters_change_meanwhile():
    """Delta: the acknowledgement of other clusters does not settle it."""
    peer = xds_peer.connect("delta")
    peer.stream.update(snapshot())
    peer.ask(CDS, held=_claims(peer, CDS))
    peer.ask(LDS)
    empty = peer.read_one()
    peer.stream.update(snapshot(cluster("new"), resource(EDS, "new")))
    peer.answer(empty)
    clusters, listeners = peer.read()
    assert (clusters.type_url, listeners.type_url) == (CDS, LDS)
    peer.answer(listeners)
    peer.answer(clusters)
    assert [one.removed for one in peer.settle()] == [("kept", "old")]
    assert peer.stream.in_sync
