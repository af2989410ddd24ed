# SPDX-License-Identifier: Apache-2.0
"""What is found out about RouteRules: where their parents and destinations lead, at every port."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, NamedTuple

from pilothouse.routing import (
    actions,
    catalogue,
    parsed,
    patterns,
    resolving,
    rules,
    told,
)

_NOWHERE = catalogue.Site(port=0)
_KINDS: Final[dict[parsed.Transport, str]] = {
    "http": "HTTP",
    "tls": "TLS",
    "tcp": "TCP",
    "udp": "UDP",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParentFact:
    """What a parent reference of a rule leads to."""

    exists: bool
    ports: tuple[catalogue.HttpPort, ...] = ()
    """Those of a service or external service."""
    gateway: parsed.Gateway | None = None
    has_exit: bool = True
    """False when requests may leave through the egress gateway only, and nothing leads there."""


class _Place(NamedTuple):
    """Where traffic of a parent is routed."""

    site: catalogue.Site
    fact: ParentFact
    routes: frozenset[str]
    """Fields of the routes that count there."""


def conditions(
    bound: rules.Bound,
    parents: tuple[ParentFact, ...],
    barren: tuple[told.Labelled, ...],
    shadows: told.Shadows,
) -> told.Conditions:
    """The conditions of a RouteRule.

    Args:
        bound: The rule with its destinations.
        parents: What its parents lead to, in their order.
        barren: Label sets that select no endpoint.
        shadows: Its matches that nothing reaches.
    """
    problems: list[told.Problem] = []
    places: list[_Place] = []
    for position, (parent, fact) in enumerate(zip(bound.rule.parents, parents, strict=True)):
        here = rules.at(bound, parent.gateway or parsed.MESH).rule
        counted = frozenset(route.field for route in here.every)
        try:
            places += [_Place(site, fact, counted) for site in _sites(bound.rule, parent, fact)]
        except _Unattached as reason:
            text = f"spec.parents[{position}]: {reason.problem.message}"
            problems.append(told.Problem(reason.problem.reason, text))
    reached = {place.site.transport for place in places}
    for route in bound.rule.every:
        fitting = [
            place
            for place in places
            if place.site.transport == route.transport and route.field in place.routes
        ]
        if reached and route.transport not in reached:
            text = f"{route.field}: no parent has a port or listener for {_KINDS[route.transport]}"
            problems.append(told.Problem("NoMatchingParent", text))
        problems += _route_problems(bound, route, fitting)
        if isinstance(route, parsed.ConnectionRoute):
            problems += _name_problems(bound.rule, route, parents)
    return told.in_order(told.resolved(problems), told.no_endpoints(barren), told.shadowed(shadows))


class _Unattached(Exception):  # noqa: N818  no error: an answer
    """Nothing of a parent is routed by a rule."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.problem = told.Problem(reason, message)


def _sites(rule: parsed.Rule, parent: parsed.Parent, fact: ParentFact) -> list[catalogue.Site]:
    """Where traffic of a parent is routed.

    Raises:
        _Unattached: Nowhere; it says why.
    """
    if not fact.exists:
        raise _Unattached("NoMatchingParent", f"{parent.gateway or parent.ref} does not exist")
    if fact.gateway is not None:
        return _gateway_sites(rule, parent, fact.gateway)
    wanted = _transports(rule)
    found = [port.site for port in fact.ports if parent.port in (None, port.number)]
    sites = [site for site in found if site.transport in wanted]
    if not sites:
        port = "" if parent.port is None else f" {parent.port}"
        kinds = " or ".join(_KINDS[transport] for transport in wanted)
        raise _Unattached("NoMatchingParent", f"{parent.ref} has no {kinds} port{port}")
    return sites


def _transports(rule: parsed.Rule) -> tuple[parsed.Transport, ...]:
    """What its routes are for, each once."""
    return tuple(dict.fromkeys(route.transport for route in rule.every))


