# SPDX-License-Identifier: Apache-2.0
"""How far a client is, resource by resource: P63 of the protocol, in the server's part."""

import pytest

from pilothouse.xds.status import Sync
from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, RDS, cluster, resource, route, snapshot


@pytest.fixture(params=("sotw", "delta"))
def peer(request):
    return xds_peer.connect(request.param)


def _syncs(peer, kind=EDS):
    return {one.name: one.sync for one in peer.stream.statuses() if one.type_url == kind}


def test_p63_a_resource_is_not_sent_then_stale_then_synced(peer):
    """Before the response, before its acknowledgement, and after it."""
    peer.ask(EDS, "a")
    assert _syncs(peer) == {"a": Sync.NOT_SENT}
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "other")))
    assert _syncs(peer) == {"a": Sync.NOT_SENT}
    reply = peer.read_one()
    assert _syncs(peer) == {"a": Sync.STALE}
    peer.answer(reply)
    (status,) = peer.stream.statuses()
    assert status.sync is Sync.SYNCED
    assert status.version == status.resource.version != ""


def test_p63_only_what_changed_falls_behind(peer):
    """The others stay as they are."""
    peer.ask(EDS, "a", "b")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.settle()
    peer.stream.update(snapshot(resource(EDS, "a", "2"), resource(EDS, "b")))
    assert _syncs(peer) == {"a": Sync.NOT_SENT, "b": Sync.SYNCED}
    reply = peer.read_one()
    assert _syncs(peer) == {"a": Sync.STALE, "b": Sync.SYNCED}
    peer.stream.update(snapshot(resource(EDS, "a", "3"), resource(EDS, "b")))
    assert _syncs(peer) == {"a": Sync.NOT_SENT, "b": Sync.SYNCED}
    peer.answer(reply)
    peer.settle()
    assert set(_syncs(peer).values()) == {Sync.SYNCED}


def test_p63_a_refused_resource_is_an_error_with_the_client_s_words(peer):
    """Until other content is on its way."""
    peer.ask(EDS, "a", "b")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.settle()
    peer.stream.update(snapshot(resource(EDS, "a", "bad"), resource(EDS, "b")))
    peer.answer(peer.read_one(), refuse="not like this")
    statuses = {one.name: one for one in peer.stream.statuses()}
    assert (statuses["a"].sync, statuses["a"].error) == (Sync.ERROR, "not like this")
    assert (statuses["b"].sync, statuses["b"].error) == (Sync.SYNCED, "")
    peer.stream.update(snapshot(resource(EDS, "a", "good"), resource(EDS, "b")))
    assert _syncs(peer)["a"] is Sync.NOT_SENT
    peer.settle()
    assert _syncs(peer)["a"] is Sync.SYNCED


def test_p63_a_missing_name_is_told_with_its_reason(peer):
    """It has no version."""
    peer.stream.update(snapshot())
    peer.ask(EDS, "a")
    peer.settle()
    (status,) = peer.stream.statuses()
    assert (status.name, status.version, status.resource) == ("a", "", None)
    assert status.error == "does not exist"


@pytest.mark.aggregated
def test_p63_a_wildcard_lists_everything_that_is_to_be_held(peer):
    """Also what waits for a step of the way: it is not sent yet."""
    peer.ask(CDS)
    peer.ask(RDS, "r")
    peer.stream.update(snapshot(cluster("x"), route("r", "x")))
    peer.settle()
    peer.stream.update(snapshot(cluster("y"), route("r", "y")))
    clusters = peer.read_one()
    assert _syncs(peer, CDS) == {"y": Sync.STALE}
    assert _syncs(peer, RDS) == {"r": Sync.NOT_SENT}
    peer.answer(clusters)
    peer.settle()
    assert _syncs(peer, CDS) == {"y": Sync.SYNCED}
    assert _syncs(peer, RDS) == {"r": Sync.SYNCED}


def test_p63_a_name_asked_for_later_is_not_sent_though_others_are_synced(peer):
    """What was acknowledged for others says nothing of it."""
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.ask(EDS, "a")
    peer.settle()
    peer.ask(EDS, "b")
    assert _syncs(peer) == {"a": Sync.SYNCED, "b": Sync.NOT_SENT}
