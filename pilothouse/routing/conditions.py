# SPDX-License-Identifier: Apache-2.0
"""What routing finds out by looking at all objects: dangling references, conflicts, empty sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import (
    actions,
    catalogue,
    clusters,
    endpoints,
    gateways,
    parsed,
    parsing,
    patterns,
    resolving,
    routes,
    rules,
)
from pilothouse.routing import memo as memory

RESOLVED = "ResolvedRefs"
CONFLICTED = "Conflicted"
"""A warning: True when another object takes the place of this one, or of a part of it."""
NO_ENDPOINTS = "NoEndpoints"
"""A warning: True when a label set selects no endpoint, not even one that is not ready."""

Shadows = tuple[tuple[str, routes.Shadow], ...]
"""Matches that no request reaches, with the host and port where that is so."""
Conditions = tuple[objects.Condition, ...]
Labelled = tuple[keys.ServiceKey, keys.Labels]
"""A service, and labels of the endpoints that count."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that conditions are made of, but endpoints."""

    objects: parsing.Objects
    directory: clusters.Directory
    bound: Mapping[keys.ObjectKey, rules.Bound]
    gateways: Mapping[keys.ObjectKey, parsed.Gateway]
    producers: Mapping[str, rules.ByRef]
    shadows: Shadows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParentFact:
    """What a parent reference of a rule leads to."""

    exists: bool
    ports: tuple[catalogue.HttpPort, ...] = ()
    """The HTTP ports of a service or external service."""
    gateway: parsed.Gateway | None = None
    has_exit: bool = True
    """False when requests may leave through the egress gateway only, and nothing leads there."""


def all_conditions(
    memo: memory.Memo, findings: Findings, barren: frozenset[Labelled]
) -> Mapping[keys.ObjectKey, Conditions]:
    """The conditions of every object of the kinds that are about routing, in key order."""
    shadows: dict[keys.ObjectKey, list[tuple[str, routes.Shadow]]] = {}
    for one in findings.shadows:
        shadows.setdefault(one[1].loser, []).append(one)
    found: dict[keys.ObjectKey, Conditions] = {}
    for key, bound in findings.bound.items():
        parents = tuple([_parent(findings, parent) for parent in bound.rule.parents])
        empty = tuple([one for one in _labelled(bound.rule) if one in barren]) if barren else ()
        shadowed = tuple(shadows.get(key, ()))
        found[key] = memo.leaf(rule_conditions, key, bound, parents, empty, shadowed)
    for policy in findings.objects.policies:
        ports = _known_ports(findings.directory, policy.target)
        exists = ports is not None
        unknown = tuple([port for port in policy.ports if ports and port not in ports])
        winner = findings.directory.policies.losers.get(policy.key)
        labelled = (policy.target.key, policy.labels)
        empty = (labelled,) if exists and labelled in barren else ()
        found[policy.key] = memo.leaf(
            policy_conditions, policy.key, policy, exists, unknown, winner, empty
        )
    for external in findings.objects.externals:
        lost = findings.directory.claims.lost.get(external.key, ())
        found[external.object] = _conflicted(lost)
    for gateway in findings.objects.gateways:
        found[gateway.key] = gateway_conditions(gateway, findings.objects.gateways)
    return {key: found[key] for key in sorted(found)}


def _parent(findings: Findings, parent: parsed.Parent) -> ParentFact:
    if parent.gateway is not None:
        gateway = findings.gateways.get(parent.gateway)
        return ParentFact(exists=gateway is not None, gateway=gateway)
    ref = parent.ref
    assert ref is not None  # noqa: S101  exactly one of the two is set
    if not ref.external:
        entry = findings.directory.mesh.entries.get(ref.key)
        return ParentFact(exists=entry is not None, ports=entry.ports if entry else ())
    ports = findings.directory.claims.ports.get(ref.key)
    attached = findings.producers.get(ref.key.namespace, {}).get(ref, ())
    exits = {origin for one in attached for origin in one.bound.rule.origins}
    closed = any(http.site.egress_only and http.site.parent not in exits for http in ports or ())
    return ParentFact(exists=ports is not None, ports=ports or (), has_exit=not closed)


def _known_ports(directory: clusters.Directory, target: parsed.Ref) -> frozenset[int] | None:
    """The ports of a service or external service; None when it does not exist."""
    if target.external:
        external = directory.claims.externals.get(target.key)
        return None if external is None else frozenset(port.number for port in external.ports)
    entry = directory.mesh.entries.get(target.key)
    return None if entry is None else frozenset(port.number for port in entry.service.ports)


