# SPDX-License-Identifier: Apache-2.0
"""Who gets a connection at a port that listeners share, whatever they are and whoever wrote them.

The rule: the listener with the exact name, else that with the longest wildcard, else that with `*`;
of two with one host the older gateway's, then the first; who names no server gets `*`, else the
first with HTTPS; all others are closed.
"""

import dataclasses

from hypothesis import given, strategies

from pilothouse.routing import plan
from tests.support import connections, meshes

HOSTS = ("a.b.c", "x.b.c", "b.c", "*.b.c", "*.c", "*")
NAMES = (None, "a.b.c", "x.b.c", "y.b.c", "b.c", "q.c", "c", "d")
KINDS = {
    "https": "protocol: HTTPS, tls: {certificates: [{secret: s}]}",
    "taken": "protocol: TLS, tls: {certificates: [{secret: s}]}",
    "passed": "protocol: TLS, tls: {mode: PASSTHROUGH}",
}


@dataclasses.dataclass(frozen=True)
class Written:
    """A listener of some gateway."""

    gateway: str
    name: str
    kind: str
    hosts: tuple[str, ...]

    @property
    def https(self) -> bool:
        """Whether requests are routed."""
        return self.kind == "https"


@strategies.composite
def ports(draw: strategies.DrawFn) -> list[Written]:
    """Listeners of up to three gateways, the older gateway first; each host once in a gateway."""
    found = []
    for gateway in ("g0", "g1", "g2")[: draw(strategies.integers(1, 3))]:
        free = draw(strategies.permutations(HOSTS))
        for number in range(draw(strategies.integers(1, 3))):
            count = draw(strategies.integers(1, 2))
            taken, free = free[:count], free[count:]
            kind = draw(strategies.sampled_from(sorted(KINDS)))
            if taken:
                found.append(Written(gateway, f"l{number}", kind, tuple(taken)))
    return found


def planned(written: list[Written]) -> plan.Listener | None:
    """The listener of port 443; rules send what TLS listeners take to a service."""
    objects = []
    for age, name in enumerate(sorted({one.gateway for one in written})):
        shown = ", ".join(
            f"{{name: {one.name}, port: 443, {KINDS[one.kind]}, hosts: {list(one.hosts)}}}"
            for one in written
            if one.gateway == name
        )
        spec = f"{{selector: {{app: edge}}, listeners: [{shown}]}}"
        objects.append(meshes.gateway(name, spec, created=age + 1))
        tls = f"{{parents: [{{gateway: {name}}}], tls: [{{destinations: [{{service: lines}}]}}]}}"
        objects.append(meshes.rule(f"{name}-tls", tls))
    whole = meshes.planned(meshes.mesh(meshes.service("lines", 9000), *objects), meshes.edge())
    (found,) = (one for layer in whole.layers for one in layer.listeners)
    return found


def expected(written: list[Written], name: str | None) -> tuple[Written, ...]:
    """The listener that has the connection, or none."""
    owners: dict[str, Written] = {}
    for one in written:
        for host in one.hosts:
            owners.setdefault(host, one)
    if name is None:
        serving = [one for one in written if any(owners[host] == one for host in one.hosts)]
        first = [one for one in serving if one.https][:1]
        return (owners["*"],) if "*" in owners else tuple(first)
    labels = name.split(".")
    wider = ["*." + ".".join(labels[cut:]) for cut in range(1, len(labels))]
    return tuple(owners[host] for host in (name, *wider, "*") if host in owners)[:1]


@given(ports(), strategies.sampled_from(NAMES))
def test_who_gets_a_connection(written: list[Written], name: str | None):
    """Of all listeners, and in every case it is the chain of that listener with its own TLS."""
    listener = planned(written)
    chain = connections.chosen(listener, connections.Connection(server_name=name))
    wanted = expected(written, name)
    if not wanted:
        assert chain is None
        return
    (one,) = wanted
    place = f"gateway|443|{one.gateway}.default|{one.name}"
    assert chain is not None
    assert chain.name == place if one.https else chain.name.startswith(f"{place}|")
    assert (chain.tls is None) is (one.kind == "passed")
    if not one.https and (name is not None or "*" in one.hosts):
        assert chain.serves == plan.Tcp(
            forward=f"{place}|RouteRule/default/{one.gateway}-tls/tls/0"
        )


@given(ports())
def test_what_is_not_tls_gets_no_chain(written: list[Written]):
    """At a port of TLS."""
    listener = planned(written)
    assert connections.chosen(listener, connections.Connection(tls=False)) is None
