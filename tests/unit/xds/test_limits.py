# SPDX-License-Identifier: Apache-2.0
"""Responses that a client would be too small for: P67 of the protocol."""

import pytest

from pilothouse.xds import delta, streams
from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, RDS, cluster, resource, snapshot

NAMES = ("a", "b", "c", "d", "e")


def _view(size=100, content="1"):
    return snapshot(*(resource(EDS, name, content * size) for name in NAMES))


@pytest.fixture
def peer():
    """State of the world, with room for two resources and a half."""
    made = xds_peer.connect("sotw")
    made.stream.limit = 450
    return made


def _names(replies):
    return [tuple(reply.resources) for reply in replies]


def test_p67_a_large_answer_comes_in_parts(peer):
    """Each when the one before is acknowledged; together they are everything, once."""
    peer.stream.update(_view())
    peer.ask(EDS, *NAMES)
    first = peer.read_one()
    assert not peer.stream.in_sync
    peer.answer(first)
    assert not peer.stream.in_sync
    rest = peer.settle()
    assert _names([first, *rest]) == [("a", "b"), ("c", "d"), ("e",)]
    assert peer.stream.in_sync


def test_p67_a_large_change_comes_in_parts(peer):
    """The newest content is in each."""
    peer.stream.update(_view())
    peer.ask(EDS, *NAMES)
    peer.settle()
    peer.stream.update(_view(content="2"))
    first = peer.read_one()
    peer.stream.update(_view(content="3"))
    peer.answer(first)
    held = dict(first.resources)
    for reply in peer.settle():
        held.update(reply.resources)
    assert held == {name: f"{name}={'3' * 100}".encode() for name in NAMES}
    assert peer.stream.in_sync


def test_p67_what_does_not_fit_alone_comes_alone(peer):
    """There is no smaller part."""
    peer.stream.update(_view(size=1000))
    peer.ask(EDS, *NAMES)
    assert _names(peer.settle()) == [(name,) for name in NAMES]


def test_p67_a_whole_set_is_never_split(peer):
    """Absence would delete."""
    peer.stream.update(snapshot(*(cluster(name, "1" * 200) for name in NAMES)))
    peer.ask(CDS, *NAMES)
    assert _names(peer.settle()) == [NAMES]


def test_p67_others_get_everything_at_once():
    """Envoy has no such limit in state of the world."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(*(resource(RDS, name, "1" * 10_000) for name in NAMES)))
    peer.ask(RDS, *NAMES)
    assert _names(peer.settle()) == [NAMES]


@pytest.fixture
def small(monkeypatch):
    """A delta stream with room for two endpoints and a half."""
    monkeypatch.setattr(delta.DeltaStream, "room", 600)
    return xds_peer.connect("delta")


def _held(replies):
    held = {}
    for reply in replies:
        held.update(reply.resources)
    return held


def test_many_endpoints_come_in_parts_in_delta_too(small):
    """Each when the one before is acknowledged; together they are everything, once."""
    small.stream.update(_view())
    small.ask(EDS, *NAMES, "absent")
    first = small.read_one()
    assert not small.stream.in_sync
    assert (first.removed, list(first.errors)) == (("absent",), ["absent"])
    small.answer(first)
    rest = small.settle()
    assert _names([first, *rest]) == [("a", "b"), ("c", "d"), ("e",)]
    assert [one.removed for one in rest] == [(), ()]
    assert small.stream.in_sync


def test_streams_that_are_alike_share_all_parts(small):
    """Not only the first."""
    view = _view()
    told = []
    for peer in (small, xds_peer.connect("delta")):
        peer.stream.update(view)
        peer.ask(EDS, *NAMES)
        bodies = []
        while (response := peer.stream.poll()) is not None:
            bodies.append(response.body)
            peer.answer(peer.decode(response.body))
        told.append(bodies)
    assert len(told[0]) == 3
    assert all(one is other for one, other in zip(*told, strict=True))


def test_a_change_of_many_endpoints_comes_in_parts(small):
    """The newest content is in each, and what went meanwhile is named."""
    small.stream.update(_view())
    small.ask(EDS, *NAMES)
    small.settle()
    small.stream.update(_view(content="2"))
    first = small.read_one()
    left = [resource(EDS, name, "3" * 100) for name in NAMES[:-1]]
    small.stream.update(snapshot(*left))
    small.answer(first)
    rest = small.settle()
    assert _held([first, *rest]) == {name: f"{name}={'3' * 100}".encode() for name in NAMES[:-1]}
    assert [name for one in rest for name in one.removed] == ["e"]
    assert small.stream.in_sync


def test_a_refused_part_does_not_keep_the_others_back(small):
    """They are answered; what was refused comes with the next content."""
    small.stream.update(_view())
    small.ask(EDS, *NAMES)
    small.answer(small.read_one(), refuse="bad")
    assert _held(small.settle()).keys() == {"c", "d", "e"}
    assert not small.stream.in_sync
    small.stream.update(_view(content="2"))
    assert _held(small.settle()) == {name: f"{name}={'2' * 100}".encode() for name in NAMES}
    assert small.stream.in_sync


def test_names_that_are_dropped_between_parts_are_not_sent(small):
    """And those that are added are."""
    small.stream.update(_view())
    small.ask(EDS, *NAMES[:-1])
    first = small.read_one()
    small.ask(EDS, "e", drop=["c"])
    small.answer(first)
    assert _held(small.settle()).keys() == {"d", "e"}
    assert small.stream.in_sync


def test_clusters_are_never_split_in_delta(small):
    """Envoy takes the first response for all of them."""
    small.stream.update(snapshot(*(cluster(name, "1" * 1000) for name in NAMES)))
    small.ask(CDS)
    assert _names(small.settle()) == [NAMES]


@pytest.mark.parametrize("variant", ["sotw", "delta"])
def test_a_large_response_can_be_prepared_in_pieces(variant):
    """With as many turns for others in between, and the same content; a small one needs none."""
    peer = xds_peer.connect(variant)
    names = [f"n{number:04}" for number in range(2 * streams.PIECE + 1)]
    peer.stream.update(snapshot(*(resource(RDS, name) for name in names)))
    assert not peer.stream.prepare()
    peer.ask(RDS, *names)
    assert [peer.stream.prepare() for _ in range(3)] == [True, True, False]
    assert _names(peer.settle()) == [tuple(names)]
