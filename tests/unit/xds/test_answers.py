# SPDX-License-Identifier: Apache-2.0
"""Nonces, versions, acknowledgements and refusals: P9 to P20 of the protocol."""

import pytest

from pilothouse.xds import resources, streams
from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS, body, cluster, resource, snapshot

VARIANTS = ("sotw", "delta")


@pytest.fixture(params=VARIANTS)
def peer(request):
    return xds_peer.connect(request.param)


def _status(peer, type_url):
    return next(status for status in peer.stream.types() if status.type_url == type_url)


def test_p9_nonces_of_a_type_are_unique(peer):
    """No nonce comes twice for one type."""
    peer.ask(CDS)
    nonces = []
    for number in range(5):
        peer.stream.update(snapshot(cluster("a", str(number))))
        nonces += [reply.nonce for reply in peer.settle()]
    assert len(set(nonces)) == len(nonces) == 5
    assert "" not in nonces


def test_p9_a_nonce_of_another_stream_means_nothing(peer):
    """A first request that carries one is a subscription, and answered."""
    peer.stream.update(snapshot(cluster("a")))
    assert peer.ask(CDS, nonce="from-before") == (streams.Subscribed(type_url=CDS),)
    assert peer.read_one().resources == {"a": body("a")}


def test_p10_a_stale_request_is_not_answered_and_its_names_are_not_lost():
    """State of the world: the names come again with the answer to the newest response."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.ask(EDS, "a")
    reply = peer.read_one()
    assert peer.ask(EDS, "b", nonce="old") == (streams.Stale(type_url=EDS, nonce="old"),)
    assert peer.read() == []
    peer.answer(reply)
    assert "b" in peer.read_one().resources


def test_p10_a_wish_that_crossed_a_response_is_granted_after_it():
    """State of the world: Envoy asks with the names of before for what it warms anew."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(resource(EDS, "a")))
    peer.ask(EDS, "a")
    peer.settle()
    peer.stream.update(snapshot(resource(EDS, "a", "2")))
    before = peer.nonces[EDS]
    reply = peer.read_one()
    peer.ask(EDS, nonce=before)
    assert peer.read() == []
    peer.answer(reply)
    assert peer.read_one().resources == {"a": body("a", "2")}


def test_p11_a_stale_nonce_keeps_subscriptions_in_delta():
    """It only stops the message from being an acknowledgement."""
    peer = xds_peer.connect("delta")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.ask(EDS, "a")
    reply = peer.read_one()
    events = peer.ask(EDS, "b", nonce="old")
    assert streams.Stale(type_url=EDS, nonce="old") in events
    assert not peer.stream.in_sync
    peer.answer(reply)
    assert peer.read_one().resources == {"b": body("b")}