def _gateway_sites(
    rule: parsed.Rule, parent: parsed.Parent, gateway: parsed.Gateway
) -> list[catalogue.Site]:
    namespace = rule.key.namespace
    if not gateway.admits(namespace):
        text = f"{gateway.key} does not allow rules of namespace {namespace}"
        raise _Unattached("NotAllowedByListeners", text)
    named = [one for one in gateway.listeners if parent.listener in ("", one.name)]
    if not named:
        text = f"{gateway.key} has no listener {parent.listener}"
        raise _Unattached("NoMatchingParent", text)
    wanted = _transports(rule)
    fitting = [one for one in named if one.transport in wanted]
    kinds = " or ".join(_KINDS[transport] for transport in wanted)
    which = f"listener {parent.listener} of {gateway.key}" if parent.listener else gateway.key
    if not fitting:
        raise _Unattached("NoMatchingParent", f"{which} accepts no {kinds}")
    admitting = [one for one in fitting if one.admits(namespace)]
    if not admitting:
        text = f"{which} does not allow rules of namespace {namespace} for {kinds}"
        raise _Unattached("NotAllowedByListeners", text)
    listeners = [one for one in admitting if _hosts(one, rule)]
    if not listeners:
        text = f"none of the rule's hosts is a host of a listener of {gateway.key}"
        raise _Unattached("NoMatchingListenerHostname", text)
    places = sorted({(one.port, one.transport) for one in listeners})
    return [
        catalogue.Site(port=port, gateway=True, transport=transport) for port, transport in places
    ]


def _hosts(listener: parsed.GatewayListener, rule: parsed.Rule) -> tuple[str, ...]:
    """The hosts that a rule serves at a listener."""
    if listener.transport in ("tcp", "udp"):
        return ("*",)
    both = {
        patterns.intersect(ours, theirs)
        for ours in listener.hosts
        for theirs in rule.hosts or ("*",)
    }
    return tuple(sorted(host for host in both if host is not None))


def _name_problems(
    rule: parsed.Rule, route: parsed.ConnectionRoute, parents: tuple[ParentFact, ...]
) -> Iterable[told.Problem]:
    """Server names of a match that are none of its listeners'."""
    hosts = [
        host
        for parent, fact in zip(rule.parents, parents, strict=True)
        if fact.gateway is not None
        for listener in fact.gateway.listeners
        if listener.transport == "tls" and parent.listener in ("", listener.name)
        if listener.admits(rule.key.namespace)
        for host in _hosts(listener, rule)
    ]
    in_mesh = any(fact.gateway is None for fact in parents)
    for match in route.matches if hosts and not in_mesh else ():
        for name in match.server_names:
            if not any(patterns.intersect(host, name) for host in hosts):
                text = f"{route.field}.matches[{match.position}]: no listener has the host {name}"
                yield told.Problem("NoMatchingListenerHostname", text)


def _route_problems(
    bound: rules.Bound,
    route: parsed.RuleRoute | parsed.ConnectionRoute,
    places: list[_Place],
) -> Iterable[told.Problem]:
    field = route.field
    answered = isinstance(route, parsed.RuleRoute) and route.answer is not None
    if not route.destinations and not answered:
        for site, fact, _ in places:
            if site.itself is None and not (site.egress_only and fact.has_exit):
                missing = actions.no_itself(site)
                yield told.Problem(missing.reason, f"{field}: {missing.message}")
    mirrors = route.mirrors if isinstance(route, parsed.RuleRoute) else ()
    named = [
        *((f"destinations[{i}]", each) for i, each in enumerate(route.destinations)),
        *((f"mirrors[{i}].destination", each.destination) for i, each in enumerate(mirrors)),
    ]
    for name, destination in named:
        target = bound.targets.get(destination.ref)
        sites = [place.site for place in places] or ([_NOWHERE] if target is None else [])
        for site in sites:
            found = resolving.resolve(destination, target, site)
            if isinstance(found, resolving.Unresolved):
                yield told.Problem(found.reason, f"{field}.{name}: {found.message}")