def _labelled(rule: parsed.Rule) -> tuple[Labelled, ...]:
    found = {
        (destination.ref.key, destination.labels)
        for route in rule.routes
        for destination in route.reached
        if destination.labels and not destination.ref.external
    }
    return tuple(sorted(found))


Wanted = tuple[tuple[keys.ServiceKey, tuple[keys.Labels, ...]], ...]
"""Services with the label sets that objects name, sorted."""


def wanted(found: parsing.Objects) -> Wanted:
    """All label sets that rules and policies name."""
    by_service: dict[keys.ServiceKey, set[keys.Labels]] = {}
    for rule in found.rules:
        for service, labels in _labelled(rule):
            by_service.setdefault(service, set()).add(labels)
    for policy in found.policies:
        if policy.labels:
            by_service.setdefault(policy.target.key, set()).add(policy.labels)
    return tuple((service, tuple(sorted(by_service[service]))) for service in sorted(by_service))


def barren(memo: memory.Memo, wanted: Wanted, known: endpoints.Endpoints) -> frozenset[Labelled]:
    """The label sets that select no endpoint, not even one that is not ready."""
    found = [
        memo.leaf(_barren, service, service, labels, known.get(service, ()))
        for service, labels in wanted
    ]
    return frozenset(one for some in found for one in some)


