# SPDX-License-Identifier: Apache-2.0
"""The layers of gateway proxies: one for each set of MeshGateways that some proxy serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilothouse.model import keys, secrets
from pilothouse.routing import (
    accepting,
    catalogue,
    clusters,
    names,
    parsed,
    plan,
    routes,
    rules,
    tracing,
)
from pilothouse.routing import memo as memory


class Served(NamedTuple):
    """A gateway, and the rules attached to it."""

    gateway: parsed.Gateway
    attached: tuple[rules.Attached, ...]


class OpenListener(NamedTuple):
    """A listener that shares its port with others of the same protocol."""

    served: Served
    listener: parsed.GatewayListener


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenPort:
    """A port of a gateway proxy."""

    port: int
    https: bool
    listeners: tuple[OpenListener, ...]
    """Of all gateways, the older gateway first, then as written."""


class Refused(NamedTuple):
    """A listener not opened, because an older gateway speaks another protocol on its port."""

    loser: keys.ObjectKey
    listener: str
    winner: keys.ObjectKey


def open_ports(gateways: Iterable[Served]) -> tuple[tuple[OpenPort, ...], tuple[Refused, ...]]:
    """The ports of a proxy that serves these gateways, sorted; and the listeners left out."""
    found: dict[int, list[OpenListener]] = {}
    refused = []
    for served in sorted(gateways, key=_seniority):
        for listener in served.gateway.listeners:
            sharing = found.setdefault(listener.port, [])
            if sharing and sharing[0].listener.https != listener.https:
                winner = sharing[0].served.gateway.key
                refused.append(Refused(served.gateway.key, listener.name, winner))
            else:
                sharing.append(OpenListener(served, listener))
    ports = tuple(
        OpenPort(port=port, https=sharing[0].listener.https, listeners=tuple(sharing))
        for port, sharing in sorted(found.items())
    )
    return ports, tuple(refused)


def _seniority(served: Served) -> tuple[object, ...]:
    return parsed.seniority(served.gateway)


def intersect(listener: str, rule: str) -> str | None:
    """The host that both mean, which is the more specific one; None when there is none.

    ``*.example.com`` stands for any number of labels, and not for ``example.com``.
    """
    if covers(listener, rule):
        return rule
    return listener if covers(rule, listener) else None


def covers(general: str, specific: str) -> bool:
    """Tell whether every host that ``specific`` means is one that ``general`` means."""
    if general in ("*", specific):
        return True
    return general.startswith("*.") and specific.endswith(general[1:])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gateways:
    """What follows from a set of gateways, whatever proxy serves them."""

    clusters: tuple[plan.Cluster, ...]
    route_configurations: tuple[plan.RouteConfiguration, ...]
    shadows: tuple[tuple[str, routes.Shadow], ...]
    """Matches that no request reaches, with HOST:PORT."""
    client_certificates: tuple[secrets.SecretKey, ...] = ()
    """What the clusters show to endpoints."""
    served: tuple[secrets.SecretKey, ...] = ()
    """Those of them that the proxies may have."""


def gateways(
    memo: memory.Memo,
    served: tuple[Served, ...],
    directory: clusters.Directory,
    scoped: clusters.Scoped,
) -> Gateways:
    """The routes and clusters of a proxy that serves these gateways.

    Args:
        memo: Remembers the hosts.
        served: The gateways with their rules.
        directory: What clusters are made from.
        scoped: The clusters that policies of the gateways' namespace change.
    """
    configurations = []
    hosts: list[routes.Host] = []
    shadows: list[tuple[str, routes.Shadow]] = []
    for port in open_ports(served)[0]:
        found = _hosts(memo, port)
        hosts += found
        shadows += [
            (f"{host.virtual_host.name}:{port.port}", shadow)
            for host in found
            for shadow in host.routed.shadows
        ]
        virtual_hosts = tuple([_in_scope(memo, port.port, host, scoped) for host in found])
        configurations.append(
            memo.leaf(_route_configuration, port.port, names.gateway(port.port), virtual_hosts)
        )
    sent = _clusters(memo, hosts, directory, scoped)
    shown = clusters.client_certificates(directory.policies, sent)
    namespace = served[0].gateway.key.namespace if served else ""
    return Gateways(
        clusters=sent,
        client_certificates=shown,
        served=clusters.served(shown, namespace=namespace),
        route_configurations=tuple(configurations),
        shadows=tuple(shadows),
    )


def _route_configuration(
    name: str, virtual_hosts: tuple[plan.VirtualHost, ...]
) -> plan.RouteConfiguration:
    return plan.RouteConfiguration(name=name, virtual_hosts=virtual_hosts)


def _hosts(memo: memory.Memo, port: OpenPort) -> list[routes.Host]:
    """The hosts of a port, sorted by name."""
    by_host: dict[str, dict[keys.ObjectKey, rules.Bound]] = {}
    origins: dict[str, set[keys.ObjectKey]] = {}
    for one in port.listeners:
        for attached in one.served.attached:
            for host in hosts_of(one.listener, attached):
                by_host.setdefault(host, {})[attached.bound.rule.key] = attached.bound
                origins.setdefault(host, set()).update(one.served.gateway.origins)
    site = catalogue.Site(port=port.port, gateway=True)
    found = []
    for host in sorted(by_host):
        slot = (port.port, host)
        bound = tuple(by_host[host].values())
        routed = memo.group(routes.route_host, slot, site, (), bound)
        sources = tuple(sorted(origins[host]))
        found.append(memo.leaf(routes.host, slot, host, (host,), routed, sources))
    return found


def hosts_of(listener: parsed.GatewayListener, attached: rules.Attached) -> tuple[str, ...]:
    """The hosts that an attached rule serves at a listener."""
    if attached.listener not in ("", listener.name):
        return ()
    hosts = attached.bound.rule.hosts or listener.hosts
    both = {intersect(ours, theirs) for ours in listener.hosts for theirs in hosts}
    return tuple(sorted(host for host in both if host is not None))


def _in_scope(
    memo: memory.Memo, port: int, host: routes.Host, scoped: clusters.Scoped
) -> plan.VirtualHost:
    hits = tuple((key, scoped[key]) for key in host.routed.uses if key in scoped)
    if not hits:
        return host.virtual_host
    slot = (port, host.virtual_host.name)
    return memo.leaf(routes.rescope, slot, host.virtual_host, hits)


def _clusters(
    memo: memory.Memo,
    hosts: list[routes.Host],
    directory: clusters.Directory,
    scoped: clusters.Scoped,
) -> tuple[plan.Cluster, ...]:
    used = {key for host in hosts for key in host.routed.uses}
    origins: dict[plan.ClusterKey, plan.Origins] = {}
    for host in hosts:
        for key, more in host.routed.extra:
            origins[key] = routes.merge_origins(origins.get(key, ()), more)
    return tuple(
        clusters.build(memo, directory, scoped.get(key, key), origins=origins.get(key, ()))
        for key in sorted(used, key=routes.cluster_order)
    )


def listeners(
    gateways: tuple[parsed.Gateway, ...],
    bind_address: str,
    service: str,
    mesh: parsed.MeshTracing | None,
) -> tuple[plan.Listener, ...]:
    """The listeners of a gateway proxy, sorted by port.

    Args:
        gateways: The gateways that it serves.
        bind_address: Where its listeners bind.
        service: Its name in traces.
        mesh: The mesh's tracing; None for none.
    """
    traced = tracing.listener_tracing(mesh, service)
    ports, _ = open_ports(Served(gateway, ()) for gateway in gateways)
    return tuple(_listener(port, bind_address, traced) for port in ports)


def layer(found: Gateways, listeners: tuple[plan.Listener, ...]) -> plan.Layer:
    """The layer of the proxies that serve a set of gateways in the same way."""
    certificates = {
        key
        for listener in listeners
        for chain in listener.chains
        for key in (chain.tls.secrets if chain.tls else ())
    }
    certificates.update(found.served)
    return plan.Layer(
        clusters=found.clusters,
        route_configurations=found.route_configurations,
        listeners=listeners,
        certificates=tuple(sorted(certificates)),
        client_certificates=found.client_certificates,
    )


def _listener(port: OpenPort, address: str, traced: plan.Tracing | None) -> plan.Listener:
    certificates: dict[secrets.SecretKey, None] = {}
    for one in port.listeners:
        certificates.update(dict.fromkeys(one.listener.certificates))
    name = names.gateway(port.port)
    serves = plan.Http(route_configuration=name, edge=True, strip_port=True, tracing=traced)
    tls = None
    if certificates:
        tls = accepting.ServerTls(certificates=tuple(certificates), alpn=("h2", "http/1.1"))
    return plan.Listener(
        name=name,
        direction=plan.Direction.INBOUND,
        address=address,
        port=port.port,
        chains=(plan.Chain(name=name, serves=serves, tls=tls),),
        origins=routes.merge_origins(
            *(one.served.gateway.origins for one in port.listeners),
            traced.origins if traced else (),
        ),
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
