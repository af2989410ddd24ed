# SPDX-License-Identifier: Apache-2.0
"""A client that names all it wants, as gRPC's do, over a line that carries messages when told.

Each watch of a name begins with nothing, and each change of the set of names is a request of its
own, with the newest nonce that was read. Of clusters and listeners, what a response lacks is
deleted. As in @grpc/grpc-js-xds 1.14 a deleted resource that returns unchanged is taken for no news
(https://github.com/grpc/grpc-node/pull/3074).
"""

from __future__ import annotations

import collections
import dataclasses

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import resources, sotw
from tests.support import xds_envoy, xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS

NODE = "grpc~10.0.0.1~cart.shop~cluster.local"


@dataclasses.dataclass(slots=True)
class Watch:
    """One name that is watched."""

    seen: bytes | None = None
    """What came last."""
    told: bytes | None = None
    """What the watcher was told to be there; None for nothing."""


class Watcher:
    """The client's half of one stream."""

    def __init__(self) -> None:
        self.stream = sotw.SotwStream()
        self.down: collections.deque[bytes] = collections.deque()
        self.up: collections.deque[bytes] = collections.deque()
        self.watches: dict[str, dict[str, Watch]] = {}
        self.deleted: list[str] = []
        """Names of what was deleted while it was watched."""
        self.missing: set[tuple[str, str]] = set()
        """What was said not to exist since its watch began."""
        self._nonces: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def watch(self, kind: str, name: str) -> None:
        """Begin to watch a name."""
        if name not in self.watches.setdefault(kind, {}):
            self.watches[kind][name] = Watch()
            self.missing.discard((kind, name))
            self._send(kind)

    def drop(self, kind: str, name: str) -> None:
        """Watch a name no more."""
        if self.watches.get(kind, {}).pop(name, None) is not None:
            self._send(kind)

    def told(self, kind: str) -> dict[str, bytes]:
        """What is there, as far as the client knows."""
        watches = self.watches.get(kind, {})
        return {name: one.told for name, one in sorted(watches.items()) if one.told is not None}

    def update(self, target: resources.Snapshot) -> None:
        """Have the server aim at another snapshot."""
        self.stream.update(target)

    def write(self) -> bool:
        """Have the server write a response; False if it has none."""
        response = self.stream.poll()
        if response is not None:
            self.down.append(response.body)
        return response is not None

    def send(self) -> bool:
        """Have the server take the next request; False if there is none."""
        if self.up:
            self.stream.receive(self.up.popleft())
            return True
        return False

    def read(self) -> bool:
        """Take the next response; False if there is none."""
        if not self.down:
            return False
        message = discovery_pb2.DiscoveryResponse.FromString(self.down.popleft())
        kind = message.type_url
        self._nonces[kind], self._versions[kind] = message.nonce, message.version_info
        named = {one.value.partition(b"=")[0].decode(): one.value for one in message.resources}
        self.missing |= {(kind, one.resource_name.name) for one in message.resource_errors}
        news = []
        for name, watch in self.watches.get(kind, {}).items():
            if name in named:
                if watch.seen != named[name]:
                    watch.seen = watch.told = named[name]
                    news.append((name, named[name]))
            elif kind in xds_envoy.WHOLE and watch.told is not None:
                watch.told = None
                self.deleted.append(name)
        self._send(kind)
        for name, body in news:
            self.changed(kind, name, body)
        return True

    def run(self) -> None:
        """Carry everything until both are silent."""
        for _ in range(2000):
            if not (self.write() or self.read() or self.send()):
                return
        raise AssertionError("the two never fall silent")

    def changed(self, kind: str, name: str, body: bytes) -> None:
        """A resource is new or different."""

    def _send(self, kind: str) -> None:
        request = discovery_pb2.DiscoveryRequest(
            type_url=kind,
            resource_names=self.watches[kind],
            version_info=self._versions.get(kind, ""),
            response_nonce=self._nonces.get(kind, ""),
        )
        request.node.id = NODE
        self.up.append(request.SerializeToString())


class Grpc(Watcher):
    """An application that calls what a listener leads to.

    A cluster that no route leads to any more is watched until the last of its calls is over.
    """

    def __init__(self, listener: str) -> None:
        super().__init__()
        self.watch(LDS, listener)

    def changed(self, kind: str, name: str, body: bytes) -> None:
        if kind == CDS:
            self.watch(EDS, name)
        if kind == RDS:
            for each in sorted(xds_envoy.references(body)):
                self.watch(CDS, each)
        if kind == LDS:
            for old in set(self.watches.get(RDS, {})) - xds_envoy.references(body):
                self.drop(RDS, old)
            for each in sorted(xds_envoy.references(body)):
                self.watch(RDS, each)

    def release(self) -> None:
        """The calls that go to clusters of before are over."""
        used = set().union(*map(xds_envoy.references, self.told(RDS).values()))
        for name in sorted(set(self.watches.get(CDS, {})) - used):
            self.drop(EDS, name)
            self.drop(CDS, name)


def bodies(view: resources.Snapshot, kind: str) -> dict[str, bytes]:
    """What a snapshot has of a type, by name."""
    return {name: one.body for name, one in view.resources(kind).items()}


def mesh(*clusters: str, content: str = "1") -> resources.Snapshot:
    """A listener, its route to some clusters, and these with endpoints."""
    return xds_peer.snapshot(
        xds_peer.resource(LDS, "l", "r", refers=[(RDS, "r")]),
        xds_peer.route("r", *clusters),
        *(xds_peer.cluster(name, content) for name in clusters),
        *(xds_peer.resource(EDS, name, content) for name in clusters),
    )
