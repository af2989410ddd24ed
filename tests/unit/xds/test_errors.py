# SPDX-License-Identifier: Apache-2.0
"""Errors of single resources: P38 of the protocol (xRFC TP3)."""

import pytest

from tests.support import xds_peer
from tests.support.xds_peer import CDS, ECDS, EDS, LDS, RDS, SDS, body, cluster, resource, snapshot

NOT_FOUND = 5  # https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
NAMED = [EDS, RDS, SDS, ECDS]


@pytest.fixture(params=("sotw", "delta"))
def peer(request):
    return xds_peer.connect(request.param)


@pytest.mark.parametrize("kind", [CDS, LDS, *NAMED])
def test_p38_a_missing_name_is_told_at_once(peer, kind):
    """With a code that a client knows and words that name it; what is there comes beside it."""
    peer.stream.update(snapshot(resource(kind, "a")))
    peer.ask(kind, "a", "b")
    reply = peer.read_one()
    assert reply.resources == {"a": body("a")}
    ((name, (code, words)),) = reply.errors.items()
    assert (name, code) == ("b", NOT_FOUND)
    assert "'b'" in words
    assert reply.removed == (("b",) if peer.variant == "delta" else ())


@pytest.mark.parametrize("kind", [CDS, LDS, *NAMED])
def test_p38_an_error_alone_is_a_response(peer, kind):
    """Nobody waits for fifteen seconds when nothing of what is wanted is there."""
    peer.stream.update(snapshot())
    peer.ask(kind, "a")
    reply = peer.read_one()
    assert (dict(reply.resources), list(reply.errors)) == ({}, ["a"])
    peer.answer(reply)
    assert peer.read() == []
    assert peer.stream.in_sync


@pytest.mark.parametrize("kind", [CDS, LDS, *NAMED])
def test_p38_it_is_said_once(peer, kind):
    """Other changes and other names do not repeat it."""
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b")))
    peer.ask(kind, "a", "missing")
    assert [list(reply.errors) for reply in peer.settle()] == [["missing"]]
    peer.stream.update(snapshot(resource(kind, "a", "2"), resource(kind, "b")))
    assert [list(reply.errors) for reply in peer.settle()] == [[]]
    peer.ask(kind, "b")
    assert [list(reply.errors) for reply in peer.settle()] == [[]]
    peer.ask(kind, "other")
    assert [list(reply.errors) for reply in peer.settle()] == [["other"]]


@pytest.mark.parametrize("kind", [CDS, LDS, *NAMED])
def test_p38_what_is_created_later_is_sent(peer, kind):
    """The subscription stays."""
    peer.stream.update(snapshot())
    peer.ask(kind, "a")
    peer.settle()
    peer.stream.update(snapshot(resource(kind, "a")))
    (reply,) = peer.settle()
    assert (dict(reply.resources), dict(reply.errors)) == ({"a": body("a")}, {})


@pytest.mark.parametrize("kind", NAMED)
def test_p38_a_name_that_comes_back_is_told_again(peer, kind):
    """Who drops a name and asks for it again has a right to an answer."""
    peer.stream.update(snapshot(resource(kind, "a")))
    peer.ask(kind, "a", "missing")
    peer.settle()
    peer.ask(kind, drop=["missing"])
    assert peer.settle() == []
    peer.ask(kind, "missing")
    assert [list(reply.errors) for reply in peer.settle()] == [["missing"]]


@pytest.mark.parametrize("kind", [EDS, RDS])
def test_p38_what_goes_while_it_is_used_is_no_error(peer, kind):
    """A client may lack its parent's news still; it asked long ago."""
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b")))
    peer.ask(kind, "a", "b")
    peer.settle()
    peer.stream.update(snapshot(resource(kind, "a")))
    replies = peer.settle()
    assert [dict(reply.errors) for reply in replies] == [{}] * len(replies)


def test_p38_not_for_the_wildcard(peer):
    """Everything is never missing; a name beside it can be."""
    peer.stream.update(snapshot())
    peer.ask(CDS, "*")
    assert [dict(reply.errors) for reply in peer.settle()] == [{}]
    peer.ask(CDS, "on-demand")
    assert [list(reply.errors) for reply in peer.settle()] == [["on-demand"]]


@pytest.mark.aggregated
def test_p38_not_for_what_is_on_the_way(peer):
    """A route asked for before its step of the way is not missing."""
    peer.ask(CDS)
    peer.ask(RDS, "old")
    peer.stream.update(snapshot(cluster("a"), xds_peer.route("old", "a")))
    peer.settle()
    peer.stream.update(
        snapshot(cluster("b"), xds_peer.route("old", "b"), xds_peer.route("new", "b"))
    )
    clusters = peer.read_one()
    peer.ask(RDS, "new")
    replies = peer.read()
    peer.answer(clusters)
    for reply in replies:
        peer.answer(reply)
    replies += peer.settle()
    routes = [reply for reply in replies if reply.type_url == RDS]
    assert not any(reply.errors for reply in routes)
    assert "new" in {name for reply in routes for name in reply.resources}


def test_p38_the_empty_name_is_nobody_and_no_error(peer):
    """Some clients say it to ask for nothing."""
    peer.stream.update(snapshot(resource(EDS, "a")))
    peer.ask(EDS, "a")
    peer.settle()
    peer.ask(EDS, "", drop=["a"])
    assert [dict(reply.errors) for reply in peer.settle()] in ([], [{}])


def test_p38_a_refused_error_does_not_loop(peer):
    """A client that does not bear errors is left alone until there is something else to say."""
    peer.stream.update(snapshot())
    peer.ask(EDS, "a")
    peer.answer(peer.read_one(), refuse="what is this?")
    assert peer.read() == []
    peer.stream.update(snapshot(resource(EDS, "a")))
    assert [dict(reply.resources) for reply in peer.settle()] == [{"a": body("a")}]
    assert peer.stream.in_sync
