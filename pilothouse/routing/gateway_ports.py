# SPDX-License-Identifier: Apache-2.0
"""Which listeners of which gateways a proxy opens, where several want one port.

The older gateway has what it wants, and listeners of one gateway go in the order written. What a
younger one cannot have it does without, and is told so: a port on which something else is spoken,
or a server name on a port of TLS. Plain HTTP is told apart by request, so its listeners share a
port and their hosts; only a host whose requests are all redirected is one listener's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeVar

from pilothouse.model import keys
from pilothouse.routing import parsed, rules

T = TypeVar("T")
Kind = Literal["http", "tls", "tcp", "udp"]
_KINDS: Mapping[parsed.ListenerProtocol, Kind] = {
    "http": "http",
    "https": "tls",
    "tls": "tls",
    "tcp": "tcp",
    "udp": "udp",
}


class Served(NamedTuple):
    """A gateway, and the rules attached to it."""

    gateway: parsed.Gateway
    attached: rules.AtGateway


class Owner(NamedTuple):
    """A listener that has a host."""

    gateway: keys.ObjectKey
    listener: str
    redirects: bool
    """All requests for its hosts."""


class OpenListener(NamedTuple):
    """A listener, and what it has of what it wants."""

    served: Served
    listener: parsed.GatewayListener
    hosts: tuple[str, ...]
    """At least one."""
    http3: bool = False

    @property
    def owner(self) -> Owner:
        """What it is as the owner of its hosts."""
        redirects = self.listener.redirect_port is not None
        return Owner(self.served.gateway.key, self.listener.name, redirects)

    def attached(self) -> Iterator[rules.Attached]:
        """The rules that may route here."""
        for some in self.served.attached.values():
            for one in some:
                here = one.listener in ("", self.listener.name)
                if here and self.listener.admits(one.bound.rule.key.namespace):
                    yield one

    def bound(self) -> tuple[rules.Bound, ...]:
        """The same, each once."""
        return tuple({one.bound.rule.key: one.bound for one in self.attached()}.values())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenPort:
    """A port of a gateway proxy."""

    port: int
    kind: Kind
    listeners: tuple[OpenListener, ...]
    """Of all gateways, the older gateway first, then as written; for ``tcp`` and ``udp`` one."""

    @property
    def address(self) -> str:
        """Where it is opened, which all of its listeners agree about; empty for wherever."""
        return self.listeners[0].listener.address


def owners(listeners: tuple[tuple[Owner, tuple[str, ...]], ...]) -> Mapping[str, Owner]:
    """Whose each host is, of listeners with their hosts."""
    return {host: one for one, hosts in listeners for host in hosts}


def owner(of: Mapping[str, T], host: str) -> T | None:
    """Whose all that a pattern means is: his that has the narrowest pattern around it."""
    if host in of:
        return of[host]
    rest = host.removeprefix("*.")
    while "." in rest:
        rest = rest.partition(".")[2]
        if f"*.{rest}" in of:
            return of[f"*.{rest}"]
    return of.get("*")


class Refused(NamedTuple):
    """What a listener does without."""

    loser: keys.ObjectKey
    listener: str
    winner: keys.ObjectKey
    text: str
    """What it does not do, and why."""


def rank(pattern: str) -> tuple[int, int]:
    """Lower for what goes first: exact names, then the longest wildcard, then all."""
    if pattern == "*":
        return 2, 0
    return (1, -len(pattern)) if pattern.startswith("*.") else (0, 0)


class _Port:
    """What is taken of a port so far."""

    def __init__(self, first: Served, listener: parsed.GatewayListener) -> None:
        self.kind = _KINDS[listener.protocol]
        self.first = listener
        self.winner = first.gateway.key
        self.http3 = False
        self.listeners: list[OpenListener] = []
        self.owners: dict[str, tuple[keys.ObjectKey, int | None]] = {}

    def objection(self, listener: parsed.GatewayListener) -> str | None:
        """Why a listener cannot be opened beside those that are there."""
        if _KINDS[listener.protocol] != self.kind:
            return "speaks another protocol on its port"
        if self.kind in ("tcp", "udp"):
            return "has its port"
        if listener.client_address != self.first.client_address:
            return "takes the addresses of clients from elsewhere on its port"
        if listener.address != self.first.address:
            return "opens its port at another address"
        if self.http3:
            return "serves HTTP/3 on its port, for which it must be alone"
        return None

    def lost(self, listener: parsed.GatewayListener) -> dict[str, keys.ObjectKey]:
        """The hosts that somebody else has."""
        return {
            host: self.owners[host][0]
            for host in listener.hosts
            if host in self.owners
            and (self.kind == "tls" or self.owners[host][1] != listener.redirect_port)
        }


class _Ports:
    """All ports so far."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, bool], _Port] = {}
        self.http3: dict[int, keys.ObjectKey] = {}
        """Ports of UDP that HTTP/3 has."""
        self.refused: list[Refused] = []

    def add(self, served: Served, listener: parsed.GatewayListener) -> None:
        """Open a listener as far as that can be."""

        def refuse(winner: keys.ObjectKey, text: str) -> None:
            self.refused.append(Refused(served.gateway.key, listener.name, winner, text))

        slot = (listener.port, listener.protocol == "udp")
        if slot[1] and listener.port in self.http3:
            winner = self.http3[listener.port]
            refuse(winner, f"is not opened: {winner} serves HTTP/3 on its port")
            return
        port = self.found.get(slot) or _Port(served, listener)
        why = port.objection(listener) if port.listeners else None
        if why is not None:
            refuse(port.winner, f"is not opened: {port.winner} {why}")
            return
        lost = port.lost(listener)
        for host, winner in lost.items():
            refuse(winner, f"does not serve host {host}: {winner} does on its port")
        hosts = tuple(host for host in listener.hosts if host not in lost)
        if not hosts:
            return
        beside = self.found.get((listener.port, True))
        alone = beside.winner if beside else port.winner if port.listeners else None
        if listener.http3 and alone is not None:
            refuse(alone, f"does not serve HTTP/3: {alone} has its port too")
        http3 = listener.http3 and alone is None
        if http3:
            port.http3 = True
            self.http3[listener.port] = served.gateway.key
        port.owners.update(dict.fromkeys(hosts, (served.gateway.key, listener.redirect_port)))
        port.listeners.append(OpenListener(served, listener, hosts, http3))
        self.found[slot] = port


