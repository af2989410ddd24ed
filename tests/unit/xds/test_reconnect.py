# SPDX-License-Identifier: Apache-2.0
"""A client that comes back with what it holds: P43 to P48 of the protocol."""

import pytest

from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS, body, cluster, resource, route, snapshot

VARIANTS = ("sotw", "delta")


def _everything(number="1"):
    return snapshot(
        *(cluster("a"), cluster("b", number), resource(EDS, "a"), resource(EDS, "b")),
        *(resource(LDS, "l"), route("r", "a", "b")),
    )


def _versions(peer, view, kind):
    """What a client says that it holds: the version of the set, or of each resource."""
    if peer.variant == "sotw":
        return {"": view.version(kind)}
    return {name: one.version for name, one in view.resources(kind).items()}


@pytest.fixture(params=VARIANTS)
def peer(request):
    return xds_peer.connect(request.param)


@pytest.mark.parametrize("update_first", [True, False])
def test_p43_p44_nothing_is_sent_again_when_nothing_changed(peer, update_first):
    """Types asked for by wildcard need no answer when the client holds the present truth."""
    held = _everything()
    if update_first:
        peer.stream.update(_everything())
    for kind in (CDS, LDS):
        peer.ask(kind, held=_versions(peer, held, kind))
    if not update_first:
        peer.stream.update(_everything())
    assert peer.read() == []
    assert peer.stream.in_sync
    versions = {status.type_url: status.acked_version for status in peer.stream.types()}
    assert versions == {kind: held.version(kind) for kind in (CDS, LDS)}
    peer.stream.update(_everything("2"))
    replies = peer.settle()
    assert [reply.type_url for reply in replies] == [CDS]
    assert replies[0].resources["b"] == body("b", "2")


def test_p43_an_old_version_is_answered_with_the_whole_set():
    """State of the world."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(_everything())
    peer.ask(CDS, held={"": "another"})
    assert sorted(peer.settle()[0].resources) == ["a", "b"]


def test_p43_names_are_always_answered_in_state_of_the_world():
    """Among them may be new ones, and the version does not tell."""
    held = _everything()
    for kind, name in ((EDS, "a"), (CDS, "a")):
        peer = xds_peer.connect("sotw")
        peer.stream.update(held)
        peer.ask(kind, name, held={"": held.version(kind)})
        assert peer.settle()[0].resources == {"a": body("a")}


def test_p44_only_what_differs_is_sent_and_what_is_gone_is_named_in_delta():
    """Or it would leak at the client for ever. What takes its place comes first."""
    peer = xds_peer.connect("delta")
    held = snapshot(cluster("a"), cluster("b"), cluster("gone"))
    peer.stream.update(snapshot(cluster("a"), cluster("b", "2"), cluster("new")))
    peer.ask(CDS, held=_versions(peer, held, CDS))
    new, old = peer.settle()
    assert (new.resources, new.removed) == ({"b": body("b", "2"), "new": body("new")}, ())
    assert (old.resources, old.removed) == ({}, ("gone",))
    assert peer.stream.in_sync


def test_p44_a_client_that_holds_something_learns_that_all_is_gone():
    """In both variants."""
    held = snapshot(cluster("a"))
    for variant, removed in (("sotw", ()), ("delta", ("a",))):
        peer = xds_peer.connect(variant)
        peer.stream.update(snapshot())
        peer.ask(CDS, held=_versions(peer, held, CDS))
        told = [(one.resources, one.removed) for one in peer.settle()]
        assert told[-1] == ({}, removed)
        assert not any(resources for resources, _ in told)


def test_clusters_of_an_earlier_stream_wait_for_listeners_that_are_to_go():
    """Delta: nothing is left, and each goes after what refers to it."""
    peer = xds_peer.connect("delta")
    peer.stream.update(snapshot())
    for kind, names in ((CDS, ()), (LDS, ()), (RDS, ("r",))):
        peer.ask(kind, *names, held=_versions(peer, _everything(), kind))
    removed = [(one.type_url, one.removed) for one in peer.settle() if one.removed]
    assert removed == [(LDS, ("l",)), (RDS, ("r",)), (CDS, ("a", "b"))]


def test_p45_names_are_answered_though_the_version_is_held():
    """Delta: a cluster that warms anew needs the answer (envoyproxy/envoy#22418)."""
    peer = xds_peer.connect("delta")
    held = _everything()
    peer.stream.update(held)
    peer.ask(EDS, "a", "b", held=_versions(peer, held, EDS))
    assert sorted(peer.settle()[0].resources) == ["a", "b"]


@pytest.mark.parametrize("order", [(LDS, RDS, EDS, CDS), (CDS, EDS, LDS, RDS)])
def test_p46_types_come_in_any_order(peer, order):
    """Each is answered; the client ends in sync."""
    names = {LDS: ("l",), RDS: ("r",), EDS: ("a", "b"), CDS: ("a", "b")}
    peer.stream.update(_everything())
    for kind in order:
        peer.ask(kind, *names[kind], held=_versions(peer, _everything(), kind))
    seen: dict[str, set[str]] = {}
    for reply in peer.settle():
        seen.setdefault(reply.type_url, set()).update(reply.resources)
    assert seen == {kind: set(each) for kind, each in names.items()}
    assert peer.stream.in_sync


def test_p47_a_first_request_may_hold_ten_thousand_versions():
    """The server reads what the transport lets through."""
    peer = xds_peer.connect("delta")
    view = snapshot(*(cluster(f"c{number}") for number in range(10_000)))
    peer.stream.update(view)
    peer.ask(CDS, held=_versions(peer, view, CDS))
    assert peer.read() == []


def test_p48_a_sister_replica_has_the_same_versions(peer):
    """Versions are of content, so a restart is no change."""
    first, second = _everything(), _everything()
    assert first is not second
    for kind in (CDS, EDS, LDS, RDS):
        assert first.version(kind) == second.version(kind)
        for name, one in first.resources(kind).items():
            assert second.get(kind, name).version == one.version


def test_refused_after_a_reconnect_everything_is_said_again_later(peer):
    """What the client holds after a refused first response is not known."""
    held = snapshot(cluster("a"), cluster("gone"))
    peer.stream.update(snapshot(cluster("a", "bad")))
    peer.ask(CDS, held=_versions(peer, held, CDS))
    peer.answer(peer.read_one(), refuse="bad")
    peer.stream.update(snapshot(cluster("a")))
    reply = peer.settle()[0]
    assert reply.resources == {"a": body("a")}
    assert reply.removed == (("gone",) if peer.variant == "delta" else ())
    assert peer.stream.in_sync


def test_refused_after_a_reconnect_what_was_held_still_goes_later():
    """Delta: what the client held and was not sent is not forgotten over its refusal."""
    peer = xds_peer.connect("delta")
    held = snapshot(cluster("a"), cluster("kept"))
    peer.stream.update(snapshot(cluster("a", "bad"), cluster("kept")))
    peer.ask(CDS, held=_versions(peer, held, CDS))
    peer.answer(peer.read_one(), refuse="bad")
    peer.stream.update(snapshot())
    assert sorted(name for one in peer.settle() for name in one.removed) == ["a", "kept"]
    assert peer.stream.in_sync
