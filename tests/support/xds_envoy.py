# SPDX-License-Identifier: Apache-2.0
"""A client that behaves as Envoy does, over a line that carries messages only when told.

It asks for all clusters and listeners, and for the endpoints and routes that these refer to. It
acknowledges clusters only when all that are new or changed have got endpoints since. It repeats a
request to get them in state of the world, and asks nobody in delta; and when it comes back while a
cluster is warming, it asks for clusters only when that is over. It refuses what says "bad",
and then applies the rest or nothing. It complains about a reference that leads nowhere.

Bodies are those of `xds_peer.resource`: the content of a listener lists its route configurations,
that of a route configuration its clusters, and a cluster has endpoints of its own name.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from pilothouse.xds import resources
from tests.support import xds_peer
from tests.support.xds_peer import CDS, EDS, LDS, RDS, Reply

WHOLE = (CDS, LDS)


def references(body: bytes) -> set[str]:
    """What a listener or route configuration refers to."""
    content = body.decode().partition("=")[2].partition("@")[0]
    return set(content.split("+")) - {""}


class Envoy:
    """One proxy; it outlives its streams."""

    def __init__(self, variant: str, *, applies_rest: bool = True) -> None:
        self.variant = variant
        self._applies_rest = applies_rest
        self.held: dict[str, dict[str, bytes]] = {CDS: {}, EDS: {}, LDS: {}, RDS: {}}
        self._versions: dict[str, dict[str, str]] = {kind: {} for kind in self.held}
        self._set_versions: dict[str, str] = {}
        self.complaints: list[str] = []
        self.target: resources.Snapshot | None = None
        self.refusals = 0
        self._warming: set[str] = set()
        self.connect()

    def connect(self) -> None:
        """Begin a new stream; what was on the way is lost.

        All that a client asks for when it comes back arrives together, as from Envoy.
        """
        self.peer = xds_peer.connect(self.variant)
        self.down: collections.deque[bytes] = collections.deque()
        self.up: collections.deque[Callable[[], object]] = collections.deque()
        self._withheld: Reply | None = None
        self._subscribed: dict[str, set[str]] = {EDS: set(), RDS: set()}
        if self.target is not None:
            self.peer.stream.update(self.target)
        self._held_back = bool(self._warming)
        for kind in self.held:
            if (kind in WHOLE or self._wanted(kind)) and not (kind == CDS and self._held_back):
                self._subscribe(kind, first=True)
        if self.target is not None:
            while self.send():
                pass

    def update(self, target: resources.Snapshot) -> None:
        """Aim at another snapshot."""
        self.target = target
        self.peer.stream.update(target)

    def write(self) -> bool:
        """Have the server write a response; False if it has none."""
        response = self.peer.stream.poll()
        if response is not None:
            self.down.append(response.body)
        return response is not None

    def read(self) -> bool:
        """Take the next response; False if there is none."""
        if not self.down:
            return False
        self._receive(self.peer.decode(self.down.popleft()))
        return True

    def send(self) -> bool:
        """Have the server take the next request; False if there is none."""
        if not self.up:
            return False
        self.up.popleft()()
        return True

    def run(self) -> None:
        """Carry everything until both are silent."""
        for _ in range(2000):
            if not (self.write() or self.read() or self.send()):
                return
        raise AssertionError("the two never fall silent")

    def _wanted(self, kind: str) -> set[str]:
        if kind == EDS:
            return set(self.held[CDS])
        return set().union(*(references(body) for body in self.held[LDS].values()))

    def _subscribe(self, kind: str, *, first: bool = False, again: bool = False) -> None:
        """Ask for what is wanted now, if that is another set than before."""
        names = set() if kind in WHOLE else self._wanted(kind)
        known = self._subscribed.get(kind, set())
        add, drop = names - known, known - names
        if not (first or add or drop or (again and self.variant == "sotw")):
            return
        if kind in self._subscribed:
            self._subscribed[kind] = names
        held = self._claims(kind) if first else {}
        nonce = None if self.variant == "delta" else self.peer.nonces.get(kind, "")
        self.up.append(
            lambda: self.peer.ask(kind, *sorted(add), drop=sorted(drop), held=held, nonce=nonce)
        )

    def _claims(self, kind: str) -> dict[str, str]:
        if self.variant == "delta":
            return dict(self._versions[kind])
        return {"": self._set_versions[kind]} if kind in self._set_versions else {}

    def _receive(self, reply: Reply) -> None:
        kind = reply.type_url
        self.peer.nonces[kind] = reply.nonce
        bad = sorted(name for name, body in reply.resources.items() if b"bad" in body)
        if bad:
            self.refusals += 1
        if not bad or self._applies_rest:
            self._apply(reply, set(bad))
        if kind == EDS:
            # Refused endpoints end the wait too: Envoy goes on with none. So does a timer, for what
            # nobody has.
            self._warming -= {*reply.resources, *reply.removed, *reply.errors}
        if kind == CDS:
            self._subscribe(EDS, again=bool(self._warming))
        if kind == LDS:
            self._subscribe(RDS)
        self._check(reply)
        if bad:
            self._answer(reply, refuse=f"bad: {bad}")
        elif kind == CDS and self._warming:
            self._withheld = reply
        else:
            self._set_versions[kind] = reply.version
            self._answer(reply)
        if self._withheld is not None and not self._warming:
            self._set_versions[CDS] = self._withheld.version
            self._answer(self._withheld)
            self._withheld = None
        if self._held_back and not self._warming:
            self._held_back = False
            self._subscribe(CDS, first=True)

    @property
    def warm(self) -> bool:
        """True when no cluster waits for endpoints."""
        return not self._warming

    def _answer(self, reply: Reply, *, refuse: str | None = None) -> None:
        self.up.append(lambda: self.peer.answer(reply, refuse=refuse))

    def _apply(self, reply: Reply, bad: set[str]) -> None:
        kind, held = reply.type_url, self.held[reply.type_url]
        before = dict(held)
        if self.variant == "sotw" and kind in WHOLE:
            for name in [name for name in held if name not in reply.resources]:
                del held[name]
        for name in reply.removed:
            held.pop(name, None)
            self._versions[kind].pop(name, None)
        good = {name: body for name, body in reply.resources.items() if name not in bad}
        if kind not in WHOLE:
            good = {name: body for name, body in good.items() if name in self._wanted(kind)}
        held.update(good)
        self._versions[kind].update({name: reply.versions.get(name, "") for name in good})
        if kind == CDS:
            self._warming |= {name for name, body in good.items() if before.get(name) != body}
            self._warming &= held.keys()
        for leaf in (EDS, RDS):
            for name in self.held[leaf].keys() - self._wanted(leaf):
                del self.held[leaf][name]
                self._versions[leaf].pop(name, None)

    def _check(self, reply: Reply) -> None:
        for name, body in self.held[RDS].items():
            for cluster in sorted(references(body) - self.held[CDS].keys()):
                self.complaints.append(f"{reply.nonce}: route {name} leads to {cluster}")
        if reply.type_url == EDS:
            for name in reply.removed:
                if name in self.held[CDS]:
                    self.complaints.append(f"{reply.nonce}: endpoints of {name} were taken away")