def _barren(
    service: keys.ServiceKey,
    wanted: tuple[keys.Labels, ...],
    candidates: tuple[registry.Endpoint, ...],
) -> tuple[Labelled, ...]:
    return tuple(
        (service, labels)
        for labels in wanted
        if not any(keys.selects(labels, one.labels) for one in candidates)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Problem:
    reason: str
    message: str


def rule_conditions(
    bound: rules.Bound,
    parents: tuple[ParentFact, ...],
    barren: tuple[Labelled, ...],
    shadows: Shadows,
) -> Conditions:
    """The conditions of a RouteRule.

    Args:
        bound: The rule with its destinations.
        parents: What its parents lead to, in their order.
        barren: Label sets that select no endpoint.
        shadows: Its matches that no request reaches.
    """
    problems: list[_Problem] = []
    sites: list[tuple[catalogue.Site, ParentFact]] = []
    for position, (parent, fact) in enumerate(zip(bound.rule.parents, parents, strict=True)):
        field = f"spec.parents[{position}]"
        reached, problem = _sites(bound.rule, parent, fact)
        sites += [(site, fact) for site in reached]
        if problem is not None:
            problems.append(_Problem(problem.reason, f"{field}: {problem.message}"))
    for route in bound.rule.routes:
        problems += _route_problems(bound, route, sites)
    return _sorted(_resolved(problems), _no_endpoints(barren), _shadowed(shadows))


def _sites(
    rule: parsed.Rule, parent: parsed.Parent, fact: ParentFact
) -> tuple[list[catalogue.Site], _Problem | None]:
    """Where requests of a parent are routed; or why nowhere."""
    if not fact.exists:
        return [], _Problem("NoMatchingParent", f"{parent.gateway or parent.ref} does not exist")
    if fact.gateway is not None:
        return _gateway_sites(rule, parent, fact.gateway)
    sites = [http.site for http in fact.ports if parent.port in (None, http.number)]
    if sites:
        return sites, None
    port = "" if parent.port is None else f" {parent.port}"
    return [], _Problem("NoMatchingParent", f"{parent.ref} has no HTTP port{port}")


def _gateway_sites(
    rule: parsed.Rule, parent: parsed.Parent, gateway: parsed.Gateway
) -> tuple[list[catalogue.Site], _Problem | None]:
    if not gateway.admits(rule.key.namespace):
        text = f"{gateway.key} does not allow rules of namespace {rule.key.namespace}"
        return [], _Problem("NotAllowedByListeners", text)
    named = [one for one in gateway.listeners if parent.listener in ("", one.name)]
    if not named:
        text = f"{gateway.key} has no listener {parent.listener}"
        return [], _Problem("NoMatchingParent", text)
    hosts = rule.hosts or ("*",)
    listeners = [
        one
        for one in named
        if any(patterns.intersect(ours, theirs) for ours in one.hosts for theirs in hosts)
    ]
    if not listeners:
        text = f"none of the rule's hosts is a host of a listener of {gateway.key}"
        return [], _Problem("NoMatchingListenerHostname", text)
    ports = sorted({one.port for one in listeners})
    return [catalogue.Site(port=port, gateway=True) for port in ports], None


def _route_problems(
    bound: rules.Bound,
    route: parsed.RuleRoute,
    sites: list[tuple[catalogue.Site, ParentFact]],
) -> Iterable[_Problem]:
    field = route.field
    if not route.destinations and route.answer is None:
        for site, fact in sites:
            if site.itself is None and not (site.egress_only and fact.has_exit):
                missing = actions.no_itself(site)
                yield _Problem(missing.reason, f"{field}: {missing.message}")
    named = [
        *((f"destinations[{i}]", each) for i, each in enumerate(route.destinations)),
        *((f"mirrors[{i}].destination", each.destination) for i, each in enumerate(route.mirrors)),
    ]
    for name, destination in named:
        target = bound.targets.get(destination.ref)
        for site in [one for one, _ in sites] or ([_NOWHERE] if target is None else []):
            found = resolving.resolve(destination, target, site)
            if isinstance(found, resolving.Unresolved):
                yield _Problem(found.reason, f"{field}.{name}: {found.message}")


_NOWHERE = catalogue.Site(port=0)


def _resolved(problems: list[_Problem]) -> Conditions:
    if not problems:
        return (objects.Condition(type=RESOLVED, status=True, reason=RESOLVED),)
    text = "; ".join(dict.fromkeys(problem.message for problem in problems))
    reason = problems[0].reason
    return (objects.Condition(type=RESOLVED, status=False, reason=reason, message=text),)


def _no_endpoints(barren: tuple[Labelled, ...]) -> Conditions:
    if not barren:
        return ()
    text = "; ".join(
        f"no endpoint of service {service} has the labels "
        + ",".join(f"{name}={value}" for name, value in labels)
        for service, labels in barren
    )
    return (
        objects.Condition(
            type=NO_ENDPOINTS, status=True, reason="LabelsSelectNothing", message=text
        ),
    )


def _shadowed(shadows: Shadows) -> Conditions:
    return _conflicted(
        tuple(
            f"{shadow.field} (match {shadow.match}) is never reached at {place}: "
            f"{shadow.winner} takes these requests first"
            for place, shadow in sorted(shadows, key=lambda one: (one[1], one[0]))
        ),
        reason="Shadowed",
    )


def _conflicted(messages: tuple[str, ...], *, reason: str = "Lost") -> Conditions:
    if not messages:
        return ()
    text = "; ".join(messages)
    return (objects.Condition(type=CONFLICTED, status=True, reason=reason, message=text),)


def policy_conditions(
    policy: parsed.Policy,
    exists: bool,  # noqa: FBT001  a memo's functions take positions
    unknown: tuple[int, ...],
    winner: keys.ObjectKey | None,
    barren: tuple[Labelled, ...],
) -> Conditions:
    """The conditions of a DestinationPolicy.

    Args:
        policy: The policy.
        exists: True when its service does.
        unknown: Ports that it speaks of and that the service does not have.
        winner: The policy that counts in its place, or None.
        barren: Its service and labels, when these select no endpoint.
    """
    problems = []
    if not exists:
        field = "externalService" if policy.target.external else "service"
        text = f"spec.{field}: {policy.target} does not exist"
        problems.append(_Problem("BackendNotFound", text))
    problems += [
        _Problem("PortNotFound", f"spec.ports: {policy.target} has no port {port}")
        for port in unknown
    ]
    lost = (f"{winner} already says how to talk to the same endpoints",) if winner else ()
    return _sorted(_resolved(problems), _no_endpoints(barren), _conflicted(lost))


def gateway_conditions(gateway: parsed.Gateway, others: tuple[parsed.Gateway, ...]) -> Conditions:
    """The conditions of a MeshGateway, among all there are."""
    lost = []
    for other in others:
        if other is not gateway and _may_share_proxies(gateway, other):
            lost += [
                f"listener {one.listener} {one.text}"
                for one in gateways.refused((gateway, other))
                if one.loser == gateway.key
            ]
    return _sorted(_resolved([]), _conflicted(tuple(dict.fromkeys(lost))))


def _may_share_proxies(one: parsed.Gateway, other: parsed.Gateway) -> bool:
    """True when every proxy that serves one of them serves both."""
    return one.key.namespace == other.key.namespace and (
        keys.selects(one.selector, other.selector) or keys.selects(other.selector, one.selector)
    )


def _sorted(*conditions: Conditions) -> Conditions:
    return tuple(sorted((one for some in conditions for one in some), key=_type))


def _type(condition: objects.Condition) -> str:
    return condition.type
