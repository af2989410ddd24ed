# SPDX-License-Identifier: Apache-2.0
"""Proxies at rest, by what they are and by what they ask for: a herd is given a target as one.

Rules of this file:
- Every proxy is in a herd, or loose. It joins one when it has acknowledged all that it was told,
  and leaves it when its client says something, when it is given something of its own, or when it
  may have become another kind of proxy.
- The members of a herd are of one kind, ask for the same and hold the same. So what a change has to
  say to one it has to say to all; where that is nothing, nobody is touched.
- Builds are counted. Who is not stamped with the newest one has not been given its part, wherever
  it went while others were served.

Only streams of this process that share what they are told can be in a herd: delta, and no worker's.
"""

from __future__ import annotations

import collections

from pilothouse.routing import kinship
from pilothouse.xds import moves, resources, rests, streams
from pilothouse_discovery import clients

_Key = tuple[int, int]
"""Identities of kind and wishes, which the herd of that key keeps."""


class Herd(rests.Rest):
    """Proxies that are alike in all that counts. Compared by identity."""

    __slots__ = ("_among", "build", "kind", "members", "wishes")

    def __init__(
        self,
        target: resources.Snapshot,
        *,
        kind: kinship.Kind,
        wishes: moves.Wishes,
        among: Herds,
    ) -> None:
        """Made by `Herds`."""
        super().__init__(target)
        self.kind = kind
        self.wishes = wishes
        self.build = among.build
        """The build that its target is of."""
        self.members: dict[rests.Staying, clients.Client] = {}
        """By their streams."""
        self._among = among

    @property
    def first(self) -> clients.Client:
        """The member that has been in it for longest."""
        return next(iter(self.members.values()))

    @property
    def key(self) -> _Key:
        """What it is found by."""
        return id(self.kind), id(self.wishes)

    def left(self, stream: rests.Staying) -> None:
        """A member is on its own again."""
        client = self.members.pop(stream)
        client.rest, client.build = None, self.build
        self._among.left(self, client)

    def disband(self) -> None:
        """Let all go."""
        for stream in tuple(self.members):
            stream.leave()

    def move(self, target: resources.Snapshot) -> None:
        """Have all hold the target of the newest build, which says nothing new to them."""
        self.target, self.build = target, self._among.build


class Herds:
    """All proxies."""

    def __init__(self) -> None:
        """Begin with none."""
        self.build = 0
        """The number of the newest build."""
        self._herds: dict[_Key, Herd] = {}
        self._loose: dict[clients.Client, None] = {}
        self._at: collections.defaultdict[str, dict[clients.Client, None]] = (
            collections.defaultdict(dict)
        )
        """By address: those whose kind depends on what is there."""

    def add(self, client: clients.Client) -> None:
        """A proxy has come, or must be looked at on its own."""
        self.part(client)
        self._loose[client] = None
        self._at[client.proxy.id.address][client] = None

    def remove(self, client: clients.Client) -> None:
        """A proxy has gone."""
        self.part(client)
        self._loose.pop(client, None)
        address = client.proxy.id.address
        self._at[address].pop(client, None)
        if not self._at[address]:
            del self._at[address]

    def part(self, client: clients.Client) -> None:
        """Let a proxy be on its own, if it was not."""
        if client.rest is not None and isinstance(client.session.stream, streams.Stream):
            client.session.stream.leave()

    def begin(self, moved: frozenset[str] | None) -> None:
        """A new build: nobody has been given its part.

        Args:
            moved: The addresses whose proxies may be of another kind; None if any may be.
        """
        self.build += 1
        if moved is None:
            for herd in tuple(self._herds.values()):
                herd.disband()
            for client in self._loose:
                client.kind = None
            return
        for address in moved & self._at.keys():
            for client in self._at[address]:
                self.part(client)
                client.kind = None

    @property
    def herds(self) -> tuple[Herd, ...]:
        """Those that have not been given their part."""
        return tuple(herd for herd in self._herds.values() if herd.build != self.build)

    @property
    def loose(self) -> tuple[clients.Client, ...]:
        """The proxies in no herd that have not been given theirs."""
        return tuple(client for client in self._loose if client.build != self.build)

    def given(self, client: clients.Client, kind: kinship.Kind | None) -> None:
        """A proxy has been given its part; ``kind`` is None for one that is no like others."""
        client.kind, client.build = kind, self.build

    def rests(self, client: clients.Client, herd: Herd, target: resources.Snapshot) -> bool:
        """Tell whether a proxy that has left a herd was told nothing, and could be in it."""
        stream = client.session.stream
        return (
            isinstance(stream, streams.Stream)
            and stream.target is target
            and stream.wishes is herd.wishes
            and client.kind is herd.kind
        )

    def settle(self, client: clients.Client) -> None:
        """Take a proxy into a herd, if it is at rest with the newest target."""
        stream = client.session.stream
        if client.rest is not None or client.kind is None or client.build != self.build:
            return
        if not isinstance(stream, streams.Stream) or client not in self._loose:
            return
        wishes = stream.wishes
        if wishes is None or stream.target is None:
            return
        key = id(client.kind), id(wishes)
        herd = self._herds.get(key)
        if herd is None:
            herd = self._herds[key] = Herd(
                stream.target, kind=client.kind, wishes=wishes, among=self
            )
        if herd.target is stream.target and herd.build == self.build:
            del self._loose[client]
            herd.members[stream] = client
            client.rest = herd
            stream.stay(herd)

    def left(self, herd: Herd, client: clients.Client) -> None:
        """A herd has lost a member."""
        self._loose[client] = None
        if not herd.members and self._herds.get(herd.key) is herd:
            del self._herds[herd.key]
