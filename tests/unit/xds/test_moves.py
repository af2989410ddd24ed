# SPDX-License-Identifier: Apache-2.0
"""Streams that are alike share what a change makes them say, and nobody can tell."""

import dataclasses
import functools
import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.xds import delta, resources, sotw
from tests.support import xds_envoy, xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS, cluster, resource
from tests.unit.xds import test_convergence as convergence

CLUSTERS = resources.Layer.of([cluster("web"), cluster("shop")])


@functools.cache
def endpoints(web, shop):
    """The layer of endpoints, the same object for the same content, as from the translator."""
    return resources.Layer.of([resource(EDS, "web", web), resource(EDS, "shop", shop)])


@functools.cache
def inbound(name):
    """A layer that only some proxies have."""
    return resources.Layer.of([cluster(name)])


def layers(*, web="1", shop="1", own="x"):
    """A target of three layers."""
    return resources.Snapshot.of((CLUSTERS, endpoints(web, shop), inbound(own)))


def client(first, *names):
    """A delta client at rest that watches the endpoints of these."""
    peer = xds_peer.connect("delta")
    peer.ask(CDS)
    peer.ask(EDS, *names)
    peer.stream.update(first)
    peer.settle()
    return peer


def test_streams_that_are_alike_are_sent_the_very_same_bytes():
    """Nonce included, and whatever else their targets hold."""
    peers = [client(layers(own=own), "web") for own in ("x", "y")]
    for peer, own in zip(peers, ("x", "y"), strict=True):
        peer.stream.update(layers(web="2", own=own))
    one, other = (peer.stream.poll() for peer in peers)
    assert one is other
    assert peers[0].decode(one.body).resources == {"web": b"web=2"}


def test_a_change_of_two_layers_is_shared_too():
    """As of endpoints that some proxies have in an order of their own."""
    before, after = (
        resources.Snapshot.of(
            (CLUSTERS, endpoints(each, "1"), layer_of((cluster("own", each),)), inbound("x"))
        )
        for each in "12"
    )
    peers = [client(before, "web") for _ in range(2)]
    for peer in peers:
        peer.stream.update(after)
    ones, others = ([peer.stream.poll(), peer.stream.poll()] for peer in peers)
    assert [one is other for one, other in zip(ones, others, strict=True)] == [True, True]
    assert [one.type_url for one in ones] == [CDS, EDS]


def test_who_asks_for_something_else_is_sent_something_else():
    """The same change is another answer, or none."""
    first = layers()
    peers = [client(first, *names) for names in (("web",), ("web", "shop"), ("shop",), ())]
    after = layers(web="2", shop="2")
    told = []
    for peer in peers:
        peer.stream.update(after)
        told.append([set(reply.resources) for reply in peer.settle()])
        assert peer.stream.in_sync
    assert told == [[{"web"}], [{"web", "shop"}], [{"shop"}], []]


def test_a_nonce_comes_once_on_a_stream_though_a_change_comes_twice():
    """There and back, and there again: the shared response has been used here."""
    before, after = layers(), layers(web="2")
    peer = client(before, "web")
    nonces = []
    for target in (after, before, after, before, after):
        peer.stream.update(target)
        nonces += [reply.nonce for reply in peer.settle()]
    assert len(set(nonces)) == 5


def test_a_refusal_is_of_one_stream_alone():
    """The others have what it refused, and it has what was before."""
    before, after = layers(), layers(web="2")
    good, bad = client(before, "web"), client(before, "web")
    for peer in (good, bad):
        peer.stream.update(after)
    bad.answer(bad.read_one(), refuse="no")
    good.settle()
    assert good.stream.in_sync
    assert bad.stream.refusals == {EDS: "no"}
    assert bad.stream.acked(EDS) is before


def test_names_that_are_asked_for_one_by_one_are_alike_too():
    """What counts is the set in the end."""
    before, after = layers(), layers(web="2")
    one, other = client(before, "web", "shop"), client(before, "web")
    other.ask(EDS, "shop")
    other.settle()
    for peer in (one, other):
        peer.stream.update(after)
    assert one.stream.poll() is other.stream.poll()


