# SPDX-License-Identifier: Apache-2.0
"""Proxies that are alike are given their targets as one, and nobody can tell."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.model import proxy
from pilothouse.routing import kinship, localities, plan
from pilothouse.xds import resources, streams
from pilothouse_discovery import builder, clients, delivery, records
from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS
from tests.unit.xds import test_convergence as convergence
from tests.unit.xds import test_moves as alike

NOWHERE = frozenset[str]()
layers: Callable[..., resources.Snapshot] = cast("Any", alike).layers
"""A target: clusters, the endpoints of two services in this content, and a cluster of its own."""


def kind(name: str = "shop") -> kinship.Kind:
    return kinship.GrpcKind(
        namespace=name,
        truths=frozenset(),
        stand=localities.NOWHERE,
        address="",
        ports=(),
        provider="",
    )


@dataclasses.dataclass(eq=False)
class Session:
    """A stream in this process."""

    stream: streams.Stream
    pushed: int = 0

    def push(self, snapshot: resources.Snapshot, *, traceparent: str = "") -> None:
        assert not traceparent
        self.pushed += 1
        self.stream.update(snapshot)


class World:
    """All that a delivery works with: what it asks, what it is told, and whom it tells."""

    def __init__(self) -> None:
        self.connected = clients.Clients()
        self.kinds: dict[proxy.Proxy, kinship.Kind] = {}
        self.target: builder.Answer = plan.NotReady(waiting_for=("files",))
        self.asked: list[str] = []
        self.pending: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens on the loop while the builder works."""
        this = cast("Any", self)
        self.delivery = delivery.Delivery(
            connected=self.connected, by=this, holder=this, tracker=this
        )

    # The builder, and where it works

    def answers(self, asked: Iterable[builder.Asked]) -> tuple[builder.Told, ...]:
        asked = tuple(asked)
        self.asked += [one.proxy.id.name for one in asked]
        return tuple(builder.Told(self.target, self.kinds[one.proxy]) for one in asked)

    async def do(self, work: Callable[..., Any], *args: Any) -> Any:
        found = work(*args)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return found

    # Holding: nothing is held for anybody

    def held(self, client: clients.Client) -> records.Held:
        assert client in self.connected
        return records.NOTHING

    def given(self, client: clients.Client, held: records.Held) -> None:
        assert (client in self.connected, held) == (True, records.NOTHING)

    def at_peace(self, client: clients.Client) -> bool:
        return client in self.connected

    # Progress

    def moved(self, client: clients.Client) -> None:
        assert client in self.connected

    def opened(self, pending: Sequence[clients.Client], *, attributes: object) -> None:
        assert attributes == {"xds.proxies": len(self.connected)}
        self.pending = [client.proxy.id.name for client in pending]

    # What happens

    def add(self, stream: streams.Stream, *, of: kinship.Kind, address: str = "") -> clients.Client:
        number = len(self.connected)
        one = proxy.Proxy(
            id=proxy.NodeId(
                role=proxy.Role.SIDECAR,
                address=address or f"10.0.0.{number}",
                name=f"p{number}",
                namespace="shop",
            )
        )
        self.kinds[one] = of
        client = clients.Client(id=f"#{number}", proxy=one, session=cast("Any", Session(stream)))
        self.connected.add(client)
        self.delivery.welcome(client)
        return client

    def build(self, target: resources.Snapshot, moved: frozenset[str] | None = NOWHERE) -> None:
        self.target, self.asked = target, []
        asyncio.run(self.delivery.everybody(cast("Any", self), moved))


@dataclasses.dataclass
class Fleet:
    """Three proxies of one kind that watch the endpoints of one service."""

    world: World
    peers: list[xds_peer.Peer]
    clients: list[clients.Client]

    def settle(self) -> list[set[str]]:
        """Carry everything to the end; the endpoints that each was told."""
        told = []
        for peer, client in zip(self.peers, self.clients, strict=True):
            told.append({name for reply in peer.settle() for name in reply.resources})
            self.world.delivery.settled(client)
        return told

    @property
    def pushed(self) -> list[int]:
        return [cast("Session", client.session).pushed for client in self.clients]


@pytest.fixture
def fleet() -> Fleet:
    world, one = World(), kind()
    peers = [xds_peer.connect("delta") for _ in range(3)]
    made = Fleet(world, peers, [world.add(peer.stream, of=one) for peer in peers])
    for peer in peers:
        peer.ask(CDS)
        peer.ask(EDS, "web")
    world.build(layers(), None)
    made.settle()
    return made


def test_what_nobody_watches_touches_one_of_them(fleet: Fleet) -> None:
    """All hold it, one was given it, and nobody is waited for."""
    before = fleet.pushed
    for number in "234":
        fleet.world.build(layers(shop=number))
        assert (len(fleet.world.asked), fleet.world.pending) == (1, [])
    assert sum(fleet.pushed) - sum(before) == 3
    assert fleet.settle() == [set()] * 3
    newest = fleet.world.target
    assert all(peer.stream.target is newest and peer.stream.in_sync for peer in fleet.peers)


def test_who_asks_for_it_later_gets_the_newest(fleet: Fleet) -> None:
    """And goes its own way from then on; the others stay together."""
    fleet.world.build(layers(shop="2"))
    fleet.peers[1].ask(EDS, "shop")
    (reply,) = fleet.peers[1].settle()
    assert reply.resources == {"shop": b"shop=2"}
    fleet.world.delivery.settled(fleet.clients[1])
    fleet.world.build(layers(shop="3"))
    assert fleet.settle() == [set(), {"shop"}, set()]


