# SPDX-License-Identifier: Apache-2.0
"""Where a listener's connections go: all rules that speak of it, merged in the published order.

The exact server name goes first, then the longest wildcard, then what takes every name. Of one
name: rules of the clients' own namespace before those of the service's; higher priority; the
smaller network of destinations, then the smaller one of sources, and none last; then the older
rule, its namespace and name, the position of the route and of the match.

A route has one forward, which all of its matches share, so that new weights change nothing else.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pilothouse.model import keys
from pilothouse.routing import (
    accepting,
    actions,
    catalogue,
    names,
    parsed,
    patterns,
    plan,
    routes,
    rules,
)

IDLE_TIMEOUT_MS = 3_600_000
"""How long nothing may move on a connection that no rule speaks of."""
_NOWHERE = plan.WeightedCluster(cluster=None, weight=1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What the routes of a listener depend on besides the rules."""

    listener: str
    """Name of the listener in the plan, with which the names of its forwards begin."""
    site: catalogue.Site
    """With the transport: routes for that one count, no others."""
    hosts: tuple[str, ...] = ("*",)
    """For TLS: the server names that it takes at all; ``*`` for everything, and for connections
    that name none."""
    fallback: plan.TcpForward | None = None
    """Where connections go that no rule speaks of; None closes them."""


