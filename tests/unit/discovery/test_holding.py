# SPDX-License-Identifier: Apache-2.0
"""Refusals of a whole fleet, over the real protocol without a network, in any order of events.

Everybody refuses route configurations with some objects in their newest content, without a hint;
one odd client refuses others besides. In the end each runs all that it does not refuse, in its
newest content, and what only the odd one refuses is in force for the others.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping

import pytest
from hypothesis import given, strategies

from pilothouse.adapters.rpc import streams
from pilothouse.api.config.v1alpha1 import external_service_pb2
from pilothouse.config import admission, codec, objects
from pilothouse.model import changes, keys, proxy
from pilothouse.rollout import trials
from pilothouse.xds import resources, types
from pilothouse_discovery import clients, held_counts, holding
from tests.support import xds_peer

CDS, RDS = types.CLUSTER.type_url, types.ROUTE.type_url
NAMES = "abcdef"


def key(name: str) -> keys.ObjectKey:
    return keys.ObjectKey("ExternalService", "default", name)


@functools.cache
def config(name: str, generation: int) -> objects.Config:
    """A valid object that says something else in each generation."""
    spec = external_service_pb2.ExternalServiceSpec(
        hosts=[f"{name}{generation}.com"], ports=[external_service_pb2.ExternalPort(number=443)]
    )
    return codec.make(key(name), spec, source="s", generation=generation)


@functools.cache
def snapshot(held: frozenset[tuple[str, int]]) -> resources.Snapshot:
    """All objects in one route configuration; each has a cluster too."""
    every = [
        resources.Resource.of(CDS, name, f"{name}={number}".encode(), origins=(key(name),))
        for name, number in sorted(held)
    ]
    text = ",".join(f"{name}{number}" for name, number in sorted(held))
    routes = resources.Resource.of(
        RDS, "routes", f"routes={text}".encode(), origins=[key(name) for name, _ in held]
    )
    return resources.Snapshot.of((resources.Layer.of([*every, routes]),))


@dataclasses.dataclass(slots=True, eq=False)
class Client:
    """A client, what it cannot bear, and what it accepted last."""

    peer: xds_peer.Peer
    client: clients.Client
    dislikes: frozenset[str]
    runs: dict[str, int] = dataclasses.field(default_factory=dict)
    responses: int = 0
    refused: int = 0
    down: collections.deque[bytes] = dataclasses.field(default_factory=collections.deque)


class Fleet:
    """Discovery without its loop: every step is taken when the test says."""

    def __init__(
        self, variants: str, dislikes: list[frozenset[str]], *, generation: int = 1
    ) -> None:
        self.holding = holding.Holding()
        self.queue: list[clients.Client] = []
        self.changes = 0
        self.holding.attach(again=self.queue.append, changed=self._changed)
        self.accepted = admission.AcceptedSet()
        self.conditions: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]] = {}
        self.observed = {key(name): config(name, generation) for name in NAMES}
        self.clients = [
            self._client(number, "delta" if kind == "d" else "sotw", disliked)
            for number, (kind, disliked) in enumerate(zip(variants, dislikes, strict=True))
        ]
        self.build()

    def _changed(self, change: changes.Change) -> None:
        assert change.source == "refusal"
        self.changes += 1

    def _client(self, number: int, variant: str, dislikes: frozenset[str]) -> Client:
        peer = xds_peer.connect(variant)
        node = proxy.NodeId(
            role=proxy.Role.SIDECAR, address="10.0.0.1", name=f"p{number}", namespace="default"
        )
        client = clients.Client(
            id=str(number),
            proxy=proxy.Proxy(id=node),
            session=streams.Session(peer.stream, peer="test"),
        )
        peer.ask(CDS)
        peer.ask(RDS, "routes")
        self.holding.opened(client)
        return Client(peer, client, dislikes)

    def build(self) -> None:
        """What the engine does for a change."""
        self.changes = 0
        outcome = admission.admit(
            self.accepted,
            self.observed,
            refusals=self.holding.take(),
            proven=self.holding.proven(),
        )
        self.accepted, self.conditions = outcome.accepted, outcome.conditions
        self.holding.begin(self.accepted)
        self.queue.clear()
        for one in self.clients:
            self.serve(one.client)

    def serve(self, client: clients.Client) -> None:
        """Give a client its target."""
        held = self.holding.held(client)
        configs = {**self.accepted.configs, **held}
        left = frozenset((k.name, one.meta.generation) for k, one in configs.items() if one)
        client.push(snapshot(left))
        self.holding.given(client, held)

    def step(self, number: int) -> bool:
        """Something that can happen next; False if nothing can."""
        possible: list[Callable[[], object]] = [
            *([self.build] if self.changes else []),
            *([lambda: self.serve(self.queue.pop(0))] if self.queue else []),
            *(functools.partial(self.carry, one) for one in self.clients if self.busy(one)),
        ]
        if not possible:
            return False
        possible[number % len(possible)]()
        return True

    @staticmethod
    def busy(one: Client) -> bool:
        return bool(one.down) or one.peer.stream.ready

    def carry(self, one: Client) -> None:
        """Write a response, or have one answered."""
        response = one.peer.stream.poll()
        if response is not None:
            one.down.append(response.body)
            return
        reply = one.peer.decode(one.down.popleft())
        one.peer.nonces[reply.type_url] = reply.nonce
        text = reply.resources.get("routes", b"").decode().partition("=")[2]
        found = {part[0]: int(part[1:]) for part in text.split(",") if part}
        if reply.type_url == RDS:
            one.responses += 1
        if any(found.get(name) == 2 for name in one.dislikes):
            one.refused += 1
            one.peer.answer(reply, refuse="no")
        else:
            if reply.type_url == RDS:
                one.runs = found
            one.peer.answer(reply)
        self.holding.look(one.client)

    def settle(self, choices: list[int]) -> None:
        """Let things happen in some order until nothing can."""
        taken = 0
        while self.step(choices[taken % len(choices)] if choices else 0):
            taken += 1
            assert taken < 5000, "it never ends"

    def change(self, generation: int = 2, names: Iterable[str] = NAMES) -> None:
        """Objects become other ones, in one change; the second content is what is disliked."""
        self.observed = self.observed | {key(name): config(name, generation) for name in names}
        self.build()

    def in_force(self) -> dict[str, int]:
        return {k.name: one.meta.generation for k, one in self.accepted.configs.items()}


_SOME = strategies.frozensets(strategies.sampled_from(NAMES))
_CHOICES = strategies.lists(strategies.integers(0, 5), max_size=12)
_VARIANTS = strategies.text("ds", min_size=3, max_size=4)


def _wanted(bad: frozenset[str]) -> dict[str, int]:
    return {name: 1 if name in bad else 2 for name in NAMES}


@given(_SOME, _SOME, _VARIANTS, strategies.integers(0, 3), _CHOICES)
def test_each_runs_all_that_it_does_not_refuse(
    bad: frozenset[str], own: frozenset[str], variants: str, odd: int, choices: list[int]
) -> None:
    """In whatever order all happens, and whoever is searched; within bounds."""
    odd %= len(variants)
    dislikes = [bad | own if number == odd else bad for number in range(len(variants))]
    fleet = Fleet(variants, dislikes)
    fleet.settle(choices)
    before = [one.responses for one in fleet.clients]
    fleet.change()
    fleet.settle(choices)
    assert fleet.in_force() == _wanted(bad)
    for one, disliked, earlier in zip(fleet.clients, dislikes, before, strict=True):
        assert one.runs == _wanted(disliked)
        assert one.client.in_sync
        # Two searches at most, and each trial may go back to the old routes first.
        trials_of = 2 * (trials.bound(len(NAMES), len(disliked)) + 2)
        assert one.responses - earlier <= 2 * trials_of
    counts = held_counts.adjusted(fleet.holding.concerned, {})
    assert {k.name: one.refused for k, one in counts.items()} == dict.fromkeys(own - bad, 1)
    # Nothing is sent again for the next change, which is of nobody's liking or dislike.
    refused = [one.refused for one in fleet.clients]
    fleet.build()
    fleet.settle(choices)
    assert [one.refused for one in fleet.clients] == refused


_CHANGES = strategies.lists(
    strategies.tuples(_SOME, strategies.integers(1, 3), strategies.integers(0, 30)), max_size=6
)


@given(_SOME, _SOME, _VARIANTS, _CHANGES, _CHOICES)
def test_changes_may_come_at_any_time(
    bad: frozenset[str],
    own: frozenset[str],
    variants: str,
    sequence: list[tuple[frozenset[str], int, int]],
    choices: list[int],
) -> None:
    """During a search too. At rest nobody is refused anything, and a good change reaches all."""
    dislikes = [bad | own, *([bad] * (len(variants) - 1))]
    fleet = Fleet(variants, dislikes)
    for names, generation, steps in sequence:
        fleet.change(generation, names)
        for number in range(steps):
            fleet.step(choices[number % len(choices)] if choices else 0)
    fleet.settle(choices)
    for one, disliked in zip(fleet.clients, dislikes, strict=True):
        assert one.client.in_sync
        assert not [name for name in disliked if one.runs.get(name) == 2]
        newest = {k.name: config_.meta.generation for k, config_ in fleet.observed.items()}
        liked = {n: g for n, g in newest.items() if g != 2 or n not in bad | own}
        assert {n: one.runs.get(n) for n in liked} == liked
    fleet.change(3)
    fleet.settle(choices)
    assert [one.runs for one in fleet.clients] == [dict.fromkeys(NAMES, 3)] * len(variants)
    assert all(one.client.in_sync for one in fleet.clients)
    assert fleet.holding.concerned == {}


@given(_SOME, _VARIANTS, _CHOICES)
def test_what_never_ran_is_left_out(bad: frozenset[str], variants: str, choices: list[int]) -> None:
    """A fleet that begins with bad objects runs the others."""
    fleet = Fleet(variants, [bad] * len(variants), generation=2)
    fleet.settle(choices)
    wanted = {name: number for name, number in _wanted(bad).items() if number == 2}
    for one in fleet.clients:
        assert {n: g for n, g in one.runs.items() if n not in bad} == wanted
        assert one.client.in_sync


def test_a_client_that_goes_while_it_is_searched_leaves_the_search_to_another() -> None:
    """And is not waited for."""
    fleet = Fleet("dd", [frozenset("a")] * 2)
    fleet.settle([0])
    fleet.change()
    while not any(fleet.holding.searched(one.client) for one in fleet.clients):
        assert fleet.step(0)
    (searched,) = [one for one in fleet.clients if fleet.holding.held(one.client)]
    fleet.clients.remove(searched)
    fleet.queue[:] = [one for one in fleet.queue if one is not searched.client]
    fleet.holding.gone(searched.client)
    fleet.settle([0])
    (left,) = fleet.clients
    assert left.runs == _wanted(frozenset("a"))
    assert fleet.in_force() == _wanted(frozenset("a"))


@pytest.mark.parametrize("variant", ["d", "s"])
@pytest.mark.parametrize(("disliked", "found"), [("a", True), ("ab", False)])
def test_who_brought_its_configuration_along_loses_little(
    variant: str, disliked: str, *, found: bool
) -> None:
    """What it runs is not known, so never is much held; one culprit is found nevertheless.

    What was there at the start is held for the client, and not for the fleet.
    """
    fleet = Fleet(variant, [frozenset(disliked)], generation=2)
    (one,) = fleet.clients
    fleet.holding.gone(one.client)
    peer = xds_peer.connect("delta" if variant == "d" else "sotw")
    delta = variant == "d"
    peer.ask(CDS, held={"x": "1"} if delta else {"": "1"})
    peer.ask(RDS, "routes", held={"routes": "old"} if delta else {"": "old"})
    client = clients.Client(
        id="again", proxy=one.client.proxy, session=streams.Session(peer.stream, peer="test")
    )
    fleet.holding.opened(client)
    fleet.clients = [Client(peer, client, frozenset(disliked))]
    fleet.build()
    while fleet.step(0):
        assert len(fleet.holding.held(client)) <= 1
    (again,) = fleet.clients
    left = {name: 2 for name in NAMES if name not in disliked}
    assert again.runs == (left if found else {})
    assert fleet.holding.held(client) == ({key("a"): None} if found else {})
    assert fleet.in_force() == _wanted(frozenset())
    # A change of what it refuses is searched for as ever once it accepts.
    fleet.change(3)
    fleet.settle([0])
    assert again.runs == dict.fromkeys(NAMES, 3)
    fleet.change(2)
    fleet.settle([0])
    assert again.runs == {name: 3 if name in disliked else 2 for name in NAMES}


@pytest.mark.parametrize("late", [False, True])
def test_who_comes_back_has_held_what_was_held(*, late: bool) -> None:
    """Also when the end of its last stream is seen after the new one has begun."""
    fleet = Fleet("dd", [frozenset("a"), frozenset()])
    fleet.settle([0])
    fleet.change()
    fleet.settle([0])
    odd = fleet.clients.pop(0)
    held = fleet.holding.held(odd.client)
    assert set(held) == {key("a")}
    if not late:
        fleet.holding.gone(odd.client)
    again = fleet._client(0, "delta", frozenset("a"))
    fleet.clients.append(again)
    fleet.serve(again.client)
    if late:
        fleet.holding.gone(odd.client)
    fleet.settle([0])
    assert again.runs == _wanted(frozenset("a"))
    assert again.refused == 0
    # The content that it holds on to is its own, and is kept for as long as it is there.
    fleet.holding.gone(again.client)
    fleet.clients.remove(again)
    third = fleet._client(0, "delta", frozenset("a"))
    assert fleet.holding.held(third.client) == held
