# SPDX-License-Identifier: Apache-2.0
"""Responses that a client would be too small for: P67 of the protocol."""

import pytest

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
    """Envoy has no such limit."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(*(resource(RDS, name, "1" * 10_000) for name in NAMES)))
    peer.ask(RDS, *NAMES)
    assert _names(peer.settle()) == [NAMES]
