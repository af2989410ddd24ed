# SPDX-License-Identifier: Apache-2.0
"""The routes of one host: all rules that speak of it, merged in the published total order.

Consumers before producers; then higher priority; then the Gateway API's precedence (exact path,
longest prefix, regex, method, number of headers, number of query parameters); then the older rule,
its namespace and name, the position of the route and of the match.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import NamedTuple

from pilothouse.model import keys
from pilothouse.routing import actions, catalogue, parsed, plan, rules
from pilothouse.routing import memo as memory

_CONSUMER = 0
_PRODUCER = 1


class Shadow(NamedTuple):
    """A match that no request reaches, because an earlier one takes all of its requests."""

    loser: keys.ObjectKey
    route: int
    match: int
    winner: keys.ObjectKey
    field: str
    """Path of the route."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The routes of one host, in order."""

    routes: tuple[plan.Route, ...]
    uses: tuple[plan.ClusterKey, ...]
    """The clusters that the routes send to, in the order of clusters."""
    extra: tuple[tuple[plan.ClusterKey, plan.Origins], ...]
    """Those that a sidecar has for the sake of some route only, with what such routes come from."""
    shadows: tuple[Shadow, ...] = ()
    """In the order of the routes; of consumers' rules only, where there are any."""
    origins: plan.Origins = ()
    """Those of all routes."""


class _Candidate(NamedTuple):
    """A route among those of other rules."""

    order: tuple[object, ...]
    tier: int
    rule: keys.ObjectKey
    route: int
    match: int
    field: str
    planned: plan.Route
    source: parsed.Source | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """One rule at one site."""

    candidates: tuple[_Candidate, ...]
    uses: tuple[tuple[plan.ClusterKey, bool], ...]
    """The clusters that it sends to, and whether each is there for the sake of rules only."""
    origins: plan.Origins


def route_host(
    memo: memory.Memo,
    site: catalogue.Site,
    consumers: tuple[rules.Bound, ...],
    producers: tuple[rules.Bound, ...],
) -> Routed:
    """Merge the rules of a host.

    Args:
        memo: Remembers each rule here: a host may have thousands.
        site: Where this is.
        consumers: Rules from outside the parent's namespace; empty for clients that have none.
        producers: Rules that speak to all clients, or all rules at a gateway.
    """
    consumers = tuple(bound for bound in consumers if bound.rule.routes)
    producers = tuple(bound for bound in producers if bound.rule.routes)
    itself = actions.itself(site, producers)
    compiled = [
        memo.leaf(_compile, (tier, bound.rule.key), tier, bound, site, itself)
        for tier, bounds in ((_CONSUMER, consumers), (_PRODUCER, producers))
        for bound in bounds
    ]
    candidates = [candidate for one in compiled for candidate in one.candidates]
    candidates.sort(key=_order)
    routes = [candidate.planned for candidate in candidates]
    uses, extra = _uses(compiled, site)
    if site.fallback is not None:
        routes.append(site.fallback)
    return Routed(
        routes=tuple(routes),
        uses=tuple(sorted(uses, key=cluster_order)),
        extra=tuple((key, extra[key]) for key in sorted(extra, key=cluster_order)),
        shadows=_shadows(candidates, tier=_CONSUMER if consumers else _PRODUCER),
        origins=merge_origins(
            *(one.origins for one in compiled), site.fallback.origins if site.fallback else ()
        ),
    )


def _order(candidate: _Candidate) -> tuple[object, ...]:
    return candidate.order


def _compile(
    tier: int,
    bound: rules.Bound,
    site: catalogue.Site,
    itself: tuple[plan.WeightedCluster, ...],
) -> _Compiled:
    rule = bound.rule
    candidates = []
    used: dict[plan.ClusterKey, bool] = {}
    for route in rule.routes:
        action = actions.action(bound, route, site=site, itself=itself)
        for key in actions.clusters(action):
            used[key] = is_extra(key)
        for match in route.matches:
            if match.port not in (None, site.port):
                continue
            order = (
                tier,
                -rule.priority,
                match.precedence,
                parsed.seniority(rule),
                route.position,
                match.position,
            )
            planned = plan.Route(
                name=route.name,
                match=match.match,
                action=action,
                treatment=route.treatment,
                logged=route.logged,
                stat_prefix=route.stat_prefix,
                origins=rule.origins,
            )
            candidates.append(
                _Candidate(
                    order,
                    tier,
                    rule.key,
                    route.position,
                    match.position,
                    route.field,
                    planned,
                    match.clients.source,
                )
            )
    return _Compiled(candidates=tuple(candidates), uses=tuple(used.items()), origins=rule.origins)