class Chain(NamedTuple):
    """Connections, and where they go."""

    match: accepting.ChainMatch
    forward: plan.TcpForward
    route: str
    """Name of the route, or ``default``."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """The connections of one listener."""

    chains: tuple[Chain, ...] = ()
    """In order: the first whose match takes a connection has it. For UDP at most one, which takes
    all sessions."""
    forwards: tuple[plan.TcpForward, ...] = ()
    """Those of the chains, each once, sorted by name."""
    uses: tuple[plan.ClusterKey, ...] = ()
    """The clusters that connections go to, in the order of clusters."""
    extra: tuple[tuple[plan.ClusterKey, plan.Origins], ...] = ()
    """Those that are there for the sake of some route, with what such routes come from."""
    shadows: tuple[routes.Shadow, ...] = ()
    """Matches that no connection reaches, in the order of the chains."""
    origins: plan.Origins = ()
    """Those of all rules with a chain."""


class _Candidate(NamedTuple):
    """A chain among those of other rules."""

    order: tuple[object, ...]
    rule: keys.ObjectKey
    route: parsed.ConnectionRoute
    position: int
    """Of the match."""
    chain: Chain


def connect(
    port: Port,
    consumers: tuple[rules.Bound, ...],
    producers: tuple[rules.Bound, ...],
) -> Connected:
    """Merge the rules of a listener.

    Args:
        port: Where this is.
        consumers: Rules from outside the parent's namespace; empty at a gateway.
        producers: Rules that speak to all clients, or all rules at a gateway.
    """
    candidates = [
        candidate
        for tier, bounds in enumerate((consumers, producers))
        for bound in bounds
        for candidate in _candidates(tier, bound, port)
    ]
    candidates.sort(key=_order)
    kept, shadows = _reached(candidates)
    if port.site.transport == "udp":
        kept = kept[:1]
    chains = [candidate.chain for candidate in kept]
    if port.fallback is not None and not (kept and kept[-1].chain.match == accepting.ANY):
        chains.append(Chain(accepting.ANY, port.fallback, names.DEFAULT_ROUTE))
    forwards = {chain.forward.name: chain.forward for chain in chains}
    extra = _extra(forwards.values())
    return Connected(
        chains=tuple(chains),
        forwards=tuple(forwards[name] for name in sorted(forwards)),
        uses=tuple(extra),
        extra=tuple(extra.items()),
        shadows=shadows,
        origins=routes.merge_origins(*(one.origins for one in forwards.values())),
    )


def _order(candidate: _Candidate) -> tuple[object, ...]:
    return candidate.order


def _candidates(tier: int, bound: rules.Bound, port: Port) -> Iterator[_Candidate]:
    for route in bound.rule.connections:
        if route.transport != port.site.transport:
            continue
        forward = _forward(bound, route, port)
        for match in route.matches:
            if match.port not in (None, port.site.port):
                continue
            for rank, networks, test in _tests(match, bound.rule, port):
                order = (
                    rank,
                    tier,
                    -bound.rule.priority,
                    networks,
                    parsed.seniority(bound.rule),
                    route.position,
                    match.position,
                )
                chain = Chain(test, forward, route.name)
                yield _Candidate(order, bound.rule.key, route, match.position, chain)


def _tests(
    match: parsed.ConnectionMatch, rule: parsed.Rule, port: Port
) -> Iterator[tuple[tuple[int, int], tuple[int, int], accepting.ChainMatch]]:
    """The tests that do together what a match says, each of one rank, and these ranks.

    Names and networks of one rank have nothing in common unless they are equal, so their order does
    not matter.
    """
    by_rank: dict[tuple[int, int], list[str]] = {}
    for name in _server_names(match, rule, port):
        by_rank.setdefault(_name_rank(name), []).append(name)
    for rank, destinations, sources in itertools.product(
        sorted(by_rank), _by_size(match.destinations), _by_size(match.sources)
    ):
        yield (
            rank,
            (_size(destinations), _size(sources)),
            accepting.ChainMatch(
                server_names=tuple(name for name in by_rank[rank] if name != "*"),
                destinations=destinations,
                sources=sources,
            ),
        )


def _server_names(match: parsed.ConnectionMatch, rule: parsed.Rule, port: Port) -> tuple[str, ...]:
    """The names that a match takes at a listener; ``*`` for all, and for none."""
    if port.site.transport != "tls":
        return ("*",)
    found = {
        both
        for ours in port.hosts
        for theirs in rule.hosts or ("*",)
        for wanted in match.server_names or ("*",)
        if (hosts := patterns.intersect(ours, theirs)) is not None
        and (both := patterns.intersect(hosts, wanted)) is not None
    }
    return tuple(sorted(found))


def _name_rank(name: str) -> tuple[int, int]:
    if name == "*":
        return 2, 0
    return (1, -len(name)) if name.startswith("*.") else (0, 0)


def _by_size(networks: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    """Networks of one size together; nothing at all where there is no test of networks."""
    if not networks:
        return ((),)
    by_size: dict[int, list[str]] = {}
    for network in networks:
        by_size.setdefault(ipaddress.ip_network(network).prefixlen, []).append(network)
    return tuple(tuple(by_size[size]) for size in sorted(by_size, reverse=True))


def _size(networks: tuple[str, ...]) -> int:
    """Lower for smaller networks; those of one size are given, or none for all addresses."""
    return -ipaddress.ip_network(networks[0]).prefixlen if networks else 1


def _forward(bound: rules.Bound, route: parsed.ConnectionRoute, port: Port) -> plan.TcpForward:
    """Where a route sends; what leads nowhere keeps its share, whose connections are closed."""
    if route.destinations:
        shares, _ = actions.shares(bound, route, port.site)
    else:
        itself = port.site.itself
        shares = () if itself is None else (plan.WeightedCluster(cluster=itself, weight=1),)
    return plan.TcpForward(
        name=names.forward(port.listener, route.name),
        clusters=shares or (_NOWHERE,),
        idle_timeout_ms=route.idle_timeout_ms,
        origins=bound.rule.origins,
    )


def _extra(forwards: Iterable[plan.TcpForward]) -> dict[plan.ClusterKey, plan.Origins]:
    """The clusters of forwards, in the order of clusters, with what they come from."""
    found: dict[plan.ClusterKey, plan.Origins] = {}
    for forward in forwards:
        for share in forward.clusters:
            if share.cluster is not None:
                before = found.get(share.cluster, ())
                found[share.cluster] = routes.merge_origins(before, forward.origins)
    return {key: found[key] for key in sorted(found, key=routes.cluster_order)}


def _reached(
    candidates: list[_Candidate],
) -> tuple[list[_Candidate], tuple[routes.Shadow, ...]]:
    """Those that some connection reaches; and the matches that none does, with who is first."""
    kept: list[_Candidate] = []
    by_name: dict[str, list[_Candidate]] = {}
    lost: dict[tuple[keys.ObjectKey, str, int], tuple[_Candidate, _Candidate]] = {}
    won: set[tuple[keys.ObjectKey, str, int]] = set()
    for candidate in candidates:
        owners = [
            next((one for one in by_name.get(name, ()) if _covers(one, candidate)), None)
            for name in candidate.chain.match.server_names or ("*",)
        ]
        slot = (candidate.rule, candidate.route.field, candidate.position)
        winner = next((owner for owner in owners if owner is not None), None)
        if winner is not None and None not in owners:
            lost.setdefault(slot, (candidate, winner))
            continue
        won.add(slot)
        kept.append(candidate)
        for name in candidate.chain.match.server_names or ("*",):
            by_name.setdefault(name, []).append(candidate)
    return kept, tuple(
        routes.Shadow(one.rule, one.route.position, one.position, winner.rule, one.route.field)
        for slot, (one, winner) in lost.items()
        if slot not in won
    )


def _covers(winner: _Candidate, other: _Candidate) -> bool:
    """Tell whether a candidate takes all that another does, of a name that both have."""
    ours, theirs = winner.chain.match, other.chain.match
    return _contains(ours.destinations, theirs.destinations) and _contains(
        ours.sources, theirs.sources
    )


def _contains(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    if not ours or ours == theirs:
        return True
    if not theirs:
        return False
    large = [ipaddress.ip_network(one) for one in ours]
    return all(any(_is_in(ipaddress.ip_network(small), one) for one in large) for small in theirs)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _is_in(small: Network, large: Network) -> bool:
    if isinstance(small, ipaddress.IPv4Network):
        return isinstance(large, ipaddress.IPv4Network) and small.subnet_of(large)
    return isinstance(large, ipaddress.IPv6Network) and small.subnet_of(large)