def open_ports(gateways: Iterable[Served]) -> tuple[tuple[OpenPort, ...], tuple[Refused, ...]]:
    """The ports of a proxy that serves these gateways, sorted; and what listeners do without."""
    ports = _Ports()
    for served in sorted(gateways, key=_seniority):
        for listener in served.gateway.listeners:
            ports.add(served, listener)
    found = tuple(
        OpenPort(port=number, kind=port.kind, listeners=tuple(port.listeners))
        for (number, _), port in sorted(ports.found.items())
    )
    return found, tuple(ports.refused)


def losses(gateways: tuple[parsed.Gateway, ...]) -> Mapping[keys.ObjectKey, tuple[str, ...]]:
    """What listeners do without wherever their gateway is served; by gateway, in words.

    Whoever has the labels of one selector serves each gateway whose selector they contain. Proxies
    with still more labels may serve more, which is found out there.
    """
    found: dict[keys.ObjectKey, dict[str, None]] = {}
    for namespace, selector in sorted({(one.key.namespace, one.selector) for one in gateways}):
        together = [
            Served(one, {})
            for one in gateways
            if one.key.namespace == namespace and keys.selects(one.selector, selector)
        ]
        for lost in open_ports(together)[1]:
            found.setdefault(lost.loser, {})[f"listener {lost.listener} {lost.text}"] = None
    return {key: tuple(texts) for key, texts in found.items()}


def _seniority(served: Served) -> tuple[object, ...]:
    return parsed.seniority(served.gateway)
