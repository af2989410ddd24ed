# SPDX-License-Identifier: Apache-2.0
"""The routes of one host: all rules that speak of it, merged in the published total order.

Consumers before producers; then higher priority; then the Gateway API's precedence (exact path,
longest prefix, regex, method, number of headers); then the older rule, its namespace and name, the
position of the route and of the match.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import catalogue, parsed, plan, resolving, rules


class Shadow(NamedTuple):
    """A match that no request reaches, because an earlier one takes all of its requests."""

    loser: keys.ObjectKey
    route: int
    match: int
    winner: keys.ObjectKey


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
    order: tuple[object, ...]
    tier: int
    bound: rules.Bound
    route: parsed.RuleRoute
    match: parsed.Match
    position: int


def route_host(
    site: catalogue.Site, consumers: tuple[rules.Bound, ...], producers: tuple[rules.Bound, ...]
) -> Routed:
    """Merge the rules of a host.

    Args:
        site: Where this is.
        consumers: Rules from outside the parent's namespace; empty for clients that have none.
        producers: Rules that speak to all clients, or all rules at a gateway.
    """
    itself = _itself(site, producers)
    candidates = sorted(
        [*_candidates(0, consumers), *_candidates(1, producers)],
        key=lambda candidate: candidate.order,
    )
    actions: dict[str, plan.Action] = {}
    routes = []
    for candidate in candidates:
        name = candidate.route.name
        if name not in actions:
            actions[name] = action(candidate.bound, candidate.route, site=site, itself=itself)
        routes.append(
            plan.Route(
                name=name,
                match=candidate.match.match,
                action=actions[name],
                origins=candidate.bound.rule.origins,
            )
        )
    if site.fallback is not None:
        routes.append(site.fallback)
    uses = _uses(routes)
    services = {
        ref.key: target
        for bound in (*consumers, *producers)
        for ref, target in bound.targets.items()
        if not ref.external
    }
    return Routed(
        routes=tuple(routes),
        uses=tuple(uses),
        extra=tuple(item for item in uses.items() if _is_extra(item[0], site, services)),
        shadows=_shadows(candidates, tier=0 if consumers else 1),
        origins=merge_origins(*(route.origins for route in routes)),
    )


def _candidates(tier: int, bound: tuple[rules.Bound, ...]) -> list[_Candidate]:
    return [
        _Candidate(
            order=(
                tier,
                -one.rule.priority,
                match.precedence,
                parsed.seniority(one.rule),
                route.position,
                position,
            ),
            tier=tier,
            bound=one,
            route=route,
            match=match,
            position=position,
        )
        for one in bound
        for route in one.rule.routes
        for position, match in enumerate(route.matches)
    ]


def action(
    bound: rules.Bound,
    route: parsed.RuleRoute,
    *,
    site: catalogue.Site,
    itself: tuple[plan.WeightedCluster, ...],
) -> plan.Action:
    """What happens to a route's requests; what leads nowhere keeps its share, and fails."""
    if route.redirect is not None:
        return route.redirect
    if not route.destinations:
        shares, missing = itself, [] if itself else [no_itself(site)]
    else:
        shares, missing = _shares(bound, route, site)
    if any(share.cluster is not None for share in shares):
        return plan.Forward(clusters=shares, timeout_ms=route.timeout_ms, retry=route.retry)
    # The Gateway API answers 500 for a reference that leads nowhere, Ingress controllers 503.
    status = 503 if bound.rule.from_ingress else max((one.status for one in missing), default=500)
    # Strangers at a gateway need not know how the mesh is built.
    text = "; ".join(dict.fromkeys(one.message for one in missing))
    body = "" if site.gateway else f"{route.name}: {text or 'no destination has weight'}"
    return plan.DirectResponse(status=status, body=body)


def no_itself(site: catalogue.Site) -> resolving.Unresolved:
    """Why a route without destinations has nowhere to go."""
    if site.egress_only:
        text = "no route to the egress gateway exists, so requests have nowhere to go"
        return resolving.Unresolved(reason="BackendNotFound", message=text, status=503)
    text = "a route of a gateway needs destinations or a redirect"
    return resolving.Unresolved(reason="BackendNotFound", message=text)


def _shares(
    bound: rules.Bound, route: parsed.RuleRoute, site: catalogue.Site
) -> tuple[tuple[plan.WeightedCluster, ...], list[resolving.Unresolved]]:
    weights: dict[plan.ClusterKey | None, int] = {}
    missing = []
    for destination in route.destinations:
        if destination.weight == 0:
            continue
        found = resolving.resolve(destination, bound.targets.get(destination.ref), site)
        key = found if isinstance(found, plan.ClusterKey) else None
        if isinstance(found, resolving.Unresolved):
            missing.append(found)
        weights[key] = weights.get(key, 0) + destination.weight
    shares = tuple(
        plan.WeightedCluster(cluster=key, weight=weight) for key, weight in weights.items()
    )
    return shares, missing


def _itself(
    site: catalogue.Site, producers: tuple[rules.Bound, ...]
) -> tuple[plan.WeightedCluster, ...]:
    """Where a route without destinations sends.

    Behind the egress gateway that is where the rule sends which was derived from the external
    service itself, so that a rule about timeouts does not have to know the way out.
    """
    if site.itself is not None:
        return (plan.WeightedCluster(cluster=site.itself, weight=1),)
    for bound in producers if site.egress_only else ():
        if site.parent in bound.rule.origins:
            for route in bound.rule.routes:
                shares, missing = _shares(bound, route, site)
                if shares and not missing:
                    return shares
    return ()


def _shadows(candidates: list[_Candidate], *, tier: int) -> tuple[Shadow, ...]:
    first: dict[plan.RouteMatch, keys.ObjectKey] = {}
    shadows = []
    for candidate in candidates:
        match, key = candidate.match.match, candidate.bound.rule.key
        winner = first.get(parsed.ANYTHING) or first.get(match)
        if winner is None:
            first[match] = key
        elif candidate.tier == tier:
            shadows.append(Shadow(key, candidate.route.position, candidate.position, winner))
    return tuple(shadows)


def _uses(routes: Iterable[plan.Route]) -> Mapping[plan.ClusterKey, plan.Origins]:
    """The clusters that routes send to, with what these routes come from."""
    found: dict[plan.ClusterKey, plan.Origins] = {}
    for route in routes:
        if isinstance(route.action, plan.Forward):
            for share in route.action.clusters:
                if share.cluster is not None:
                    before = found.get(share.cluster, ())
                    found[share.cluster] = merge_origins(before, route.origins)
    return {key: found[key] for key in sorted(found, key=cluster_order)}


def _is_extra(
    key: plan.ClusterKey, site: catalogue.Site, services: Mapping[keys.ServiceKey, rules.Target]
) -> bool:
    """Tell whether the cluster is not there anyway, as those of all HTTP ports of services are."""
    if key.external or key.labels:
        return True
    service = services.get(key.service) if key.service else None
    if key == site.itself or not isinstance(service, registry.Service):
        return False
    return not any(port.number == key.port and port.protocol.is_http for port in service.ports)


def cluster_order(key: plan.ClusterKey) -> tuple[object, ...]:
    """The order of clusters in a layer."""
    return (key.external, key.service or (), key.port, key.labels, key.scope)


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
        else plan.WeightedCluster(
            cluster=scoped.get(share.cluster, share.cluster), weight=share.weight
        )
        for share in route.action.clusters
    )
    return dataclasses.replace(route, action=dataclasses.replace(route.action, clusters=clusters))
