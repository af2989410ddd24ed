# SPDX-License-Identifier: Apache-2.0
"""Endpoints and routes that a client holds when it comes back are spared, if nothing waits."""

import pytest

from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, RDS, body, cluster, resource, route, snapshot

ALL = (cluster("a"), cluster("b"), resource(EDS, "a"), resource(EDS, "b"))
BEFORE = snapshot(*ALL)


def _claims(kind, *names):
    """What a client says that it holds of these, or of all."""
    held = BEFORE.resources(kind)
    return {name: held[name].version for name in names or held}


def _back(target=BEFORE, *, clusters=True, names=("a", "b"), held=("a", "b"), update_first=True):
    """A client that has come back; the target may be known before or after it asks."""
    peer = xds_peer.connect("delta")
    if update_first:
        peer.stream.update(target)
    if clusters:
        peer.ask(CDS, held=_claims(CDS))
    peer.ask(EDS, *names, held=_claims(EDS, *held))
    if not update_first:
        peer.stream.update(target)
    return peer


@pytest.mark.parametrize("update_first", [True, False])
def test_p45_what_is_held_is_not_sent_again(update_first):
    """A client that asked for all clusters first has none that is warming."""
    peer = _back(update_first=update_first)
    assert peer.read() == []
    assert peer.stream.in_sync
    assert [one.acked_version for one in peer.stream.types()] == [
        BEFORE.version(CDS),
        BEFORE.version(EDS),
    ]
    peer.stream.update(snapshot(cluster("a"), cluster("b"), resource(EDS, "a", "2")))
    reply = peer.settle()[0]
    assert (reply.resources, reply.removed) == ({"a": body("a", "2")}, ("b",))


def test_p45_everything_is_sent_while_clusters_are_kept_back():
    """Envoy does so while one is warming, and that one waits for an answer."""
    peer = _back(clusters=False)
    assert sorted(peer.settle()[0].resources) == ["a", "b"]
    peer.ask(CDS, held=_claims(CDS))
    assert peer.settle() == []
    assert peer.stream.in_sync


def test_everything_is_sent_to_who_lacks_something():
    """It may be starting still, which no order of requests tells."""
    assert sorted(_back(held=("a",)).settle()[0].resources) == ["a", "b"]


def test_who_names_its_clusters_is_sent_everything():
    """What its order means is not known."""
    peer = xds_peer.connect("delta")
    peer.stream.update(BEFORE)
    peer.ask(CDS, "a", held=_claims(CDS, "a"))
    peer.settle()
    peer.ask(EDS, "a", held=_claims(EDS, "a"))
    assert list(peer.settle()[0].resources) == ["a"]


def test_only_what_differs_is_sent_and_what_is_gone_is_named():
    """As for types that are asked for as a whole."""
    peer = _back(snapshot(cluster("a"), cluster("b"), resource(EDS, "a", "2")))
    replies = peer.settle()
    assert [(one.resources, one.removed) for one in replies] == [({"a": body("a", "2")}, ("b",))]
    assert peer.stream.in_sync


@pytest.mark.parametrize("update_first", [True, False])
@pytest.mark.parametrize("asks_late", [True, False])
def test_p51_endpoints_follow_a_cluster_that_changed_meanwhile(update_first, asks_late):
    """Envoy warms it anew, whether its request for endpoints was on the way or not."""
    after = snapshot(cluster("a", "2"), cluster("b"), resource(EDS, "a"), resource(EDS, "b"))
    peer = xds_peer.connect("delta")
    if update_first:
        peer.stream.update(after)
    peer.ask(CDS, held=_claims(CDS))
    early = peer.read() if asks_late else []
    peer.ask(EDS, "a", "b", held=_claims(EDS))
    if not update_first:
        peer.stream.update(after)
    replies = [*early, *peer.read()]
    assert [(one.type_url, list(one.resources)) for one in replies] == [(CDS, ["a"]), (EDS, ["a"])]
    for one in replies:
        peer.answer(one)
    assert peer.stream.in_sync


def test_p27_what_is_asked_for_again_is_answered():
    """A client may have lost it since."""
    peer = _back()
    assert peer.read() == []
    peer.ask(EDS, "a")
    assert peer.settle()[0].resources == {"a": body("a")}


def test_p27_what_is_asked_for_again_before_the_target_is_known_is_answered():
    """The first request is not all that counts."""
    peer = xds_peer.connect("delta")
    peer.ask(CDS, held=_claims(CDS))
    peer.ask(EDS, "a", "b", held=_claims(EDS))
    peer.ask(EDS, "a")
    peer.stream.update(BEFORE)
    assert peer.settle()[0].resources == {"a": body("a")}


def test_routes_are_spared_too():
    """Envoy has those that it holds for any listener; what differs is sent."""
    held = {name: snapshot(route(name, "a")).get(RDS, name).version for name in ("r", "s")}
    peer = _back(snapshot(*ALL, route("r", "a"), route("s", "b")))
    peer.settle()
    peer.ask(RDS, "r", "s", held=held)
    assert [list(one.resources) for one in peer.settle()] == [["s"]]
    assert peer.stream.in_sync
