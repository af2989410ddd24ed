# SPDX-License-Identifier: Apache-2.0
"""Requests and responses of state of the world that pass each other: nothing asked for is lost.

A request with an old nonce is not answered (P10), and the next one repeats its names only: that a
name was dropped and asked for again in between is known from those old requests alone.
"""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import xds_peer, xds_watcher
from tests.support.xds_peer import CDS, EDS, LDS, RDS, resource, snapshot

NAMES = "abc"
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LINE = ("write", "read", "send", "run")


def _view(kind, content="1", names=NAMES):
    return snapshot(*(resource(kind, name, content) for name in names))


def _holds_what_it_watches(client, target, kind):
    have = xds_watcher.bodies(target, kind)
    watched = client.watches[kind]
    assert client.told(kind) == {name: have[name] for name in sorted(watched) if name in have}
    assert client.stream.in_sync


def _start(kind, *names):
    client = xds_watcher.Watcher()
    client.update(_view(kind))
    for name in names:
        client.watch(kind, name)
    client.run()
    return client


@pytest.mark.parametrize("kind", [CDS, EDS, LDS, RDS])
@pytest.mark.parametrize(
    "order", sorted(set(itertools.permutations(("write", "read", "send", "send", "send"))))
)
def test_p10_requests_that_cross_a_response_in_every_order(kind, order):
    """One name goes and comes back, and another joins it, while something else changes."""
    client = _start(kind, "a", "b")
    target = snapshot(*(resource(kind, name, "12"[name == "b"]) for name in NAMES))
    client.update(target)
    client.drop(kind, "a")
    client.watch(kind, "a")
    client.watch(kind, "c")
    for move in order:
        getattr(client, move)()
    client.run()
    _holds_what_it_watches(client, target, kind)


@pytest.mark.parametrize("kind", [CDS, EDS, LDS, RDS])
@SETTINGS
@given(data=st.data())
def test_p10_whatever_crosses_a_client_ends_with_all_it_asks_for(kind, data):
    """Any changes of mind, any changes of content, any delays."""
    client = _start(kind, "a", "b")
    steps = st.one_of(
        st.sampled_from(LINE),
        st.tuples(st.sampled_from(("watch", "drop")), st.sampled_from(NAMES)),
        st.sampled_from("123"),
    )
    target = _view(kind)
    for step in data.draw(st.lists(steps, max_size=40)):
        if isinstance(step, tuple):
            getattr(client, step[0])(kind, step[1])
        elif step in LINE:
            getattr(client, step)()
        else:
            target = _view(kind, step)
            client.update(target)
    client.run()
    _holds_what_it_watches(client, target, kind)


@pytest.mark.parametrize("kind", [CDS, EDS, LDS, RDS])
def test_p38_a_missing_name_that_is_asked_for_again_is_told_again(kind):
    """Each watch begins with nothing, also when the requests crossed a response."""
    client = _start(kind, "nobody", "a")
    assert (kind, "nobody") in client.missing
    client.update(_view(kind, "2"))
    client.write()
    client.drop(kind, "nobody")
    client.watch(kind, "nobody")
    client.run()
    assert (kind, "nobody") in client.missing


# What gRPC's clients make of it


@st.composite
def _meshes(draw):
    clusters = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    return xds_watcher.mesh(*clusters, content=draw(st.sampled_from("12")))


@SETTINGS
@given(
    plan=st.lists(st.one_of(st.sampled_from((*LINE, "release")), _meshes()), max_size=40),
    last=_meshes(),
)
def test_p28_a_client_without_a_proxy_ends_with_where_its_routes_lead(plan, last):
    """And never loses a cluster that it asks for, though routes turn away from it and back."""
    client = xds_watcher.Grpc("l")
    for step in [*plan, last]:
        if isinstance(step, str):
            getattr(client, step)()
        else:
            client.update(step)
    client.run()
    for kind in (LDS, RDS):
        assert client.told(kind) == xds_watcher.bodies(last, kind)
    for kind in (CDS, EDS):
        assert xds_watcher.bodies(last, kind).items() <= client.told(kind).items()
    client.release()
    client.run()
    for kind in (CDS, EDS):
        assert client.told(kind) == xds_watcher.bodies(last, kind)
    assert client.deleted == []
    assert client.stream.in_sync


def test_p50_a_named_cluster_stays_until_its_name_is_dropped():
    """Then it is gone: who asks for it anew is told so."""
    client = xds_watcher.Grpc("l")
    client.update(xds_watcher.mesh("a"))
    client.run()
    client.update(xds_watcher.mesh("b"))
    client.run()
    assert list(client.told(CDS)) == ["a", "b"]
    client.release()
    client.run()
    client.watch(CDS, "a")
    client.run()
    assert list(client.told(CDS)) == ["b"]
    assert (CDS, "a") in client.missing


def test_p50_a_cluster_that_stayed_and_comes_back_different_is_sent():
    """Its newest content counts."""
    client = xds_watcher.Grpc("l")
    for target in (
        xds_watcher.mesh("a"),
        xds_watcher.mesh("b"),
        xds_watcher.mesh("a", content="2"),
    ):
        client.update(target)
        client.run()
    assert client.told(CDS) == {"a": xds_peer.body("a", "2"), "b": xds_peer.body("b")}


def test_p32_a_named_cluster_that_no_route_led_to_is_deleted():
    """Without listeners and routes on the stream there is nobody whose calls it would cost."""
    client = _start(CDS, "a", "b")
    client.update(snapshot(resource(CDS, "b")))
    client.run()
    assert list(client.told(CDS)) == ["b"]
    assert client.deleted == ["a"]
