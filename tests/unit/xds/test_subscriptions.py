# SPDX-License-Identifier: Apache-2.0
"""Names, wildcards and the legacy wildcard: P21 to P31 of the protocol."""

import pytest

from pilothouse.xds import types
from tests.support import xds_peer
from tests.support.xds_peer import CDS, ECDS, EDS, LDS, RDS, SDS, body, cluster, resource, snapshot

VARIANTS = ("sotw", "delta")
TWO = snapshot(cluster("a"), cluster("b"))


@pytest.fixture(params=VARIANTS)
def peer(request):
    return xds_peer.connect(request.param)


def test_p21_state_of_the_world_takes_the_full_list():
    """A name that is not in the list any more is not wanted any more."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.send(EDS, ["a"])
    first = peer.read_one()
    peer.send(EDS, ["b"], nonce=first.nonce)
    assert peer.read_one().resources == {"b": body("b")}


def test_p21_delta_takes_additions_and_removals():
    """What is not mentioned stays."""
    peer = xds_peer.connect("delta")
    peer.send(EDS, add=["a", "b"])
    peer.send(EDS, add=["c"], remove=["a"])
    peer.stream.update(snapshot(*(resource(EDS, name) for name in "abc")))
    assert sorted(peer.read_one().resources) == ["b", "c"]


def test_p22_an_empty_first_request_means_everything(peer):
    """Of clusters and listeners."""
    peer.stream.update(TWO)
    peer.ask(CDS)
    assert sorted(peer.read_one().resources) == ["a", "b"]


def test_p22_an_empty_list_after_a_name_means_nothing():
    """State of the world, also when the name was the wildcard."""
    for name in ("a", "*"):
        peer = xds_peer.connect("sotw")
        peer.stream.update(TWO)
        peer.ask(CDS, name)
        peer.settle()
        peer.ask(CDS, drop=[name])
        assert peer.read() == []
        peer.stream.update(snapshot(cluster("a", "2"), cluster("b", "2")))
        assert peer.read() == []
        assert peer.stream.in_sync


def test_p22_a_name_first_and_nothing_named_later_in_delta():
    """A second request without names changes nothing."""
    peer = xds_peer.connect("delta")
    peer.stream.update(TWO)
    peer.ask(CDS, "a")
    assert list(peer.read_one().resources) == ["a"]
    peer.ask(CDS)
    assert peer.read() == []


@pytest.mark.parametrize("kind", [CDS, EDS])
def test_p23_the_wildcard_can_be_asked_for_after_names(peer, kind):
    """Everything comes, not only what changes from then on."""
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b")))
    peer.ask(kind, "a")
    peer.settle()
    peer.ask(kind, "*")
    assert "b" in peer.read_one().resources


def test_p23_dropping_the_wildcard_leaves_the_names(peer):
    """And dropping a name leaves the wildcard."""
    peer.stream.update(TWO)
    peer.ask(CDS, "*", "a")
    peer.settle()
    peer.ask(CDS, drop=["*"])
    peer.settle()
    peer.stream.update(snapshot(cluster("a", "2"), cluster("b", "2")))
    assert peer.read_one().resources == {"a": body("a", "2")}


def test_p23_dropping_a_name_leaves_the_wildcard(peer):
    """All changes go on coming."""
    peer.stream.update(TWO)
    peer.ask(CDS, "*", "a")
    peer.settle()
    peer.ask(CDS, drop=["a"])
    peer.settle()
    peer.stream.update(snapshot(cluster("a", "2"), cluster("b")))
    assert peer.read_one().resources["a"] == body("a", "2")


def test_p24_naming_a_resource_keeps_the_legacy_wildcard_in_delta():
    """It ends when it is unsubscribed from by its name."""
    peer = xds_peer.connect("delta")
    peer.stream.update(TWO)
    peer.ask(CDS)
    peer.settle()
    peer.ask(CDS, "a")
    peer.settle()
    peer.stream.update(snapshot(cluster("a"), cluster("b", "2")))
    assert peer.settle()[0].resources == {"b": body("b", "2")}
    peer.ask(CDS, drop=["*"])
    peer.stream.update(snapshot(cluster("a", "2"), cluster("b", "3")))
    assert peer.settle()[0].resources == {"a": body("a", "2")}


@pytest.mark.parametrize(("name", "resources", "removed"), [("a", ["a"], ()), ("z", [], ("z",))])
def test_p25_dropping_a_name_under_the_wildcard_is_answered_in_delta(name, resources, removed):
    """With the resource if it is there still, else among the removed."""
    peer = xds_peer.connect("delta")
    peer.stream.update(TWO)
    peer.ask(CDS, "*", name)
    peer.settle()
    peer.ask(CDS, drop=[name])
    reply = peer.read_one()
    assert (sorted(reply.resources), reply.removed) == (resources, removed)


def test_p25_other_unsubscriptions_need_no_answer(peer):
    """Without a wildcard the client just forgets the name."""
    peer.stream.update(snapshot(resource(EDS, "a"), resource(EDS, "b")))
    peer.ask(EDS, "a", "b")
    peer.settle()
    peer.ask(EDS, drop=["a"])
    assert peer.read() == []
    assert peer.stream.in_sync


def test_p26_dropping_what_was_never_asked_for_is_ignored():
    """Delta: there is nothing to say about it."""
    for names in (("a",), ("*",)):
        peer = xds_peer.connect("delta")
        peer.stream.update(TWO)
        peer.ask(CDS, *names)
        peer.settle()
        peer.send(CDS, remove=["b"])
        assert peer.read() == []


def test_p27_a_name_asked_for_again_is_answered_again_in_delta():
    """Even if the server knows that the client has that version."""
    peer = xds_peer.connect("delta")
    peer.stream.update(snapshot(resource(EDS, "a")))
    peer.ask(EDS, "a")
    peer.settle()
    for _ in range(2):
        peer.ask(EDS, "a")
        assert peer.settle()[0].resources == {"a": body("a")}


def test_p28_a_name_that_comes_back_is_sent_again_unchanged():
    """State of the world, as gRPC does when a cluster goes and comes: nonce and version stay."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(resource(EDS, "a")))
    peer.ask(EDS, "a")
    peer.settle()
    peer.ask(EDS, drop=["a"])
    assert peer.read() == []
    peer.ask(EDS, "a")
    assert peer.settle()[0].resources == {"a": body("a")}
    peer.ask(EDS)  # the same words, as Envoy says them to warm a cluster anew
    assert [reply.resources for reply in peer.settle()] == [{"a": body("a")}]


