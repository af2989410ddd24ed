# SPDX-License-Identifier: Apache-2.0
"""What happens to the requests of a route: where they go, by weight, or how they are answered."""

from __future__ import annotations

import dataclasses

from pilothouse.routing import catalogue, parsed, plan, resolving, rules


def action(
    bound: rules.Bound,
    route: parsed.RuleRoute,
    *,
    site: catalogue.Site,
    itself: tuple[plan.WeightedCluster, ...],
) -> plan.Action:
    """What happens to a route's requests; what leads nowhere keeps its share, and fails."""
    if route.answer is not None:
        return route.answer
    if not route.destinations:
        found, missing = itself, [] if itself else [no_itself(site)]
    else:
        found, missing = shares(bound, route, site)
    if any(share.cluster is not None for share in found):
        return plan.Forward(
            clusters=found,
            timeout_ms=route.timeout_ms,
            retry=route.retry,
            rewrite=route.rewrite,
            mirrors=_mirrors(bound, route, site),
            websocket=route.websocket,
            connect=route.connect and site.gateway,
        )
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
    text = "a route of a gateway needs destinations, a redirect or a direct response"
    return resolving.Unresolved(reason="BackendNotFound", message=text)


def shares(
    bound: rules.Bound, route: parsed.RuleRoute | parsed.ConnectionRoute, site: catalogue.Site
) -> tuple[tuple[plan.WeightedCluster, ...], list[resolving.Unresolved]]:
    """The destinations that have weight, each once; and why some of them lead nowhere."""
    weights: dict[plan.WeightedCluster, int] = {}
    missing = []
    for destination in route.destinations:
        if destination.weight == 0:
            continue
        there = resolving.resolve(destination, bound.targets.get(destination.ref), site)
        if isinstance(there, resolving.Unresolved):
            missing.append(there)
            share = plan.WeightedCluster(cluster=None, weight=0)
        else:
            share = plan.WeightedCluster(
                cluster=there,
                weight=0,
                request_headers=destination.request_headers,
                response_headers=destination.response_headers,
            )
        weights[share] = weights.get(share, 0) + destination.weight
    found = tuple(dataclasses.replace(share, weight=weight) for share, weight in weights.items())
    return found, missing


def _mirrors(
    bound: rules.Bound, route: parsed.RuleRoute, site: catalogue.Site
) -> tuple[plan.Mirror, ...]:
    """Where copies go; one that leads nowhere costs the requests nothing."""
    found = [
        (resolving.resolve(one.destination, bound.targets.get(one.destination.ref), site), one)
        for one in route.mirrors
    ]
    return tuple(
        plan.Mirror(cluster=cluster, millionths=one.millionths)
        for cluster, one in found
        if isinstance(cluster, plan.ClusterKey)
    )


def clusters(action: plan.Action) -> tuple[plan.ClusterKey, ...]:
    """The clusters that requests or copies of them go to."""
    if not isinstance(action, plan.Forward):
        return ()
    shares = (share.cluster for share in action.clusters if share.cluster is not None)
    return (*shares, *(mirror.cluster for mirror in action.mirrors))


def itself(
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
                found, missing = shares(bound, route, site)
                if found and not missing:
                    return found
    return ()
