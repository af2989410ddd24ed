# SPDX-License-Identifier: Apache-2.0
"""The rules of a MeshGateway that it can break by itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from pilothouse.api.config.v1alpha1 import mesh_gateway_pb2
from pilothouse.config import checks, listener_tls, objects, syntax

_Listener = mesh_gateway_pb2.Listener
_HTTP = _Listener.PROTOCOL_HTTP
_HTTPS = _Listener.PROTOCOL_HTTPS
_TLS = _Listener.PROTOCOL_TLS
_TCP = _Listener.PROTOCOL_TCP
_UDP = _Listener.PROTOCOL_UDP
NAMES = {_HTTP: "HTTP", _HTTPS: "HTTPS", _TLS: "TLS", _TCP: "TCP", _UDP: "UDP"}
"""Protocols for people."""
SECURE = (_HTTPS, _TLS)
"""Protocols whose listeners may share a port, told apart by server name."""
_MAX_HOPS = 32


def check(spec: mesh_gateway_pb2.MeshGatewaySpec, meta: objects.Meta) -> checks.Found:
    """Every rule that a MeshGateway breaks, in the order of its fields.

    Its metadata counts: only a derived gateway may name secrets of another namespace.
    """
    if not spec.selector:
        yield from checks.broken("spec.selector", "at least one label is required")
    yield from checks.labels("spec.selector", spec.selector)
    if not spec.listeners:
        yield from checks.broken("spec.listeners", "at least one is required")
    names: dict[object, str] = {}
    ports = _Ports()
    for index, listener in enumerate(spec.listeners):
        where = f"spec.listeners[{index}]"
        yield from checks.required(f"{where}.name", listener.name, syntax.label)
        if listener.name:
            yield from checks.unique(names, f"{where}.name", listener.name, what="name")
        if listener.port:
            yield from checks.broken(f"{where}.port", syntax.port(listener.port))
            yield from ports.add(where, listener)
        else:
            needed = f"is required: a number from 1 to {syntax.MAX_PORT}"
            yield from checks.broken(f"{where}.port", needed)
        yield from _listener(where, listener, meta)
    yield from ports.alone()
    yield from _namespaces("spec.allowedNamespaces", spec.allowed_namespaces)


def bind_address(listener: mesh_gateway_pb2.Listener) -> str:
    """Where a listener that is right wants its port, in one spelling; empty for wherever."""
    if not syntax.is_ip_address(listener.address):
        return listener.address
    return str(ipaddress.ip_address(listener.address))


class _Ports:
    """Who has which port, and which server name at it."""

    def __init__(self) -> None:
        self.users: dict[tuple[int, bool], list[str]] = {}
        """Paths of listeners by port, of UDP or not."""
        self.first: dict[tuple[int, bool], mesh_gateway_pb2.Listener] = {}
        self.hosts: dict[tuple[int, str], str] = {}
        self.http3: list[tuple[str, int]] = []

    def add(self, where: str, listener: mesh_gateway_pb2.Listener) -> checks.Found:
        """A listener that may share its port, or may not."""
        slot = (listener.port, listener.protocol == _UDP)
        users = self.users.setdefault(slot, [])
        users.append(where)
        other = self.first.setdefault(slot, listener)
        if listener.http3:
            self.http3.append((where, listener.port))
        if other is not listener:
            if not (listener.protocol in SECURE and other.protocol in SECURE):
                taken = f"the port {listener.port} is taken by {users[0]}.port"
                yield from checks.broken(f"{where}.port", taken)
                return
            if listener.client_address != other.client_address:
                differs = f"must be the same as {users[0]}.clientAddress, which has the port too"
                yield from checks.broken(f"{where}.clientAddress", differs)
            if bind_address(listener) != bind_address(other):
                differs = f"must be the same as {users[0]}.address, which has the port too"
                yield from checks.broken(f"{where}.address", differs)
        if listener.protocol in SECURE:
            yield from self._names(where, listener)

    def _names(self, where: str, listener: mesh_gateway_pb2.Listener) -> checks.Found:
        for position, host in enumerate(listener.hosts or ("*",)):
            own = f"{where}.hosts[{position}]" if listener.hosts else f"{where}.hosts"
            first = self.hosts.setdefault((listener.port, host.lower()), own)
            if not first.startswith(f"{where}."):  # twice in one list is told there
                taken = f"the host {host} at port {listener.port} is taken by {first}"
                yield from checks.broken(own, taken)

    def alone(self) -> checks.Found:
        """HTTP/3, which shares its port with nobody."""
        for where, port in self.http3:
            users = (*self.users.get((port, False), ()), *self.users.get((port, True), ()))
            for other in users:
                if other != where:
                    text = f"must not be set, for {other} has port {port} too"
                    yield from checks.broken(f"{where}.http3", text)
                    break


def _listener(where: str, listener: mesh_gateway_pb2.Listener, meta: objects.Meta) -> checks.Found:
    protocol = listener.protocol
    if protocol not in NAMES:
        yield from checks.broken(f"{where}.protocol", "is required: HTTP, HTTPS, TLS, TCP or UDP")
    if protocol in (_TCP, _UDP) and listener.hosts:
        yield from _needless(f"{where}.hosts", listener)
    yield from checks.hosts(f"{where}.hosts", listener.hosts, syntax.host_pattern)
    if protocol in SECURE and not listener.HasField("tls"):
        needed = f"is required when the protocol is {NAMES[protocol]}"
        yield from checks.broken(f"{where}.tls", needed)
    elif protocol in NAMES and protocol not in SECURE and listener.HasField("tls"):
        yield from _needless(f"{where}.tls", listener)
    if listener.HasField("tls"):
        yield from listener_tls.check(f"{where}.tls", listener.tls, protocol, meta)
    yield from _redirect(where, listener)
    yield from _http3(where, listener)
    yield from _client_address(f"{where}.clientAddress", listener)
    yield from _namespaces(f"{where}.allowedNamespaces", listener.allowed_namespaces)
    yield from checks.optional(f"{where}.address", listener.address, syntax.ip_address)


def _namespaces(where: str, values: Iterable[str]) -> checks.Found:
    for index, namespace in enumerate(values):
        if namespace != "*":
            yield from checks.required(f"{where}[{index}]", namespace, syntax.label)


def _needless(field: str, listener: mesh_gateway_pb2.Listener) -> checks.Found:
    text = f"must not be set when the protocol is {NAMES[listener.protocol]}"
    yield from checks.broken(field, text)


def _redirect(where: str, listener: mesh_gateway_pb2.Listener) -> checks.Found:
    if listener.https_redirect and listener.protocol in NAMES and listener.protocol != _HTTP:
        yield from _needless(f"{where}.httpsRedirect", listener)
    if listener.HasField("https_port"):
        if not listener.https_redirect:
            needless = "must not be set without httpsRedirect"
            yield from checks.broken(f"{where}.httpsPort", needless)
        yield from checks.broken(f"{where}.httpsPort", syntax.port(listener.https_port))


def _http3(where: str, listener: mesh_gateway_pb2.Listener) -> checks.Found:
    if not listener.http3:
        return
    at = f"{where}.http3"
    if listener.protocol in NAMES and listener.protocol != _HTTPS:
        yield from _needless(at, listener)
    if listener.client_address.proxy_protocol:
        text = "must not be set together with clientAddress.proxyProtocol, which QUIC does not have"
        yield from checks.broken(at, text)
    if listener_tls.before_1_3(listener.tls):
        text = "must not be set when tls.maxVersion is older than TLS_1_3, which QUIC needs"
        yield from checks.broken(at, text)


def _client_address(where: str, listener: mesh_gateway_pb2.Listener) -> checks.Found:
    if not listener.HasField("client_address"):
        return
    section = listener.client_address
    if listener.protocol == _UDP:
        yield from _needless(where, listener)
        return
    if section.trusted_hops and listener.protocol in (_TLS, _TCP):
        yield from _needless(f"{where}.trustedHops", listener)
    if section.trusted_hops > _MAX_HOPS:
        text = f"must be at most {_MAX_HOPS}, is {section.trusted_hops}"
        yield from checks.broken(f"{where}.trustedHops", text)
