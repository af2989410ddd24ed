# SPDX-License-Identifier: Apache-2.0
"""The layers of gateway proxies: one for each set of MeshGateways that some proxy serves."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pilothouse.model import keys
from pilothouse.routing import (
    clusters,
    connections,
    credentials,
    gateway_connections,
    gateway_http,
    gateway_listeners,
    gateway_ports,
    names,
    parsed,
    plan,
    routes,
)
from pilothouse.routing import memo as memory

Served = gateway_ports.Served
_NAME: Final = operator.attrgetter("name")
_BLOCK: Final = 64
"""Hosts whose clusters are put together and remembered at a time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gateways:
    """What follows from a set of gateways, whatever proxy serves them."""

    clusters: tuple[plan.Cluster, ...]
    route_configurations: tuple[plan.RouteConfiguration, ...]
    tcp_forwards: tuple[plan.TcpForward, ...]
    ports: tuple[gateway_listeners.Port, ...]
    shadows: tuple[tuple[str, routes.Shadow], ...]
    """Matches that no request or connection reaches, with HOST:PORT or the listener."""
    needed: credentials.Needed = credentials.NOTHING
    """The secrets that the clusters need."""
    namespace: str = ""
    """Of the proxies."""


@dataclasses.dataclass(slots=True)
class _Found:
    """What the ports so far need."""

    scoped: clusters.Scoped
    hosts: list[routes.Host] = dataclasses.field(default_factory=list)
    connected: list[connections.Connected] = dataclasses.field(default_factory=list)
    configurations: list[plan.RouteConfiguration] = dataclasses.field(default_factory=list)
    forwards: list[plan.TcpForward] = dataclasses.field(default_factory=list)
    ports: list[gateway_listeners.Port] = dataclasses.field(default_factory=list)
    shadows: list[tuple[str, routes.Shadow]] = dataclasses.field(default_factory=list)


_Sending = routes.Routed | connections.Connected


class _Used(NamedTuple):
    """The clusters that some hosts and connections send to."""

    used: frozenset[plan.ClusterKey]
    extra: tuple[tuple[plan.ClusterKey, plan.Origins], ...]
    """What those of them come from that are there for the sake of some route only."""


def gateways(
    memo: memory.Memo,
    served: tuple[Served, ...],
    directory: clusters.Directory,
    scoped: clusters.Scoped,
) -> Gateways:
    """The routes, clusters and ports of a proxy that serves these gateways.

    Args:
        memo: Remembers the hosts.
        served: The gateways with their rules.
        directory: What clusters are made from.
        scoped: The clusters that policies of the gateways' namespace change.
    """
    found = _Found(scoped)
    for port in gateway_ports.open_ports(served)[0]:
        match port.kind:
            case "http":
                _plain(memo, port, found)
            case "tls":
                _secure(memo, port, found)
            case "tcp":
                _tcp(memo, port, found)
            case "udp":
                _udp(memo, port, found)
    sent = _clusters(memo, found, directory)
    namespace = served[0].gateway.key.namespace if served else ""
    return Gateways(
        clusters=sent,
        needed=credentials.needed(sent, certified=directory.policies.certified),
        namespace=namespace,
        route_configurations=tuple(found.configurations),
        tcp_forwards=tuple(sorted(found.forwards, key=_NAME)),
        ports=tuple(sorted(found.ports, key=_number)),
        shadows=tuple(found.shadows),
    )


def _number(port: gateway_listeners.Port) -> tuple[int, bool]:
    return port.port, port.udp


def _plain(memo: memory.Memo, port: gateway_ports.OpenPort, found: _Found) -> None:
    """HTTP: one chain, one set of hosts."""
    name = names.gateway(port.port)
    owners = _owners(memo, port)
    made = gateway_http.hosts(memo, name, port.listeners, owners)
    _routes(memo, name, port.port, made, gateway_http.redirects(port.listeners), found)
    found.ports.append(
        gateway_listeners.Port(
            port=port.port,
            address=port.address,
            chains=(gateway_listeners.http(name),),
            client_address=port.listeners[0].listener.client_address,
            origins=_origins(port),
        )
    )


def _secure(memo: memory.Memo, port: gateway_ports.OpenPort, found: _Found) -> None:
    """HTTPS and TLS: each listener has chains of its own, told apart by server name."""
    owners = _owners(memo, port)
    chains: list[plan.Chain] = []
    ranked: list[gateway_connections.Ranked] = []
    of_http: dict[str, str] = {}
    connected: list[connections.Connected] = []
    for one in port.listeners:
        key = one.served.gateway.key
        place = names.gateway_listener(port.port, key, one.listener.name)
        if one.listener.protocol == "https":
            made = gateway_http.hosts(memo, place, (one,), owners)
            served = [host.virtual_host.name for host in made]
            others = gateway_http.elsewhere(one, owners, served)
            _routes(memo, place, port.port, made, others, found)
            chains.append(gateway_listeners.http(place, one.listener.tls))
            ranked += gateway_listeners.by_host(one, place)
            of_http.setdefault(place, place)
        else:
            taken = gateway_connections.take(memo, place, one)
            chains += taken.chains
            ranked += taken.choices
            connected += taken.connected
            _connections(place, taken, found)
    ranked.sort(key=_rank)
    last = gateway_listeners.unnamed(port.listeners, of_http)
    made_port = gateway_listeners.Port(
        port=port.port,
        address=port.address,
        chains=tuple(sorted(chains, key=_chain_name)),
        choices=(*(one.choice for one in ranked), *last),
        client_address=port.listeners[0].listener.client_address,
        http3=any(one.http3 for one in port.listeners),
        origins=routes.merge_origins(_origins(port), *(one.origins for one in connected)),
    )
    found.ports.append(made_port)
    if made_port.http3:
        found.ports.append(gateway_listeners.quic(made_port))