def is_extra(key: plan.ClusterKey) -> bool:
    """Tell whether a cluster is there for the sake of rules: those of whole ports always are."""
    return key.external or bool(key.labels) or key.udp


def _uses(
    compiled: list[_Compiled], site: catalogue.Site
) -> tuple[set[plan.ClusterKey], dict[plan.ClusterKey, plan.Origins]]:
    """The clusters that routes send to; and those for the sake of rules, with these rules."""
    uses: set[plan.ClusterKey] = set()
    extra: dict[plan.ClusterKey, plan.Origins] = {}
    for one in compiled:
        for key, is_extra in one.uses:
            uses.add(key)
            if is_extra:
                extra[key] = merge_origins(extra.get(key, ()), one.origins)
    if site.fallback is not None and site.itself is not None:
        uses.add(site.itself)
        if site.itself.external:
            before = extra.get(site.itself, ())
            extra[site.itself] = merge_origins(before, site.fallback.origins)
    return uses, extra


def _shadows(candidates: list[_Candidate], *, tier: int) -> tuple[Shadow, ...]:
    first: dict[tuple[plan.RouteMatch, parsed.Source | None], keys.ObjectKey] = {}
    shadows = []
    for one in candidates:
        match = one.planned.match
        # What takes all clients takes those of any test, too.
        places = itertools.product((match, parsed.ANYTHING), (one.source, None))
        winner = next((first[place] for place in places if place in first), None)
        if winner is None:
            first[match, one.source] = one.rule
        elif one.tier == tier:
            shadows.append(Shadow(one.rule, one.route, one.match, winner, one.field))
    return tuple(shadows)


def cluster_order(key: plan.ClusterKey) -> tuple[object, ...]:
    """The order of clusters in a layer."""
    return (key.external, key.service or (), key.port, key.udp, key.labels, key.scope)


def merge_origins(*origins: plan.Origins) -> plan.Origins:
    """All keys, sorted, each once."""
    nonempty = {one for one in origins if one}
    if len(nonempty) <= 1:
        return next(iter(nonempty), ())
    return tuple(sorted({key for one in nonempty for key in one}))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A virtual host with what its routes need."""

    virtual_host: plan.VirtualHost
    routed: Routed


def host(name: str, domains: tuple[str, ...], routed: Routed, origins: plan.Origins) -> Host:
    """The virtual host of some domains.

    Args:
        name: Its name.
        domains: Sorted.
        routed: Its routes.
        origins: Objects that the host comes from, besides the rules.
    """
    return Host(
        virtual_host=plan.VirtualHost(
            name=name,
            domains=domains,
            routes=routed.routes,
            origins=merge_origins(origins, routed.origins),
        ),
        routed=routed,
    )


Renamed = tuple[tuple[plan.ClusterKey, plan.ClusterKey], ...]


def rescope(one: plan.VirtualHost, renamed: Renamed) -> plan.VirtualHost:
    """The same host for clients whose namespace has policies of its own for some clusters."""
    scoped = dict(renamed)
    return dataclasses.replace(one, routes=tuple(_rescope(route, scoped) for route in one.routes))


def _rescope(route: plan.Route, scoped: Mapping[plan.ClusterKey, plan.ClusterKey]) -> plan.Route:
    if not isinstance(route.action, plan.Forward):
        return route
    clusters = tuple(
        share
        if share.cluster is None
        else dataclasses.replace(share, cluster=scoped.get(share.cluster, share.cluster))
        for share in route.action.clusters
    )
    mirrors = tuple(
        dataclasses.replace(mirror, cluster=scoped.get(mirror.cluster, mirror.cluster))
        for mirror in route.action.mirrors
    )
    action = dataclasses.replace(route.action, clusters=clusters, mirrors=mirrors)
    return dataclasses.replace(route, action=action)
