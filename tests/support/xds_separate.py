# SPDX-License-Identifier: Apache-2.0
"""Streams of one type each, that look like one aggregated stream to `xds_peer`.

As a client does on the services of one type, it leaves the type out of its requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import delta, resources, sotw, status, streams, types
from tests.support import xds_peer

_REQUESTS: Mapping[str, Any] = {
    "sotw": discovery_pb2.DiscoveryRequest,
    "delta": discovery_pb2.DeltaDiscoveryRequest,
}


class Streams:
    """All streams of one client; what tests use of a `streams.Stream`."""

    def __init__(self, variant: str) -> None:
        self._request = _REQUESTS[variant]
        self._make = sotw.SotwStream if variant == "sotw" else delta.DeltaStream
        self._by_type: dict[str, streams.Stream] = {}
        self._limit: int | None = None
        self.target: resources.Snapshot | None = None

    def receive(self, encoded: bytes) -> tuple[streams.Event, ...]:
        """Take a request in on the stream of its type."""
        request = self._request.FromString(encoded)
        url = request.type_url
        request.ClearField("type_url")
        if url not in self._by_type:
            made = self._by_type[url] = self._make(default_type=url)
            made.limit = self._limit
            if self.target is not None:
                made.update(self.target)
            # Each stream says who the client is.
            request.node.id = xds_peer.NODE
        return self._by_type[url].receive(request.SerializeToString())

    def update(self, snapshot: resources.Snapshot) -> None:
        """Give all of them a new target."""
        self.target = snapshot
        for one in self._all:
            one.update(snapshot)

    def poll(self) -> streams.Response | None:
        """The next response of any, in the order that they would have on one stream."""
        for one in self._all:
            response = one.poll()
            if response is not None:
                return response
        return None

    def prepare(self) -> bool:
        """Encode a piece of what any has to say."""
        return any(one.prepare() for one in self._all)

    @property
    def limit(self) -> int | None:
        """Bytes of a response."""
        return self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        self._limit = limit
        for one in self._all:
            one.limit = limit

    @property
    def node(self) -> base_pb2.Node | None:
        """Who the client is, when all its streams agree."""
        nodes = [one.node for one in self._all]
        return nodes[0] if nodes and all(node == nodes[0] for node in nodes) else None

    @property
    def in_sync(self) -> bool:
        """True when all are."""
        return all(one.in_sync for one in self._all)

    @property
    def idle(self) -> bool:
        """True when all are."""
        return all(one.idle for one in self._all)

    @property
    def refusals(self) -> Mapping[str, str]:
        """Of all of them."""
        return {url: text for one in self._all for url, text in one.refusals.items()}

    def acked(self, type_url: str) -> resources.Snapshot:
        """What was acknowledged last of a type."""
        one = self._by_type.get(type_url)
        return one.acked(type_url) if one is not None else resources.Snapshot.EMPTY

    def types(self) -> tuple[status.TypeStatus, ...]:
        """Of all of them, sorted by type URL."""
        found = [each for one in self._all for each in one.types()]
        return tuple(sorted(found, key=lambda each: each.type_url))

    def statuses(self) -> tuple[status.ResourceStatus, ...]:
        """Of all of them, sorted by type URL and name."""
        found = [each for one in self._all for each in one.statuses()]
        return tuple(sorted(found, key=lambda each: (each.type_url, each.name)))

    @property
    def _all(self) -> Iterator[streams.Stream]:
        return (
            self._by_type[url]
            for url in sorted(self._by_type, key=lambda url: (types.of(url).order, url))
        )


def connect(variant: str, *, default_type: str | None = None) -> xds_peer.Peer:
    """A client with a stream for each type; in place of `xds_peer.connect`."""
    del default_type
    made: Any = Streams(variant)
    return xds_peer.SotwPeer(made) if variant == "sotw" else xds_peer.DeltaPeer(made)
