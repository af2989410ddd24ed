# SPDX-License-Identifier: Apache-2.0
"""Snapshots over a link: what the other end has got already is told by its number.

A layer is told as what differs from one that is there, a resource once. Numbers are forgotten at
both ends when the sender's object is gone. Pure, and for one thread at a time; only the end of an
object may be noticed on any thread.
"""

from __future__ import annotations

import collections
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from pilothouse.xds import resources
from pilothouse_discovery.workers import messages

T = TypeVar("T")


class _Numbered(Generic[T]):
    """Objects with numbers, held weakly, and told apart by identity."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._objects: dict[int, weakref.ref[T]] = {}
        self._gone: collections.deque[int] = collections.deque()

    def number(self, one: T) -> int | None:
        return self._numbers.get(id(one))

    def get(self, number: int) -> T | None:
        reference = self._objects.get(number)
        return reference() if reference is not None else None

    def add(self, one: T, number: int) -> None:
        identity = id(one)

        def ended(_: object) -> None:
            # On whichever thread, and before anything else can get the identity.
            self._numbers.pop(identity, None)
            self._gone.append(number)

        self._numbers[identity] = number
        self._objects[number] = weakref.ref(one, ended)

    def gone(self) -> tuple[int, ...]:
        """Numbers of objects that ended since the last call."""
        found = []
        while self._gone:
            number = self._gone.popleft()
            del self._objects[number]
            found.append(number)
        return tuple(found)


class Sender:
    """Tells the other end of a link about snapshots."""

    def __init__(
        self, send: Callable[[messages.Message], None], *, theirs: Receiver | None = None
    ) -> None:
        """Begin with nothing told.

        Args:
            send: Takes each message, in order.
            theirs: What this end was told by the other one, for an end that only ever tells of new
                arrangements of that; None for the end that has the resources.
        """
        self._send = send
        self._theirs = theirs
        self._next = itertools.count(1 if theirs is None else -1, 1 if theirs is None else -1)
        self._resources: _Numbered[resources.Resource] = _Numbered()
        self._layers: _Numbered[resources.Layer] = _Numbered()
        self._snapshots: _Numbered[resources.Snapshot] = _Numbered()

    def snapshot(self, snapshot: resources.Snapshot, base: resources.Snapshot | None) -> int:
        """The number of a snapshot; what of it is not known there is told first.

        ``base`` is one that it is probably much like.
        """
        known = self.number(snapshot)
        if known is not None:
            return known
        likes = base.layers if base is not None else ()
        layers = tuple(
            self._layer(layer, like)
            for layer, like in itertools.zip_longest(
                snapshot.layers, likes[: len(snapshot.layers)], fillvalue=resources.EMPTY_LAYER
            )
        )
        number = next(self._next)
        self._snapshots.add(snapshot, number)
        self._send(messages.Snapshot(number, layers))
        return number

    def number(self, snapshot: resources.Snapshot) -> int | None:
        """The number of a snapshot, if it is known there."""
        if snapshot is resources.Snapshot.EMPTY:
            return 0
        known = self._snapshots.number(snapshot)
        if known is None and self._theirs is not None:
            known = self._theirs.snapshots.number(snapshot)
        return known

    def tidy(self) -> None:
        """Tell what has gone here, and will not be named again."""
        dropped = messages.Drop(self._resources.gone(), self._layers.gone(), self._snapshots.gone())
        if any(dropped):
            self._send(dropped)

    def find_resource(self, number: int) -> resources.Resource | None:
        """What was told with that number, if it is still there."""
        return self._resources.get(number)

    def find_layer(self, number: int) -> resources.Layer | None:
        """Likewise."""
        return self._layers.get(number)

    def find_snapshot(self, number: int) -> resources.Snapshot | None:
        """Likewise."""
        return self._snapshots.get(number)

    def _known_layer(self, layer: resources.Layer) -> int | None:
        if layer is resources.EMPTY_LAYER:
            return 0
        known = self._layers.number(layer)
        if known is None and self._theirs is not None:
            known = self._theirs.layers.number(layer)
        return known

    def _layer(self, layer: resources.Layer, like: resources.Layer) -> int:
        known = self._known_layer(layer)
        if known is not None:
            return known
        base = self._known_layer(like)
        if base is None:
            base, like = 0, resources.EMPTY_LAYER
        added = (self._resource(one) for one in _added(like, layer))
        told = messages.Layer(
            next(self._next), base, tuple(_removed(like, layer)), tuple(n for n in added if n)
        )
        self._layers.add(layer, told.number)
        self._send(told)
        return told.number

    def _resource(self, one: resources.Resource) -> int:
        """The number of a resource; 0 for one that the other end has given up."""
        if self._theirs is not None:
            return self._theirs.resources.number(one) or 0
        known = self._resources.number(one)
        if known is None:
            known = next(self._next)
            self._resources.add(one, known)
            self._send(
                messages.Resource(
                    known,
                    one.type_url,
                    one.name,
                    one.version,
                    one.body,
                    tuple(sorted(one.references)),
                    one.metadata,
                )
            )
        return known


class Receiver:
    """Takes in what the other end tells."""

    def __init__(self, *, ours: Sender | None = None) -> None:
        """Begin with nothing.

        ``ours`` is what this end has told: the other one builds upon it.
        """
        self._ours = ours
        self._held: dict[int, resources.Resource | resources.Layer | resources.Snapshot] = {}
        self.resources: _Numbered[resources.Resource] = _Numbered()
        self.layers: _Numbered[resources.Layer] = _Numbered()
        self.snapshots: _Numbered[resources.Snapshot] = _Numbered()

    def take(
        self, told: messages.Resource | messages.Layer | messages.Snapshot | messages.Drop
    ) -> None:
        """Take a message in."""
        match told:
            case messages.Resource():
                resource = self._held[told.number] = resources.Resource.of(
                    told.type_url,
                    told.name,
                    told.body,
                    references=told.references,
                    metadata=told.metadata,
                    version=told.version,
                )
                self.resources.add(resource, told.number)
            case messages.Layer():
                layer = self._held[told.number] = self._derived(told)
                self.layers.add(layer, told.number)
            case messages.Snapshot():
                layers = [self._layer(number) for number in told.layers]
                snapshot = self._held[told.number] = resources.Snapshot.of(layers)
                self.snapshots.add(snapshot, told.number)
            case messages.Drop():
                for number in (*told.resources, *told.layers, *told.snapshots):
                    self._held.pop(number, None)
                for table in (self.resources, self.layers, self.snapshots):
                    table.gone()

    def snapshot(self, number: int) -> resources.Snapshot | None:
        """The snapshot of a number; None for one of ours that is gone here."""
        if number == 0:
            return resources.Snapshot.EMPTY
        held = self.snapshots.get(number)
        if held is None and self._ours is not None:
            return self._ours.find_snapshot(number)
        return held

    def _layer(self, number: int) -> resources.Layer:
        if number == 0:
            return resources.EMPTY_LAYER
        held = self.layers.get(number)
        if held is None and self._ours is not None:
            held = self._ours.find_layer(number)
        return held if held is not None else resources.EMPTY_LAYER

    def _derived(self, told: messages.Layer) -> resources.Layer:
        found = {(one.type_url, one.name): one for one in self._layer(told.base)}
        for place in told.removed:
            found.pop(place, None)
        for number in told.added:
            one = self.resources.get(number)
            if one is None and self._ours is not None:
                one = self._ours.find_resource(number)
            if one is not None:
                found[one.type_url, one.name] = one
        return resources.Layer.of(found.values())


def _added(like: resources.Layer, layer: resources.Layer) -> Iterator[resources.Resource]:
    for url in layer.types:
        before = like.resources(url)
        for name, one in layer.resources(url).items():
            held = before.get(name)
            if held is not one and held != one:
                yield one


def _removed(like: resources.Layer, layer: resources.Layer) -> Iterator[tuple[str, str]]:
    for url in like.types:
        now = layer.resources(url)
        for name in like.resources(url):
            if name not in now:
                yield url, name
