# SPDX-License-Identifier: Apache-2.0
"""What a response holds: P32 to P40 of the protocol."""

import pytest

from pilothouse.xds import types
from tests.support import xds_peer
from tests.support.xds_peer import CDS, ECDS, EDS, LDS, RDS, SDS, body, cluster, resource, snapshot

VARIANTS = ("sotw", "delta")


@pytest.fixture(params=VARIANTS)
def peer(request):
    return xds_peer.connect(request.param)


@pytest.mark.parametrize("kind", [CDS, LDS])
def test_p32_whole_sets_are_sent_whole_in_state_of_the_world(kind):
    """Absence deletes, and an empty response deletes all."""
    peer = xds_peer.connect("sotw")
    peer.ask(kind)
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b")))
    peer.settle()
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b", "2")))
    assert peer.settle()[0].resources == {"a": body("a"), "b": body("b", "2")}
    peer.stream.update(snapshot(resource(kind, "a")))
    assert peer.settle()[0].resources == {"a": body("a")}
    peer.stream.update(snapshot())
    assert peer.settle()[0].resources == {}


def test_p32_a_named_subset_of_a_whole_set_is_sent_whole():
    """The subscribed set is what counts."""
    peer = xds_peer.connect("sotw")
    peer.ask(CDS, "a", "b")
    peer.stream.update(snapshot(cluster("a"), cluster("b"), cluster("c")))
    assert sorted(peer.settle()[0].resources) == ["a", "b"]
    peer.stream.update(snapshot(cluster("a", "2"), cluster("b"), cluster("c")))
    assert peer.settle()[0].resources == {"a": body("a", "2"), "b": body("b")}
    peer.stream.update(snapshot(cluster("a", "2"), cluster("b"), cluster("c", "2")))
    assert peer.read() == []


@pytest.mark.parametrize("kind", [EDS, RDS, SDS])
def test_p33_other_types_send_only_what_changed(peer, kind):
    """Absence means nothing; state of the world says nothing of what is gone."""
    peer.ask(kind, "a", "b")
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b")))
    peer.settle()
    peer.stream.update(snapshot(resource(kind, "a", "2"), resource(kind, "b")))
    assert peer.settle()[0].resources == {"a": body("a", "2")}


def test_p33_what_is_gone_is_met_with_silence_in_state_of_the_world():
    """Deletion is implied by the parent; nothing is left to wait for."""
    peer = xds_peer.connect("sotw")
    peer.ask(EDS, "a")
    peer.stream.update(snapshot(resource(EDS, "a")))
    peer.settle()
    peer.stream.update(snapshot())
    assert peer.stream.in_sync
    assert peer.read() == []


@pytest.mark.parametrize("kind", [CDS, LDS, EDS, RDS, SDS])
def test_p34_nothing_is_sent_that_was_not_asked_for(peer, kind):
    """It would cost bytes and leak data."""
    peer.ask(kind, "a")
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b")))
    assert [list(reply.resources) for reply in peer.settle()] == [["a"]]
    peer.stream.update(snapshot(resource(kind, "a", "2"), resource(kind, "b", "2")))
    assert [list(reply.resources) for reply in peer.settle()] == [["a"]]


@pytest.mark.parametrize("kind", [CDS, LDS, EDS, RDS])
def test_p35_delta_names_what_is_gone_and_no_more(kind):
    """Unchanged resources are not sent again."""
    peer = xds_peer.connect("delta")
    peer.ask(kind, "a", "b")
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b")))
    peer.settle()
    peer.stream.update(snapshot(resource(kind, "b")))
    reply = peer.settle()[0]
    assert (reply.resources, reply.removed) == ({}, ("a",))
    peer.stream.update(snapshot(resource(kind, "a", "2"), resource(kind, "b")))
    assert peer.settle()[0].resources == {"a": body("a", "2")}


@pytest.mark.parametrize("kind", [CDS, EDS, RDS, SDS, ECDS, types.RUNTIME.type_url])
def test_p36_a_missing_name_is_removed_at_once_and_stays_subscribed_in_delta(kind):
    """So the client need not wait, and gets it when it exists."""
    peer = xds_peer.connect("delta")
    peer.stream.update(snapshot())
    peer.ask(kind, "a")
    assert peer.settle()[0].removed == ("a",)
    peer.stream.update(snapshot(resource(kind, "a")))
    assert peer.settle()[0].resources == {"a": body("a")}


@pytest.mark.parametrize("kind", [CDS, LDS])
def test_p37_a_missing_name_of_a_whole_set_is_answered_with_the_rest(kind):
    """Possibly with nothing, so that the client goes on."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot())
    peer.ask(kind, "a")
    assert [reply.resources for reply in peer.settle()] == [{}]
    peer.stream.update(snapshot(resource(kind, "a")))
    assert peer.settle()[0].resources == {"a": body("a")}


@pytest.mark.parametrize("kind", [CDS, LDS])
def test_p39_the_first_request_of_a_whole_set_is_answered_even_with_nothing(peer, kind):
    """Envoy's start waits for it, once."""
    peer.ask(kind)
    assert peer.read() == []
    peer.stream.update(snapshot())
    assert [reply.resources for reply in peer.settle()] == [{}]
    assert peer.stream.in_sync


def test_p40_versions_are_of_each_resource_in_delta():
    """And the system's version is for people."""
    peer = xds_peer.connect("delta")
    one = snapshot(cluster("a"), cluster("b"))
    peer.stream.update(one)
    peer.ask(CDS)
    reply = peer.settle()[0]
    assert reply.versions == {name: one.get(CDS, name).version for name in "ab"}
    assert reply.version == one.version(CDS)


def test_p59_p60_extensions_and_secrets_are_not_retracted_in_delta():
    """Envoy drops them with their last user, and may refuse or misuse the news before."""
    peer = xds_peer.connect("delta")
    peer.stream.update(snapshot(resource(SDS, "s"), resource(ECDS, "e")))
    peer.ask(SDS, "s")
    peer.ask(ECDS, "e")
    peer.settle()
    peer.stream.update(snapshot())
    assert peer.read() == []
    assert peer.stream.in_sync
    peer.stream.update(snapshot(resource(SDS, "s")))
    assert [reply.resources for reply in peer.settle()] == [{"s": body("s")}]
