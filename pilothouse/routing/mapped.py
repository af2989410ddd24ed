# SPDX-License-Identifier: Apache-2.0
"""The mapped ports of a sidecar: a listener for each, with the rules of the service's port.

The chain for all connections that no narrower match takes is there from the beginning, and its
place is a resource of its own: a rule that comes or goes, like new weights, touches no listener.
A port of HTTP is served by the routes that its virtual host has anyway.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pilothouse.model import mapped, proxy
from pilothouse.routing import (
    accepting,
    catalogue,
    clusters,
    connections,
    endpoints,
    names,
    outbound,
    parsed,
    plan,
    routes,
    rules,
    sources,
    tracing,
)
from pilothouse.routing import memo as memory

_UDP_IDLE_TIMEOUT_MS = 60_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Whose ports are mapped."""

    ports: tuple[mapped.MappedPort, ...]
    own: outbound.Own
    service: str
    """Its name in traces."""


def layer(
    memo: memory.Memo,
    client: Client,
    outward: plan.Layer,
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
    mesh: parsed.MeshTracing | None,
) -> plan.Layer:
    """The listeners of mapped ports; those of services that do not exist are left out.

    Args:
        memo: Remembers what was found for each port.
        client: Whose ports they are.
        outward: Its outbound layer, which has the clusters of all ports but those of UDP.
        directory: What clusters are made from.
        producers: Rules that speak to all clients.
        mesh: The mesh's tracing; None for none.
    """
    traced = tracing.listener_tracing(mesh, client.service)
    hosts = {
        host.name: host
        for configuration in outward.route_configurations
        for host in configuration.virtual_hosts
    }
    parts: list[plan.Layer] = []
    for one in client.ports:
        port = _port(directory.mesh, one)
        if port is None:
            continue
        if port.site.transport == "http":
            parts.append(memo.leaf(_http, one, one, hosts[port.host], traced))
            continue
        found = memo.leaf(connections.connect, one, *_rules(one, port, client.own, producers))
        if one.udp:
            parts.append(_udp(memo, one, found, client.own.scoped, directory))
        else:
            parts.append(memo.leaf(_tcp, one, one, found, client.own.scoped))
    return _merged(parts)


def without(
    of: proxy.Proxy, served: tuple[endpoints.ServedPort, ...]
) -> tuple[mapped.MappedPort, ...]:
    """The mapped ports of a sidecar that it does not serve anyway, for its application."""
    taken = {(port.number, port.spoken == "udp") for port in served}
    taken.add((of.outbound_port, False))
    everywhere = proxy.DEFAULT_BIND_ADDRESS
    return tuple(
        one
        for one in of.mapped
        if (one.port, one.udp) not in taken
        or (one.address != of.bind_address and everywhere not in (one.address, of.bind_address))
    )


def _port(mesh: catalogue.Catalogue, one: mapped.MappedPort) -> catalogue.HttpPort | None:
    entry = mesh.entries.get(one.service)
    ports = () if entry is None else (*entry.ports, *entry.streams)
    return next(
        (
            port
            for port in ports
            if port.number == one.target and (port.site.transport == "udp") == one.udp
        ),
        None,
    )


def _rules(
    one: mapped.MappedPort,
    port: catalogue.HttpPort,
    own: outbound.Own,
    producers: Mapping[str, rules.ByRef],
) -> tuple[connections.Port, tuple[rules.Bound, ...], tuple[rules.Bound, ...]]:
    name = names.mapped(one)
    fallback = None
    if port.site.itself is not None:
        share = plan.WeightedCluster(cluster=port.site.itself, weight=1)
        fallback = plan.TcpForward(
            name=name,
            clusters=(share,),
            idle_timeout_ms=_UDP_IDLE_TIMEOUT_MS if one.udp else connections.IDLE_TIMEOUT_MS,
        )
    ours = rules.at_port(own.consumers.get(port.ref, ()), port.number)
    theirs = producers.get(port.ref.key.namespace, {}).get(port.ref, ())
    return (
        connections.Port(listener=name, site=port.site, fallback=fallback),
        sources.narrow(ours, own.truths),
        sources.narrow(rules.at_port(theirs, port.number), own.truths),
    )