def _owners(memo: memory.Memo, port: gateway_ports.OpenPort) -> Mapping[str, gateway_ports.Owner]:
    opened = tuple((one.owner, one.hosts) for one in port.listeners)
    return memo.leaf(gateway_ports.owners, (port.port, port.kind), opened)


def _rank(one: gateway_connections.Ranked) -> tuple[int, int]:
    return one.rank


def _chain_name(chain: plan.Chain) -> str:
    return chain.name


def _tcp(memo: memory.Memo, port: gateway_ports.OpenPort, found: _Found) -> None:
    name = names.gateway(port.port)
    taken = gateway_connections.take(memo, name, port.listeners[0])
    _connections(name, taken, found)
    found.ports.append(
        gateway_listeners.Port(
            port=port.port,
            address=port.address,
            chains=taken.chains,
            choices=tuple(one.choice for one in taken.choices),
            client_address=port.listeners[0].listener.client_address,
            origins=routes.merge_origins(_origins(port), *(o.origins for o in taken.connected)),
        )
    )


def _udp(memo: memory.Memo, port: gateway_ports.OpenPort, found: _Found) -> None:
    name = names.gateway(port.port, udp=True)
    taken = gateway_connections.udp(memo, name, port.listeners[0])
    found.connected += taken.connected
    found.shadows += [(name, one) for one in gateway_connections.shadows(taken.connected)]
    if not taken.chains:
        return
    found.ports.append(
        gateway_listeners.Port(
            port=port.port,
            address=port.address,
            chains=tuple(gateway_connections.udp_in_scope(c, found.scoped) for c in taken.chains),
            udp=True,
            origins=routes.merge_origins(_origins(port), *(o.origins for o in taken.connected)),
        )
    )


def _connections(place: str, taken: gateway_connections.Taken, found: _Found) -> None:
    found.connected += taken.connected
    found.forwards += gateway_connections.forwards(taken.connected, found.scoped)
    found.shadows += [(place, one) for one in gateway_connections.shadows(taken.connected)]


def _routes(
    memo: memory.Memo,
    name: str,
    port: int,
    made: Iterable[routes.Host],
    more: list[plan.VirtualHost],
    found: _Found,
) -> None:
    """The route configuration of the hosts that rules make, and more."""
    found.hosts += made
    found.shadows += [
        (f"{host.virtual_host.name}:{port}", shadow)
        for host in made
        for shadow in host.routed.shadows
    ]
    if found.scoped:
        hosts = [gateway_http.in_scope(memo, name, host, found.scoped) for host in made] + more
    else:
        hosts = [host.virtual_host for host in made] + more
    found.configurations.append(
        memo.leaf(_route_configuration, name, name, tuple(sorted(hosts, key=_NAME)))
    )


def _route_configuration(
    name: str, virtual_hosts: tuple[plan.VirtualHost, ...]
) -> plan.RouteConfiguration:
    return plan.RouteConfiguration(name=name, virtual_hosts=virtual_hosts)


def _origins(port: gateway_ports.OpenPort) -> plan.Origins:
    return routes.merge_origins(*(one.served.gateway.origins for one in port.listeners))


def _clusters(
    memo: memory.Memo, found: _Found, directory: clusters.Directory
) -> tuple[plan.Cluster, ...]:
    sending: tuple[_Sending, ...] = (*(host.routed for host in found.hosts), *found.connected)
    starts = range(0, len(sending), _BLOCK)
    blocks = [memo.whole(_used, start, sending[start : start + _BLOCK]) for start in starts]
    used = frozenset[plan.ClusterKey]().union(*[block.used for block in blocks])
    origins: dict[plan.ClusterKey, plan.Origins] = {}
    for block in blocks:
        for key, more in block.extra:
            origins[key] = routes.merge_origins(origins.get(key, ()), more)
    scoped = found.scoped
    return tuple(
        clusters.build(memo, directory, scoped.get(key, key), origins=origins.get(key, ()))
        for key in sorted(used, key=routes.cluster_order)
    )


def _used(sending: tuple[_Sending, ...]) -> _Used:
    """The clusters of some of thousands of hosts: of most that is known from before."""
    used: set[plan.ClusterKey] = set()
    origins: dict[plan.ClusterKey, plan.Origins] = {}
    for one in sending:
        used.update(one.uses)
        for key, more in one.extra:
            origins[key] = routes.merge_origins(origins.get(key, ()), more)
    return _Used(frozenset(used), tuple(origins.items()))


def layer(found: Gateways, listeners: tuple[plan.Listener, ...]) -> plan.Layer:
    """The layer of the proxies that serve a set of gateways in the same way."""
    terminating = [chain.tls for one in listeners for chain in one.chains if chain.tls is not None]
    certificates = {key for tls in terminating for key in tls.certificates}
    authorities = {tls.clients.authority for tls in terminating if tls.clients}
    return plan.Layer(
        clusters=found.clusters,
        route_configurations=found.route_configurations,
        listeners=listeners,
        tcp_forwards=found.tcp_forwards,
        certificates=tuple(sorted(certificates.union(found.needed.served(found.namespace)))),
        authorities=tuple(sorted(authorities.union(found.needed.authorities))),
        cluster_secrets=found.needed.uses,
    )


def serving(
    gateways: Mapping[keys.ObjectKey, parsed.Gateway], *, namespace: str, labels: keys.Labels
) -> tuple[parsed.Gateway, ...]:
    """The gateways that a proxy serves, in key order."""
    return tuple(
        gateway
        for key, gateway in gateways.items()
        if key.namespace == namespace and keys.selects(gateway.selector, labels)
    )
