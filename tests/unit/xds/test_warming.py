# SPDX-License-Identifier: Apache-2.0
"""What must be sent again because Envoy warms anew what refers to it: P51 and P52."""

import pytest

from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, SDS, body, cluster, resource, snapshot


def test_p51_endpoints_follow_a_changed_cluster_once_in_delta():
    """Envoy warms it anew and asks nobody: they are pushed, right after the clusters."""
    peer = xds_peer.connect("delta")
    view = [cluster("a"), cluster("b"), resource(EDS, "a"), resource(EDS, "b")]
    peer.ask(CDS)
    peer.ask(EDS, "a", "b")
    peer.stream.update(snapshot(*view))
    peer.settle()
    peer.stream.update(snapshot(cluster("a", "2"), *view[1:]))
    clusters, endpoints = peer.read()
    assert clusters.resources == {"a": body("a", "2")}
    assert (endpoints.type_url, endpoints.resources) == (EDS, {"a": body("a")})
    peer.answer(endpoints)
    peer.answer(clusters)
    assert peer.read() == []


def test_p51_endpoints_that_changed_too_are_sent_once_in_delta():
    """One response holds both reasons."""
    peer = xds_peer.connect("delta")
    peer.ask(CDS)
    peer.ask(EDS, "a")
    peer.stream.update(snapshot(cluster("a"), resource(EDS, "a")))
    peer.settle()
    peer.stream.update(snapshot(cluster("a", "2"), resource(EDS, "a", "2")))
    assert [reply.type_url for reply in peer.settle()] == [CDS, EDS]


def test_p51_endpoints_in_flight_are_pushed_again_after_a_changed_cluster():
    """What was written before the clusters does not count for them."""
    peer = xds_peer.connect("delta")
    peer.ask(CDS)
    peer.ask(EDS, "a")
    peer.stream.update(snapshot(cluster("a"), resource(EDS, "a")))
    peer.settle()
    peer.stream.update(snapshot(cluster("a"), resource(EDS, "a", "2")))
    endpoints = peer.read_one()
    peer.stream.update(snapshot(cluster("a", "2"), resource(EDS, "a", "2")))
    assert peer.read_one().type_url == CDS
    peer.answer(endpoints)
    assert peer.read_one().resources == {"a": body("a", "2")}


def test_p51_the_same_request_again_is_answered_once_in_state_of_the_world():
    """Envoy repeats nonce, version and names, like an old acknowledgement."""
    peer = xds_peer.connect("sotw")
    peer.ask(CDS)
    peer.ask(EDS, "a")
    peer.stream.update(snapshot(cluster("a"), resource(EDS, "a")))
    peer.settle()
    peer.stream.update(snapshot(cluster("a", "2"), resource(EDS, "a")))
    assert peer.read_one().type_url == CDS
    peer.ask(EDS)
    assert [reply.resources for reply in peer.settle()] == [{"a": body("a")}]
    assert peer.read() == []


@pytest.mark.parametrize("drop", [(), ("b",)])
@pytest.mark.parametrize("add", [(), ("c",)])
def test_p51_a_changed_cluster_among_others_gets_its_endpoints(drop, add):
    """State of the world: one request asks for new names and, silently, for old ones again."""
    peer = xds_peer.connect("sotw")
    peer.ask(CDS)
    peer.ask(EDS, "a", "b")
    leaves = [resource(EDS, name) for name in "abc"]
    peer.stream.update(snapshot(cluster("a"), cluster("b"), *leaves))
    peer.settle()
    rest = [cluster(name) for name in "bc" if name not in drop]
    peer.stream.update(snapshot(cluster("a", "2"), *rest, *leaves))
    peer.read_one()
    peer.ask(EDS, *add, drop=drop)
    (reply,) = peer.settle()
    assert set(reply.resources) >= {"a", *add}


def test_p51_an_acknowledgement_that_hides_a_wish_is_heard():
    """State of the world: Envoy merges what it has to say of one type into one request."""
    peer = xds_peer.connect("sotw")
    peer.ask(CDS)
    peer.ask(EDS, "a", "b")
    leaves = [resource(EDS, "a"), resource(EDS, "b")]
    peer.stream.update(snapshot(cluster("a"), cluster("b"), *leaves))
    peer.settle()
    leaves[1] = resource(EDS, "b", "2")
    peer.stream.update(snapshot(cluster("a"), cluster("b"), *leaves))
    endpoints = peer.read_one()
    peer.stream.update(snapshot(cluster("a", "2"), cluster("b"), *leaves))
    assert peer.read_one().type_url == CDS
    peer.answer(endpoints)
    assert [reply.resources for reply in peer.settle()] == [{"a": body("a")}]


def test_p52_a_secret_follows_a_changed_listener_in_delta():
    """Its new version may wait for it, though the secret did not change."""
    peer = xds_peer.connect("delta")
    peer.ask(LDS)
    peer.ask(SDS, "s")
    peer.stream.update(snapshot(resource(LDS, "l", refers=[(SDS, "s")]), resource(SDS, "s")))
    peer.settle()
    peer.stream.update(snapshot(resource(LDS, "l", "2", refers=[(SDS, "s")]), resource(SDS, "s")))
    replies = peer.settle()
    assert [reply.type_url for reply in replies] == [LDS, SDS]
    assert replies[1].resources == {"s": body("s")}
