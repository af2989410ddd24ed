# SPDX-License-Identifier: Apache-2.0
"""The connected clients, one record for each stream.

Never one for each node, because an Envoy that reconnects has two streams for a while.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from pilothouse.model import proxy
from pilothouse.rollout import ledger
from pilothouse.routing import kinship
from pilothouse.xds import resources, rests
from pilothouse_discovery import sessions

Places = tuple[tuple[str, resources.Snapshot, bool], ...]
"""Type URL, acknowledged snapshot and refusal, for each type."""
Standing = tuple[resources.Snapshot | rests.Rest, Places | None]
"""A client's target and where it is on the way there; None when it is in sync. For those that stand
at one place, that place. Tuples, because each proxy's is looked up twice for each change."""


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """One stream that has said who it is."""

    id: str
    """Unique for the life of this process."""
    proxy: proxy.Proxy
    session: sessions.Session
    waiting_for: tuple[str, ...] = ()
    """Sources that must sync before it can be answered."""
    kind: kinship.Kind | None = None
    """What it was planned as; None while that is unknown, and for one that is like no other."""
    build: int = -1
    """The number of the build that its target is of."""
    rest: rests.Rest | None = None
    """Where it stands with others that are like it, and have nothing to answer."""

    name: str = dataclasses.field(init=False)
    """Its node id, as text."""
    is_source: bool = dataclasses.field(init=False)
    """True for ingress, egress and their like; False for a proxy."""

    def __post_init__(self) -> None:
        """Look once at what is asked at every change and answer."""
        self.name = str(self.proxy.id)
        self.is_source = self.proxy.id.role is proxy.Role.SOURCE

    @property
    def in_sync(self) -> bool:
        """True when it has acknowledged all that it is to hold."""
        return self.session.stream.in_sync

    @property
    def refusals(self) -> Mapping[str, str]:
        """Type URL to the client's words, where it refused what it is to hold."""
        return self.session.stream.refusals

    def push(self, snapshot: resources.Snapshot, *, traceparent: str = "") -> bool:
        """Give it a new target; True when that leaves something to be acknowledged.

        False as well for one that refused and gets nothing new: no answer is to come.
        A source is told the trace of what is gone, for it has work to do that belongs to it.
        """
        self.session.push(snapshot, traceparent=traceparent if self.is_source else "")
        return not self.session.stream.idle

    def standing(self) -> Standing | None:
        """Where it stands; None before it has a target."""
        if self.rest is not None:
            return self.rest, None
        stream = self.session.stream
        if stream.target is None:
            return None
        if stream.in_sync:
            # Nothing is outstanding, so that many proxies are in the very same position.
            return stream.target, None
        refusals = stream.refusals
        places = [(url, stream.acked(url), url in refusals) for url in stream.subscribed]
        return stream.target, tuple(places)


def position(standing: Standing) -> ledger.Position:
    """A standing as the ledger's value."""
    place, places = standing
    return ledger.Position(
        target=place.target if isinstance(place, rests.Rest) else place,
        types=tuple(
            ledger.TypePosition(type_url=url, acked=acked, refused=refused)
            for url, acked, refused in places or ()
        ),
        in_sync=places is None,
    )


class Clients:
    """All clients, in the order they came."""

    def __init__(self) -> None:
        """Begin with none."""
        self._clients: dict[str, Client] = {}

    def __iter__(self) -> Iterator[Client]:
        """Iterate over a copy: clients may come and go meanwhile."""
        return iter(tuple(self._clients.values()))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._clients)

    def __contains__(self, client: Client) -> bool:
        """Tell whether the client is still connected."""
        return client.id in self._clients

    def add(self, client: Client) -> None:
        """Add a client."""
        self._clients[client.id] = client

    def remove(self, client: Client) -> None:
        """Forget a client."""
        self._clients.pop(client.id, None)

    @property
    def proxies(self) -> tuple[Client, ...]:
        """Those that are proxies."""
        return tuple(client for client in self if not client.is_source)

    @property
    def sources(self) -> tuple[Client, ...]:
        """Those that are config sources."""
        return tuple(client for client in self if client.is_source)
