# SPDX-License-Identifier: Apache-2.0
"""A client's stream as the parent knows it: what it was given, and what its worker told since.

What a worker tells is about a target. As long as that is an older one than was given, nothing is
acknowledged and an answer is awaited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import grpc

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import resources, status

KEPT = 4
"""Targets of a client that does not answer: older ones are given up, however many follow."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How one type stands."""

    acked: resources.Snapshot
    refusal: str | None
    claimed: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a client stood when its worker looked last."""

    target: resources.Snapshot | None = None
    arrived: bool = False
    idle: bool = True
    in_sync: bool = False
    places: Mapping[str, Place] = dataclasses.field(default_factory=dict)
    """By type URL, in the order in which the client asked for them."""
    refusals: Mapping[str, str] = dataclasses.field(init=False)
    """Type URL to the client's words, where it refused what it shall hold."""

    def __post_init__(self) -> None:
        """Look once at what is asked several times for each client that stands here."""
        refused = {
            url: place.refusal for url, place in self.places.items() if place.refusal is not None
        }
        object.__setattr__(self, "refusals", refused)


class RemoteStream:
    """Implements `sessions.Stream`. What is told changes once a change, and is asked for often."""

    __slots__ = ("current", "idle", "in_sync", "limit", "position", "refusals", "target", "told")

    def __init__(self) -> None:
        """A stream that was just opened."""
        self.limit: int | None = None  # its worker sets its own
        self.target: resources.Snapshot | None = None
        self.told: tuple[status.TypeStatus, ...] = ()
        """How each type stood when the worker was asked last."""
        self.current = resources.Snapshot.EMPTY
        """The target, once it is being delivered."""
        self.in_sync = False
        """True when the client has acknowledged the whole target."""
        self.idle = True
        """True when nothing is to be written and no answer is awaited."""
        self.stand(Position())

    def aim(self, target: resources.Snapshot) -> None:
        """Take a new target."""
        self.target = target
        self._compare()

    def stand(self, position: Position) -> None:
        """Take what the worker tells."""
        self.position = position
        self.refusals = position.refusals
        self._compare()

    def _compare(self) -> None:
        position, target = self.position, self.target
        if position.target is not target:
            self.current, self.in_sync, self.idle = resources.Snapshot.EMPTY, False, False
            return
        self.idle = position.idle
        if target is not None:
            self.current = target if position.arrived else resources.Snapshot.EMPTY
            self.in_sync = position.in_sync

    @property
    def subscribed(self) -> tuple[str, ...]:
        """The types that the client has asked for."""
        return tuple(self.position.places)

    def claimed(self, type_url: str) -> bool:
        """True when the client held something of a type before this stream."""
        place = self.position.places.get(type_url)
        return place is not None and place.claimed

    def acked(self, type_url: str) -> resources.Snapshot:
        """The snapshot whose content of a type was acknowledged last."""
        place = self.position.places.get(type_url)
        return place.acked if place is not None else resources.Snapshot.EMPTY

    def types(self) -> tuple[status.TypeStatus, ...]:
        """How each subscribed type stood when the worker was asked last."""
        return self.told

    def statuses(self) -> tuple[status.ResourceStatus, ...]:
        """Nothing: whoever wants to know of single resources asks the worker."""
        return ()


class RemoteSession:
    """Implements `sessions.Session`."""

    def __init__(
        self,
        number: int,
        *,
        node: base_pb2.Node,
        peer: str,
        push: Callable[[RemoteSession, str], None],
        end: Callable[[RemoteSession], None],
    ) -> None:
        """A client that has just said who it is; ``push`` and ``end`` tell its worker."""
        self.number = number
        self.node = node
        self.peer = peer
        self.stream = RemoteStream()
        self.ending: tuple[grpc.StatusCode, str] | None = None
        self.sent: list[tuple[int, resources.Snapshot]] = []
        """The newest targets that its worker was told, from the one that it told of last: kept,
        because what it tells may build on them."""
        self._push = push
        self._end = end

    def push(self, snapshot: resources.Snapshot, *, traceparent: str = "") -> None:
        """Make this what the client shall hold."""
        if snapshot is not self.stream.target:
            self.stream.aim(snapshot)
            self._push(self, traceparent)

    def end(self, code: grpc.StatusCode, message: str) -> None:
        """End the stream with a status; the first call counts."""
        if self.ending is None:
            self.ending = (code, message)
            self._end(self)

    def tell(self, number: int, target: resources.Snapshot) -> None:
        """Note that its worker is told this target."""
        self.sent.append((number, target))
        del self.sent[:-KEPT]

    def told_of(self, number: int | None) -> resources.Snapshot | None:
        """The target of that number, of which its worker has told just now."""
        for index, (sent, snapshot) in enumerate(self.sent):
            if sent == number:
                del self.sent[:index]
                return snapshot
        return None