def test_p12_an_error_makes_a_refusal_whatever_the_version():
    """State of the world: the version of a refusal can be that of the refused response."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(cluster("a")))
    peer.ask(CDS)
    reply = peer.read_one()
    events = peer.send(CDS, (), version=reply.version, nonce=reply.nonce, refuse="no")
    assert events == (streams.Nacked(type_url=CDS, nonce=reply.nonce, message="no"),)
    assert _status(peer, CDS).acked_version == ""


def test_p12_p13_an_acknowledgement_names_what_was_sent(peer):
    """Without an error it is an acknowledgement."""
    peer.stream.update(snapshot(cluster("a")))
    peer.ask(CDS)
    reply = peer.read_one()
    assert peer.answer(reply) == (streams.Acked(type_url=CDS, nonce=reply.nonce),)
    assert _status(peer, CDS).acked_version == reply.version != ""
    assert peer.stream.in_sync


def test_p13_subscriptions_ride_along_with_an_answer():
    """Delta: one request may acknowledge and subscribe."""
    peer = xds_peer.connect("delta")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.ask(EDS, "a")
    reply = peer.read_one()
    assert peer.ask(EDS, "b", nonce=reply.nonce) == (
        streams.Acked(type_url=EDS, nonce=reply.nonce),
        streams.Subscribed(type_url=EDS),
    )
    assert peer.read_one().resources == {"b": body("b")}


def test_p14_what_was_refused_is_not_sent_again(peer):
    """The server waits for other content; equal content in a new snapshot is none."""
    peer.stream.update(snapshot(cluster("a")))
    peer.ask(CDS)
    peer.settle()
    peer.stream.update(snapshot(cluster("a", "bad")))
    peer.answer(peer.read_one(), refuse="bad")
    for _ in range(3):
        peer.stream.update(snapshot(cluster("a", "bad")))
        assert peer.read() == []
    assert not peer.stream.in_sync
    assert _status(peer, CDS).error == "bad"
    peer.stream.update(snapshot(cluster("a", "good")))
    assert peer.read_one().resources == {"a": body("a", "good")}


def test_p14_going_back_after_a_refusal_is_sent_and_settles(peer):
    """A client may have applied any part of what it refused, so the old content is said again."""
    peer.ask(CDS)
    good = snapshot(cluster("a"), cluster("b"))
    peer.stream.update(good)
    peer.settle()
    peer.stream.update(snapshot(cluster("a", "2"), cluster("b", "bad"), cluster("c")))
    peer.answer(peer.read_one(), refuse="bad")
    peer.stream.update(good)
    reply = peer.read_one()
    assert reply.resources == {"a": body("a"), "b": body("b")}
    if peer.variant == "delta":
        assert reply.removed == ("c",)
    peer.answer(reply)
    assert peer.stream.in_sync
    assert _status(peer, CDS).error == ""


def test_p15_all_of_a_refused_response_is_in_doubt_until_the_next(peer):
    """What is fixed later comes with everything that was refused beside it."""
    peer.ask(EDS, "a", "b", "c")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b"), resource(EDS, "c")))
    peer.settle()
    bad = [resource(EDS, "a", "2"), resource(EDS, "b", "bad"), resource(EDS, "c")]
    peer.stream.update(snapshot(*bad))
    peer.answer(peer.read_one(), refuse="bad")
    worse = [resource(EDS, "a"), resource(EDS, "b", "worse"), resource(EDS, "c")]
    peer.stream.update(snapshot(*worse))
    peer.answer(peer.read_one(), refuse="worse")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b", "3"), resource(EDS, "c")))
    reply = peer.read_one()
    assert reply.resources == {"a": body("a"), "b": body("b", "3")}
    peer.answer(reply)
    assert peer.stream.in_sync


def test_p15_other_names_are_answered_beside_refused_content(peer):
    """A refusal does not deafen the server to new names, nor does their acceptance end it."""
    peer.stream.update(snapshot(resource(EDS, "a", "bad"), resource(EDS, "b")))
    peer.ask(EDS, "a")
    peer.answer(peer.read_one(), refuse="bad")
    peer.ask(EDS, "b")
    reply = peer.read_one()
    assert reply.resources == {"b": body("b")}
    peer.answer(reply)
    assert peer.read() == []
    assert not peer.stream.in_sync
    assert _status(peer, EDS).error == "bad"


def test_p15_dropping_what_was_refused_ends_the_refusal(peer):
    """Nothing is refused any more when the client does not want it any more."""
    peer.stream.update(snapshot(resource(EDS, "a", "bad"), resource(EDS, "b")))
    peer.ask(EDS, "a")
    peer.answer(peer.read_one(), refuse="bad")
    peer.ask(EDS, "b", drop=["a"])
    peer.settle()
    assert peer.stream.in_sync
    assert _status(peer, EDS).error == ""


def test_p14_a_first_response_that_is_refused_does_not_block_what_replaced_it(peer):
    """A target that was there before the client, and was replaced before it answered."""
    peer.stream.update(snapshot(cluster("a", "bad"), resource(EDS, "a")))
    peer.ask(CDS)
    peer.ask(LDS)
    clusters = peer.read()[0]
    peer.stream.update(snapshot())
    peer.answer(clusters, refuse="bad")
    replies = peer.read()
    assert [(reply.type_url, reply.resources) for reply in replies] == [(CDS, {})]


def test_p15_the_rest_of_a_refused_response_is_tried_again(peer):
    """Part of it was dropped before the refusal came, and that may have been the bad part."""
    peer.ask(EDS, "a", "b")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b", "bad")))
    reply = peer.read_one()
    peer.ask(EDS, drop=["b"], nonce="old")
    peer.answer(reply, refuse="bad")
    assert [one.resources for one in peer.settle()] == [{"a": body("a")}]
    assert peer.stream.in_sync


def test_p16_what_was_acknowledged_last_is_known_after_a_refusal(peer):
    """The truth after a refusal is the server's own record."""
    good = snapshot(cluster("a"))
    peer.ask(CDS)
    peer.stream.update(good)
    peer.settle()
    peer.stream.update(snapshot(cluster("a", "bad")))
    peer.answer(peer.read_one(), refuse="bad")
    assert peer.stream.acked(CDS) is good


