# SPDX-License-Identifier: Apache-2.0
"""Where a request ends up, worked out from config objects by what their comments say.

Slow and plain on purpose. It reads manifests in the shape of their YAML, and shares no code with
what it judges. The order of routes, over all rules of a host:

- rules of the clients' own namespace before those of the service's,
- higher `priority`,
- exact path, longest prefix or template, longest expression, any path,
- of one path, gRPC routes,
- with a method, more tests of headers, more tests of parameters,
- the older rule, its namespace, its name, the position of the route and of the match.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support import reference_actions as actions
from tests.support import reference_conditions as conditions
from tests.support import reference_hosts as hosts
from tests.support import reference_values as values


class Candidate(NamedTuple):
    """A route that takes a request by one of its matches."""

    order: tuple[Any, ...]
    name: str
    rule: values.Manifest
    route: values.Manifest
    match: values.Manifest
    told: str
    """As conditions name the match."""


def verdict(world: hosts.World, client: values.Client, request: values.Request) -> values.Verdict:
    """What becomes of a request of a client, in a world of these manifests."""
    site = hosts.site(world, client, request.authority)
    if site is None:
        return values.Verdict(status=404)
    arrived = conditions.Arrived(request, site.port)
    best = _best(world, client, site, arrived)
    if best is not None:
        return actions.apply(world, site, best.rule, best.name, best.route, best.match, arrived)
    if site.parent is None:
        return values.Verdict(status=404)
    if site.parent["spec"].get("throughEgressGateway"):
        return values.Verdict(route="default", status=503)
    # What no rule takes goes to the service itself.
    return actions.apply(world, site, None, "default", {}, {}, arrived)


def taken(
    world: hosts.World, client: values.Client, request: values.Request
) -> tuple[Candidate, str] | None:
    """The match that takes a request, and where; None when none does."""
    site = hosts.site(world, client, request.authority)
    if site is None:
        return None
    best = _best(world, client, site, conditions.Arrived(request, site.port))
    return None if best is None else (best, site.place)


def _best(
    world: hosts.World, client: values.Client, site: hosts.Site, arrived: conditions.Arrived
) -> Candidate | None:
    found = _candidates(world, client, site, arrived)
    return min(found, key=lambda each: each.order, default=None)


def _candidates(
    world: hosts.World, client: values.Client, site: hosts.Site, arrived: conditions.Arrived
) -> Iterator[Candidate]:
    for each in site.rules:
        tier, rule, _ = each
        spec = rule["spec"]
        routes = [(False, *one) for one in enumerate(spec.get("http", ()))]
        routes += [(True, *one) for one in enumerate(spec.get("grpc", ()))]
        for position, (grpc, index, route) in enumerate(routes):
            for number, match in enumerate(route.get("matches") or [{}]):
                if grpc:
                    takes = conditions.grpc_takes(match, arrived)
                    precedence = conditions.grpc_precedence(match)
                else:
                    takes = conditions.http_takes(match, arrived, cors="cors" in route)
                    precedence = conditions.http_precedence(match)
                if takes and hosts.is_for(world, client, each, match):
                    priority = spec.get("priority", 0)
                    place = (hosts.age(rule), position, number)
                    order = (tier, -priority, precedence, *place)
                    name = route_name(rule, index, route, grpc=grpc)
                    told = f"spec.{'grpc' if grpc else 'http'}[{index}] (match {number})"
                    yield Candidate(order, name, rule, route, match, told)


def route_name(rule: values.Manifest, index: int, route: values.Manifest, *, grpc: bool) -> str:
    """A route as status and explain name it."""
    parts = ["RouteRule", *hosts.key(rule), *(["grpc"] if grpc else []), str(index)]
    return "/".join([*parts, *([route["name"]] if route.get("name") else [])])