def _listener(
    one: mapped.MappedPort, chains: tuple[plan.Chain, ...], choices: tuple[plan.Choice, ...] = ()
) -> plan.Listener:
    return plan.Listener(
        name=names.mapped(one),
        direction=plan.Direction.OUTBOUND,
        address=one.address,
        port=one.port,
        transport="udp" if one.udp else "tcp",
        chains=chains,
        choices=choices,
    )


def _http(
    one: mapped.MappedPort, host: plan.VirtualHost, traced: plan.Tracing | None
) -> plan.Layer:
    name = names.mapped(one)
    serves = plan.Http(route_configuration=name, tracing=traced)
    every = dataclasses.replace(host, domains=("*",))
    return plan.Layer(
        route_configurations=(plan.RouteConfiguration(name=name, virtual_hosts=(every,)),),
        listeners=(_listener(one, (plan.Chain(name=name, serves=serves),)),),
    )


def _tcp(
    one: mapped.MappedPort, found: connections.Connected, scoped: clusters.Scoped
) -> plan.Layer:
    name = names.mapped(one)
    forwards: dict[str, plan.TcpForward] = {}
    choices = []
    for match, forward, _ in found.chains:
        # Whatever takes the rest has one name, so that it may be another without a new chain.
        chain = name if match == accepting.ANY else forward.name
        forwards[chain] = _in_scope(dataclasses.replace(forward, name=chain), scoped)
        choices.append(plan.Choice(match=match, chain=chain))
    chains = tuple(
        plan.Chain(name=chain, serves=plan.Tcp(forward=chain)) for chain in sorted(forwards)
    )
    only = len(choices) == 1 and choices[0].match == accepting.ANY
    return plan.Layer(
        listeners=(_listener(one, chains, () if only else tuple(choices)),),
        tcp_forwards=tuple(forwards[chain] for chain in sorted(forwards)),
    )


def _in_scope(forward: plan.TcpForward, scoped: clusters.Scoped) -> plan.TcpForward:
    shares = tuple(
        share
        if share.cluster is None or share.cluster not in scoped
        else dataclasses.replace(share, cluster=scoped[share.cluster])
        for share in forward.clusters
    )
    return dataclasses.replace(forward, clusters=shares)


def _udp(
    memo: memory.Memo,
    one: mapped.MappedPort,
    found: connections.Connected,
    scoped: clusters.Scoped,
    directory: clusters.Directory,
) -> plan.Layer:
    forward = _in_scope(found.chains[0].forward, scoped) if found.chains else None
    share = None if forward is None else forward.clusters[0].cluster
    serves = plan.Udp(
        cluster=share,
        idle_timeout_ms=_UDP_IDLE_TIMEOUT_MS if forward is None else forward.idle_timeout_ms,
    )
    chains = (plan.Chain(name=names.mapped(one), serves=serves),)
    origins = () if forward is None else forward.origins
    made = () if share is None else (clusters.build(memo, directory, share, origins=origins),)
    return plan.Layer(clusters=made, listeners=(_listener(one, chains),))


def _merged(parts: list[plan.Layer]) -> plan.Layer:
    found = {cluster.key: cluster for part in parts for cluster in part.clusters}
    return plan.Layer(
        clusters=tuple(found[key] for key in sorted(found, key=routes.cluster_order)),
        route_configurations=tuple(one for part in parts for one in part.route_configurations),
        listeners=tuple(one for part in parts for one in part.listeners),
        tcp_forwards=tuple(sorted((one for part in parts for one in part.tcp_forwards), key=_name)),
    )


def _name(forward: plan.TcpForward) -> str:
    return forward.name
