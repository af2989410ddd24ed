# SPDX-License-Identifier: Apache-2.0
"""Snapshots arrive as they are, and nothing is told twice."""

from __future__ import annotations

import gc

import hypothesis
from hypothesis import strategies

from pilothouse.xds import resources, transition, types
from pilothouse_discovery.workers import library, messages

URLS = (types.CLUSTER.type_url, types.ENDPOINT.type_url, types.ROUTE.type_url)


def resource(name: str, version: int = 1, url: str = URLS[0]) -> resources.Resource:
    """A resource whose content is its version."""
    return resources.Resource.of(
        url, name, f"{name}-{version}".encode(), references=[(URLS[1], name)]
    )


def snapshot(*layers: resources.Layer) -> resources.Snapshot:
    """A snapshot of layers."""
    return resources.Snapshot.of(layers)


def content(one: resources.Snapshot) -> list[tuple[str, str, str, bytes, object]]:
    """Everything about a snapshot that a client could tell."""
    return sorted(
        (each.type_url, each.name, each.version, each.body, sorted(each.references))
        for layer in one.layers
        for each in layer
    )


class Link:
    """Both ends, and what is said between them."""

    def __init__(self) -> None:
        self.down: list[messages.Message] = []
        self.up: list[messages.Message] = []
        self.sender = library.Sender(self.down.append)
        self.worker = library.Receiver()
        self.reporter = library.Sender(self.up.append, theirs=self.worker)
        self.parent = library.Receiver(ours=self.sender)

    def tell(
        self, one: resources.Snapshot, base: resources.Snapshot | None = None
    ) -> resources.Snapshot:
        """What the worker has for a snapshot of the parent."""
        self.sender.tidy()
        number = self.sender.snapshot(one, base)
        self.deliver(self.down, self.worker)
        arrived = self.worker.snapshot(number)
        assert arrived is not None
        return arrived

    def report(self, one: resources.Snapshot, base: resources.Snapshot) -> resources.Snapshot:
        """What the parent has for a snapshot of the worker."""
        self.reporter.tidy()
        number = self.reporter.snapshot(one, base)
        self.deliver(self.up, self.parent)
        arrived = self.parent.snapshot(number)
        assert arrived is not None
        return arrived

    def deliver(self, said: list[messages.Message], to: library.Receiver) -> None:
        """Have what was said arrive."""
        frame = messages.encode(said)[messages.HEADER :]
        said.clear()
        for message in messages.decode(frame):
            assert isinstance(
                message, messages.Resource | messages.Layer | messages.Snapshot | messages.Drop
            )
            to.take(message)


LAYERS = strategies.lists(
    strategies.dictionaries(
        strategies.tuples(strategies.sampled_from(URLS), strategies.sampled_from("abcd")),
        strategies.integers(1, 3),
        max_size=6,
    ),
    max_size=3,
)


def _made(layers: list[dict[tuple[str, str], int]]) -> resources.Snapshot:
    """Names are made distinct between layers, as a snapshot must be."""
    return snapshot(
        *(
            resources.Layer.of(
                resource(f"{name}{place}", version, url) for (url, name), version in layer.items()
            )
            for place, layer in enumerate(layers)
        )
    )


@hypothesis.given(strategies.lists(LAYERS, max_size=5), strategies.sampled_from([0, 9]))
def test_whatever_is_told_arrives(
    history: list[list[dict[tuple[str, str], int]]], keep: int
) -> None:
    """On the way from any snapshot to any other, whether the older ones live on or not."""
    link = Link()
    before: resources.Snapshot | None = None
    kept: list[resources.Snapshot] = []
    for layers in history:
        now = _made(layers)
        arrived = link.tell(now, before)
        assert content(arrived) == content(now)
        assert [arrived.version(url) for url in URLS] == [now.version(url) for url in URLS]
        if before is not None and before.layers and now.layers:
            # What a stream makes of the two on its way comes back as it is.
            mixed = transition.next_step(now, before)
            there = link.tell(before, now)
            step = transition.next_step(arrived, there)
            assert content(link.report(step, there)) == content(mixed)
        before = now
        kept = [*kept, now][:keep]


def test_what_is_known_is_not_told_again() -> None:
    """The same snapshot is a number; one changed resource is told as one."""
    link = Link()
    shared = resources.Layer.of([resource("shared", url=URLS[2])])
    many = [resource(f"s{n}") for n in range(50)]
    first = snapshot(resources.Layer.of(many), shared)
    link.tell(first)
    number = link.sender.snapshot(first, None)
    assert link.down == []
    changed = snapshot(resources.Layer.of([resource("s7", 2), *many[:7], *many[8:]]), shared)
    assert link.sender.snapshot(changed, first) != number
    told, layer, whole = link.down
    assert isinstance(told, messages.Resource)
    assert (told.name, told.body) == ("s7", b"s7-2")
    assert isinstance(layer, messages.Layer)
    assert (layer.removed, layer.added) == ((), (told.number,))
    assert layer.base
    assert isinstance(whole, messages.Snapshot)


def test_layers_that_share_resources_share_them_there() -> None:
    """Without a base as well: a resource is told once."""
    link = Link()
    one = resource("s1")
    first = link.tell(snapshot(resources.Layer.of([one])))
    kept = snapshot(resources.Layer.of([one, resource("s2")]))
    other = link.tell(kept)
    assert first.get(URLS[0], "s1") is other.get(URLS[0], "s1")


def test_what_is_gone_is_dropped_at_the_other_end() -> None:
    """Nobody keeps a snapshot that its sender has given up, nor what only it had."""
    link = Link()
    old = snapshot(resources.Layer.of([resource("old")]))
    link.tell(old)
    del old
    gc.collect()
    link.tell(snapshot(resources.Layer.of([resource("new")])))
    held = [one for one in link.worker._held.values() if isinstance(one, resources.Resource)]
    assert [one.name for one in held] == ["new"]


def test_a_known_snapshot_comes_back_as_itself() -> None:
    """The parent recognises its own, by identity; nothing but its number travels."""
    link = Link()
    one = snapshot(resources.Layer.of([resource("s1")]))
    there = link.tell(one)
    assert link.report(there, there) is one
    assert link.report(resources.Snapshot.EMPTY, there) is resources.Snapshot.EMPTY