def test_p17_one_response_of_a_type_is_in_flight_and_several_of_different_types(peer):
    """What changes meanwhile is merged into one response after the acknowledgement."""
    peer.stream.update(snapshot(resource(EDS, "a"), resource(LDS, "l")))
    peer.ask(EDS, "a")
    peer.ask(LDS)
    first = peer.read()
    assert [reply.type_url for reply in first] == [EDS, LDS]
    for number in "234":
        peer.stream.update(snapshot(resource(EDS, "a", number), resource(LDS, "l")))
        assert peer.read() == []
    peer.answer(first[0])
    assert peer.read_one().resources == {"a": body("a", "4")}


def test_p18_only_the_latest_request_of_a_type_counts(peer):
    """Requests that came before the first answer are answered together."""
    peer.ask(EDS, "a")
    peer.ask(EDS, "b")
    peer.ask(EDS, "c", drop=["a"])
    peer.stream.update(snapshot(*(resource(EDS, name) for name in "abc")))
    assert sorted(peer.read_one().resources) == ["b", "c"]


def test_p19_versions_are_of_content_and_not_of_time_or_layers(peer):
    """Equal content has an equal version on any replica; any change changes it."""
    one = snapshot(cluster("a"), cluster("b"))
    layers = [resources.Layer.of([cluster(name)]) for name in "ba"]
    spread = resources.Snapshot.of(layers)
    assert one.version(CDS) == spread.version(CDS)
    others = [
        snapshot(cluster("a")),
        snapshot(cluster("a"), cluster("b", "2")),
        snapshot(cluster("a"), cluster("c")),
        snapshot(cluster("a"), cluster("b"), cluster("c")),
    ]
    assert len({each.version(CDS) for each in (one, *others)}) == 5


def test_p20_endpoints_are_sent_while_clusters_are_not_acknowledged(peer):
    """Envoy withholds the acknowledgement of clusters until they are warm."""
    peer.stream.update(snapshot(cluster("a"), resource(EDS, "a"), resource(xds_peer.SDS, "s")))
    peer.ask(CDS)
    clusters = peer.read_one()
    assert clusters.type_url == CDS
    peer.ask(EDS, "a")
    assert peer.read_one().resources == {"a": body("a")}
    peer.ask(xds_peer.SDS, "s")
    assert peer.read_one().resources == {"s": body("s")}
    assert peer.answer(clusters) == (streams.Acked(type_url=CDS, nonce=clusters.nonce),)


@pytest.mark.aggregated
def test_p20_new_clusters_of_a_later_change_get_their_endpoints_too(peer):
    """In the middle of a change in steps, endpoints of what is new are answered."""
    peer.ask(CDS)
    peer.ask(RDS, "r")
    peer.ask(EDS, "a")
    peer.stream.update(snapshot(cluster("a"), resource(EDS, "a"), xds_peer.route("r", "a")))
    peer.settle()
    peer.stream.update(snapshot(cluster("b"), resource(EDS, "b"), xds_peer.route("r", "b")))
    clusters = peer.read_one()
    assert sorted(clusters.resources) in (["a", "b"], ["b"])
    peer.ask(EDS, "b")
    assert peer.read_one().resources == {"b": body("b")}