@pytest.mark.parametrize("kind", [EDS, RDS, SDS, ECDS, types.VIRTUAL_HOST.type_url])
def test_p29_an_empty_first_request_for_other_types_yields_nothing(peer, kind):
    """Or all tenants' secrets and hosts would leak."""
    peer.stream.update(snapshot(resource(kind, "secret")))
    peer.ask(kind)
    assert peer.read() == []
    peer.stream.update(snapshot(resource(kind, "secret", "2")))
    assert peer.read() == []
    assert peer.stream.in_sync


@pytest.mark.parametrize("kind", [CDS, LDS, EDS, RDS])
def test_p30_the_empty_name_is_nobody_s(kind):
    """Some clients ask for it to ask for nothing any more: silence."""
    peer = xds_peer.connect("sotw")
    peer.stream.update(snapshot(resource(kind, "a")))
    peer.ask(kind, "a")
    peer.settle()
    peer.ask(kind, "", drop=["a"])
    peer.stream.update(snapshot(resource(kind, "a", "2")))
    assert peer.read() == []


def test_p31_listeners_and_clusters_can_be_named(peer):
    """As gRPC always does: only those come."""
    peer.stream.update(snapshot(*TWO.layers[0], resource(LDS, "l"), resource(LDS, "m")))
    peer.ask(LDS, "l")
    peer.ask(CDS, "a")
    assert sorted(sorted(reply.resources) for reply in peer.read()) == [["a"], ["l"]]


GLOB = "xdstp://mesh/envoy.config.cluster.v3.Cluster/shop/*"
FULL = "xdstp://mesh/envoy.config.cluster.v3.Cluster/cart?zone=eu-1"


def test_p42_a_name_is_a_name_whatever_it_looks_like(peer):
    """The answer repeats it as it was asked for, parameters and all."""
    peer.stream.update(snapshot(cluster(FULL)))
    peer.ask(CDS, FULL)
    assert list(peer.read_one().resources.values()) == [body(FULL)]


def test_p42_a_glob_is_a_collection_without_members(peer):
    """Nobody has such names here: it is told so, by the glob itself."""
    peer.stream.update(snapshot(cluster(FULL)))
    peer.ask(CDS, GLOB)
    reply = peer.read_one()
    assert (dict(reply.resources), list(reply.errors)) == ({}, [GLOB])
    assert reply.removed == ((GLOB,) if peer.variant == "delta" else ())


def test_p58_a_cluster_asked_for_on_demand_is_answered_at_once():
    """Beside the wildcard, whether it exists or not: a request waits for it. Delta alone."""
    peer = xds_peer.connect("delta")
    peer.stream.update(TWO)
    peer.ask(CDS)
    peer.settle()
    peer.ask(CDS, "nobody")
    reply = peer.read_one()
    assert (reply.resources, reply.removed) == ({}, ("nobody",))
    peer.answer(reply)
    peer.ask(CDS, "a")
    assert list(peer.read_one().resources) == ["a"]


@pytest.mark.parametrize(
    ("kind", "wildcard"), [(types.SCOPED_ROUTE.type_url, True), (types.RUNTIME.type_url, False)]
)
def test_p61_scopes_are_a_whole_set_and_layers_have_names(peer, kind, wildcard):
    """So an empty list asks for all scopes, and for no layer."""
    peer.stream.update(snapshot(resource(kind, "a"), resource(kind, "b")))
    peer.ask(kind)
    replies = peer.settle()
    assert [sorted(one.resources) for one in replies] == ([["a", "b"]] if wildcard else [])
    if not wildcard:
        peer.ask(kind, "b")
        assert list(peer.read_one().resources) == ["b"]