def test_what_all_watch_is_asked_for_once_and_told_to_each(fleet: Fleet) -> None:
    """Each answers for itself."""
    fleet.world.build(layers(web="2"))
    assert (fleet.world.asked, fleet.world.pending) == (["p0"], ["p0", "p1", "p2"])
    assert fleet.settle() == [{"web"}] * 3


def test_one_that_says_something_meanwhile_is_given_its_part(fleet: Fleet) -> None:
    """It is on its own again, and holds what it held."""
    fleet.world.build(layers(shop="2"))
    fleet.peers[2].ask(EDS, "shop")  # its answer is not written yet
    fleet.world.build(layers(shop="3"))
    assert fleet.world.pending == ["p2"]
    (reply,) = fleet.peers[2].settle()
    assert reply.resources == {"shop": b"shop=3"}


def test_at_an_address_where_something_moved_one_is_asked_after(fleet: Fleet) -> None:
    """It may have become another kind; the others have not."""
    fleet.world.kinds[fleet.clients[1].proxy] = kind("other")
    fleet.world.build(layers(shop="2"), frozenset({"10.0.0.1"}))
    assert sorted(fleet.world.asked) == ["p0", "p1"]
    fleet.world.build(layers(shop="3"))
    assert len(fleet.world.asked) == 2
    assert "p1" in fleet.world.asked
    assert all(peer.stream.target is fleet.world.target for peer in fleet.peers)


def test_when_anything_may_have_changed_all_are_asked_after(fleet: Fleet) -> None:
    """None is taken for what it was."""
    fleet.world.build(layers(shop="2"), None)
    assert sorted(fleet.world.asked) == ["p0", "p1", "p2"]


def test_one_that_goes_leaves_the_others_together(fleet: Fleet) -> None:
    """Also the one that was asked for all."""
    fleet.world.connected.remove(fleet.clients[0])
    fleet.world.delivery.gone(fleet.clients[0])
    fleet.world.build(layers(shop="2"))
    assert fleet.world.asked == ["p1"]
    assert fleet.peers[0].stream.target is not fleet.world.target
    assert [peer.stream.target for peer in fleet.peers[1:]] == [fleet.world.target] * 2


def test_nothing_old_is_kept_alive_by_those_who_stand_still(fleet: Fleet) -> None:
    """However many changes pass by that say nothing to them."""
    passing = resources.Snapshot.of(
        (alike.CLUSTERS, *layers(shop="2").layers[1:2], alike.inbound("x"))
    )
    gone = weakref.ref(passing)
    fleet.world.build(passing)
    fleet.world.build(layers(shop="3"))
    del passing
    gc.collect()
    assert gone() is None


class Told(alike.Told):
    """An Envoy whose server tells the delivery when it has answered."""

    def __init__(self, variant, *, alone):
        super().__init__(variant, alone=alone)
        self.answered = lambda: None

    def send(self):
        sent = super().send()
        if sent:
            self.answered()
        return sent


ACTIONS = st.tuples(st.integers(0, 2), alike.ACTIONS)
"""Who does what."""


class Twins:
    """Three proxies of one kind, each beside one that behaves the same and shares nothing."""

    def __init__(self, variant: str) -> None:
        made: Any = Told
        self.world = World()
        self.crowd: list[Any] = [made(variant, alone=False) for _ in range(3)]
        self.lonely: list[Any] = [made(variant, alone=True) for _ in range(3)]
        one = kind()
        for envoy in self.crowd:
            client = self.world.add(envoy.peer.stream, of=one)
            envoy.answered = functools.partial(self.world.delivery.settled, client)

    def act(self, *actions: tuple[int, str]) -> None:
        _act(self.crowd, actions)
        _act(self.lonely, actions)

    def update(self, target: resources.Snapshot, meanwhile: Sequence[tuple[int, str]] = ()) -> None:
        self.world.meanwhile = functools.partial(_act, self.crowd, meanwhile)
        _act(self.lonely, meanwhile)
        self.world.build(target)
        for envoy in self.crowd:
            envoy.target = target
        for envoy in self.lonely:
            envoy.update(target)

    def finish(self) -> None:
        for envoy in (*self.crowd, *self.lonely):
            envoy.run()


def _act(envoys: list[Any], actions: Iterable[tuple[int, str]]) -> None:
    for who, action in actions:
        getattr(envoys[who], action)()


@pytest.mark.parametrize("variant", convergence.VARIANTS)
@convergence.SETTINGS
@given(
    first=convergence.snapshots().map(alike.in_layers),
    plan=st.lists(
        st.one_of(
            ACTIONS,
            st.tuples(
                convergence.snapshots(bad=True).map(alike.in_layers), st.lists(ACTIONS, max_size=4)
            ),
        ),
        max_size=30,
    ),
)
def test_each_is_told_what_it_would_be_told_alone(
    variant: str, first: resources.Snapshot, plan: list[Any]
) -> None:
    """Each with delays of its own, also while others are given their targets."""
    twins = Twins(variant)
    twins.update(first)
    twins.finish()
    for step in plan:
        if isinstance(step[0], int):
            twins.act(step)
        else:
            twins.update(*step)
    twins.finish()
    for envoy, other in zip(twins.crowd, twins.lonely, strict=True):
        assert envoy.told == other.told
        assert envoy.held == other.held
        assert envoy.peer.stream.in_sync == other.peer.stream.in_sync
        assert envoy.peer.stream.statuses() == other.peer.stream.statuses()
        assert envoy.peer.stream.types() == other.peer.stream.types()
