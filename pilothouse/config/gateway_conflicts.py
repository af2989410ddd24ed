# SPDX-License-Identifier: Apache-2.0
"""What MeshGateways take of proxies that they share: ports, and server names at ports of TLS."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from pilothouse.api.config.v1alpha1 import mesh_gateway_pb2
from pilothouse.config import mesh_gateways, objects
from pilothouse.model import keys

_Listener = mesh_gateway_pb2.Listener
Kind = Literal["http", "tls", "tcp", "udp"]
_KINDS: dict[int, Kind] = {
    _Listener.PROTOCOL_HTTP: "http",
    _Listener.PROTOCOL_HTTPS: "tls",
    _Listener.PROTOCOL_TLS: "tls",
    _Listener.PROTOCOL_TCP: "tcp",
    _Listener.PROTOCOL_UDP: "udp",
}
_Address = tuple[int, bool]
"""Trusted hops, and whether there is a PROXY protocol."""
_Place = tuple[Kind, _Address, str]
"""What is spoken, where clients' addresses are taken from, and where the port is opened."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    """A gateway, and the proxies that its selector picks."""

    key: keys.ObjectKey
    selector: keys.Labels

    def meets(self, other: _Owner) -> bool:
        """Tell whether each proxy that the narrower selector picks is picked by the other too.

        Selectors of which neither contains the other may have proxies in common or not: that is
        found out proxy by proxy.
        """
        return keys.selects(self.selector, other.selector) or keys.selects(
            other.selector, self.selector
        )


class _Port:
    """Who has what of a port."""

    def __init__(self) -> None:
        self.kinds: dict[_Place, list[_Owner]] = {}
        self.hosts: dict[str, list[_Owner]] = {}
        self.http3: list[_Owner] = []

    def objections(self, owner: _Owner, listener: mesh_gateway_pb2.Listener) -> Iterator[str]:
        """Why a listener cannot be opened."""
        number, mine = listener.port, _place(listener)
        for (kind, address, opened_at), others in self.kinds.items():
            if kind != mine[0]:
                text = f"port {number} has another protocol in"
            elif kind in ("tcp", "udp"):
                text = f"port {number} is taken by"
            elif address != mine[1]:
                text = f"port {number} takes the addresses of clients from elsewhere in"
            elif opened_at != mine[2]:
                text = f"port {number} is opened at another address by"
            else:
                continue
            yield from _told(text, owner, others)
        yield from _told(f"port {number} serves HTTP/3 for", owner, self.http3)
        if mine[0] == "tls":
            for host in _hosts(listener):
                found = self.hosts.get(host, [])
                yield from _told(f"host {host} at port {number} is taken by", owner, found)

    def take(self, owner: _Owner, listener: mesh_gateway_pb2.Listener) -> None:
        """Give a listener what it wants."""
        place = _place(listener)
        self.kinds.setdefault(place, []).append(owner)
        if listener.http3:
            self.http3.append(owner)
        if place[0] == "tls":
            for host in _hosts(listener):
                self.hosts.setdefault(host, []).append(owner)


class Ports:
    """What the gateways looked at so far have taken."""

    def __init__(self) -> None:
        """Nothing is taken yet."""
        self._ports: dict[tuple[str, int, bool], _Port] = {}

    def objections(self, config: objects.Config) -> Iterator[str]:
        """Why a gateway cannot be in force beside those that have been taken."""
        for owner, listener in _listeners(config):
            place, number = config.key.namespace, listener.port
            udp = listener.protocol == _Listener.PROTOCOL_UDP
            if (port := self._ports.get((place, number, udp))) is not None:
                yield from port.objections(owner, listener)
            if udp and (port := self._ports.get((place, number, False))) is not None:
                yield from _told(f"port {number} serves HTTP/3 for", owner, port.http3)

    def take(self, config: objects.Config) -> None:
        """Give a gateway all that it wants."""
        for owner, listener in _listeners(config):
            slot = (
                config.key.namespace,
                listener.port,
                listener.protocol == _Listener.PROTOCOL_UDP,
            )
            self._ports.setdefault(slot, _Port()).take(owner, listener)


def _told(text: str, owner: _Owner, others: list[_Owner]) -> Iterator[str]:
    for other in others:
        if other.key != owner.key and owner.meets(other):
            yield f"{text} {other.key}, which serves the same proxies"


def _listeners(config: objects.Config) -> Iterator[tuple[_Owner, mesh_gateway_pb2.Listener]]:
    if isinstance(config.spec, mesh_gateway_pb2.MeshGatewaySpec):
        owner = _Owner(key=config.key, selector=keys.labels(dict(config.spec.selector)))
        for listener in config.spec.listeners:
            if listener.protocol in mesh_gateways.NAMES:
                yield owner, listener


def _place(listener: mesh_gateway_pb2.Listener) -> _Place:
    section = listener.client_address
    address = section.trusted_hops, section.proxy_protocol
    return _KINDS[listener.protocol], address, mesh_gateways.bind_address(listener)


def _hosts(listener: mesh_gateway_pb2.Listener) -> Iterator[str]:
    for host in listener.hosts or ("*",):
        yield host.lower().rstrip(".")
