# SPDX-License-Identifier: Apache-2.0
"""The connections of a gateway's listeners for TLS and TCP, and the sessions of those for UDP.

A connection that no rule speaks of is closed, and the listener is there all the same: a rule that
comes or goes is no reason to open or close a port.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from pilothouse.routing import (
    accepting,
    catalogue,
    clusters,
    connections,
    gateway_ports,
    names,
    plan,
    routes,
)
from pilothouse.routing import memo as memory

_NOWHERE = (plan.WeightedCluster(cluster=None, weight=1),)


class Ranked(NamedTuple):
    """A choice among those of all listeners of a port; stable order within a rank."""

    rank: tuple[int, int]
    choice: plan.Choice


class Taken(NamedTuple):
    """What a listener does with its connections."""

    chains: tuple[plan.Chain, ...]
    choices: tuple[Ranked, ...]
    connected: tuple[connections.Connected, ...]
    """For what is to be known of clusters and rules."""


def take(memo: memory.Memo, place: str, one: gateway_ports.OpenListener) -> Taken:
    """The chains of a listener for TLS or TCP.

    Args:
        memo: Remembers what was found for each host.
        place: The beginning of their names.
        one: The listener.
    """
    listener = one.listener
    site = catalogue.Site(port=listener.port, gateway=True, transport=listener.transport)
    nowhere = plan.TcpForward(
        name=names.nowhere(place), clusters=_NOWHERE, origins=one.served.gateway.origins
    )
    found: list[connections.Connected] = []
    choices: list[Ranked] = []
    # Host by host: what a rule of the listener says of a narrower name counts among its own hosts,
    # and does not come before those of other listeners.
    for host in sorted(one.hosts, key=gateway_ports.rank):
        port = connections.Port(listener=place, site=site, hosts=(host,), fallback=nowhere)
        connected = memo.leaf(connections.connect, (place, host), port, (), one.bound())
        found.append(connected)
        tls = listener.transport == "tls"
        for chain in connected.chains:
            match = _among(chain.match, host) if tls else chain.match
            choice = plan.Choice(match=match, chain=chain.forward.name)
            choices.append(Ranked(gateway_ports.rank(host), choice))
    forwards = {forward.name for connected in found for forward in connected.forwards}
    chains = tuple(
        plan.Chain(name=name, serves=plan.Tcp(forward=name), tls=listener.tls)
        for name in sorted(forwards)
    )
    return Taken(chains, tuple(choices), tuple(found))


def _among(match: accepting.ChainMatch, host: str) -> accepting.ChainMatch:
    """A match of names that are among those of a listener."""
    if match.server_names or host == "*":
        return dataclasses.replace(match, tls=None if match.server_names else True)
    return dataclasses.replace(match, server_names=(host,))


def udp(memo: memory.Memo, place: str, one: gateway_ports.OpenListener) -> Taken:
    """The chain of a listener for UDP; none while no rule says where to."""
    site = catalogue.Site(port=one.listener.port, gateway=True, transport="udp")
    port = connections.Port(listener=place, site=site)
    connected = memo.leaf(connections.connect, (place, "*"), port, (), one.bound())
    chains = tuple(
        plan.Chain(
            name=place,
            serves=plan.Udp(
                cluster=chain.forward.clusters[0].cluster,
                idle_timeout_ms=chain.forward.idle_timeout_ms,
            ),
        )
        for chain in connected.chains
    )
    return Taken(chains, (), (connected,))


def forwards(
    connected: tuple[connections.Connected, ...], scoped: clusters.Scoped
) -> tuple[plan.TcpForward, ...]:
    """Where connections go, with the clusters that the gateway's namespace has of its own."""
    found = {forward.name: forward for one in connected for forward in one.forwards}
    return tuple(_in_scope(found[name], scoped) for name in sorted(found))


def _in_scope(forward: plan.TcpForward, scoped: clusters.Scoped) -> plan.TcpForward:
    if not any(one.cluster in scoped for one in forward.clusters):
        return forward
    return dataclasses.replace(
        forward,
        clusters=tuple(
            dataclasses.replace(one, cluster=scoped.get(one.cluster, one.cluster))
            if one.cluster is not None
            else one
            for one in forward.clusters
        ),
    )


def udp_in_scope(chain: plan.Chain, scoped: clusters.Scoped) -> plan.Chain:
    """The same for the chain of a UDP listener."""
    serves = chain.serves
    if not isinstance(serves, plan.Udp) or serves.cluster is None:
        return chain
    own = dataclasses.replace(serves, cluster=scoped.get(serves.cluster, serves.cluster))
    return dataclasses.replace(chain, serves=own)


def shadows(connected: tuple[connections.Connected, ...]) -> tuple[routes.Shadow, ...]:
    """Matches that no connection reaches, whatever host of the listener it is for."""
    first, *others = connected
    return tuple(shadow for shadow in first.shadows if all(shadow in one.shadows for one in others))