def test_what_is_remembered_goes_with_the_layers():
    """A move is forgotten with what it leads from and to."""
    peer = client(layers(), "web")
    after = resources.Snapshot.of((CLUSTERS, resources.Layer.of([resource(EDS, "web", "new")])))
    peer.stream.update(layers(web="3", own="z"))
    peer.settle()
    gone = weakref.ref(after)
    peer.stream.update(after)
    peer.settle()
    peer.stream.update(layers())
    peer.settle()
    del after
    gc.collect()
    assert gone() is None


def newcomer(*names, own="x"):
    """A client that has just asked for endpoints, and what it is told of them."""
    peer = xds_peer.connect("delta")
    peer.stream.update(layers(own=own))
    peer.ask(CDS)
    peer.read_one()
    peer.ask(EDS, *names)
    return peer, peer.stream.poll()


def test_new_clients_that_ask_for_the_same_are_told_the_same():
    """Whatever else they are to hold; who asks for other names is told of those."""
    (peer, one), (_, other), (_, less) = (
        newcomer("web", "nobody"),
        newcomer("web", "nobody", own="y"),
        newcomer("shop"),
    )
    assert one is other
    reply = peer.decode(one.body)
    assert (reply.resources, reply.removed) == ({"web": b"web=1"}, ("nobody",))
    assert list(reply.errors) == ["nobody"]
    assert list(peer.decode(less.body).resources) == ["shop"]


def test_only_the_last_first_answers_are_kept():
    """Clients that ask for something else each cost nothing for ever."""
    _, before = newcomer("web")
    for number in range(10):
        newcomer("web", f"other-{number}")
    _, after = newcomer("web")
    assert after is not before


class _AloneDelta(delta.DeltaStream):
    _shares = False


class _AloneSotw(sotw.SotwStream):
    _shares = False


class Told(xds_envoy.Envoy):
    """An Envoy that remembers what it was told."""

    def __init__(self, variant, *, alone):
        super().__init__(variant)
        self.told = []
        if alone:
            self.peer = (
                xds_peer.DeltaPeer(_AloneDelta())
                if variant == "delta"
                else xds_peer.SotwPeer(_AloneSotw())
            )

    def write(self):
        written = super().write()
        if written:
            reply = self.peer.decode(self.down[-1])
            self.told.append(dataclasses.replace(reply, nonce=""))
        return written


@functools.cache
def layer_of(parts):
    """The same layer for the same resources, as from the translator."""
    return resources.Layer.of(parts)


def in_layers(view):
    """The resources of a snapshot, with a layer for each type, in a fixed order."""
    kinds = (CDS, EDS, LDS, RDS)
    return resources.Snapshot.of(layer_of(tuple(view.resources(kind).values())) for kind in kinds)


ACTIONS = st.sampled_from(["write", "read", "send", "run", "run"])


@pytest.mark.parametrize("variant", convergence.VARIANTS)
@convergence.SETTINGS
@given(
    first=convergence.snapshots().map(in_layers),
    plan=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 2), ACTIONS), convergence.snapshots(bad=True).map(in_layers)
        ),
        max_size=30,
    ),
)
def test_a_stream_says_what_it_would_say_if_it_were_alone(variant, first, plan):
    """Three that get the same targets, each with delays of its own, beside one that shares nothing.

    For each of the three the lonely one that behaves the same is told the same.
    """
    crowd = [Told(variant, alone=False) for _ in range(3)]
    lonely = [Told(variant, alone=True) for _ in range(3)]
    everybody = [*crowd, *lonely]
    for envoy in everybody:
        envoy.update(first)
        envoy.run()
    for step in plan:
        if isinstance(step, tuple):
            who, action = step
            getattr(crowd[who], action)()
            getattr(lonely[who], action)()
        else:
            for envoy in everybody:
                envoy.update(step)
    for envoy in everybody:
        envoy.run()
    for one, other in zip(crowd, lonely, strict=True):
        assert one.told == other.told
        assert one.held == other.held
        assert one.peer.stream.in_sync == other.peer.stream.in_sync
