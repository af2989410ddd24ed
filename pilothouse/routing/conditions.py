# SPDX-License-Identifier: Apache-2.0
"""What routing finds out by looking at all objects: dangling references, conflicts, empty sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import (
    catalogue,
    clusters,
    endpoints,
    gateway_ports,
    parsed,
    parsing,
    routes,
    rule_conditions,
    rules,
    told,
)
from pilothouse.routing import memo as memory


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that conditions are made of, but endpoints."""

    objects: parsing.Objects
    directory: clusters.Directory
    bound: Mapping[keys.ObjectKey, rules.Bound]
    gateways: Mapping[keys.ObjectKey, parsed.Gateway]
    producers: Mapping[str, rules.ByRef]
    shadows: told.Shadows


def all_conditions(
    memo: memory.Memo, findings: Findings, barren: frozenset[told.Labelled]
) -> Mapping[keys.ObjectKey, told.Conditions]:
    """The conditions of every object of the kinds that are about routing, in key order."""
    found: dict[keys.ObjectKey, told.Conditions] = {**_of_rules(memo, findings, barren)}
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
        found[external.object] = told.conflicted(lost)
    losses = memo.leaf(gateway_ports.losses, "", findings.objects.gateways)
    for gateway in findings.objects.gateways:
        lost = losses.get(gateway.key, ())
        found[gateway.key] = told.in_order(told.resolved([]), told.conflicted(lost))
    return {key: found[key] for key in sorted(found)}


def _of_rules(
    memo: memory.Memo, findings: Findings, barren: frozenset[told.Labelled]
) -> Mapping[keys.ObjectKey, told.Conditions]:
    """The conditions of RouteRules."""
    directory = findings.directory
    closed = memo.leaf(_closed, "", directory.claims, findings.producers)
    parents = memo.mapped(
        _parents, "", findings.bound, findings.gateways, directory.mesh, directory.claims, closed
    )
    # Nearly all rules have nothing else that is told of them.
    plain = memo.joined(_plain, "", findings.bound, parents)
    shadows: dict[keys.ObjectKey, list[tuple[str, routes.Shadow]]] = {}
    for one in findings.shadows:
        shadows.setdefault(one[1].loser, []).append(one)
    empty: dict[keys.ObjectKey, tuple[told.Labelled, ...]] = {}
    if barren:
        for key, some in memo.mapped(_labelled, "", findings.objects.rules).items():
            if not barren.isdisjoint(some):
                empty[key] = tuple([one for one in some if one in barren])
    more = {
        key: memo.leaf(
            rule_conditions.conditions,
            key,
            findings.bound[key],
            parents[key],
            empty.get(key, ()),
            tuple(shadows.get(key, ())),
        )
        for key in shadows.keys() | empty.keys()
        if key in findings.bound
    }
    return {**plain, **more}


def _plain(of: tuple[rules.Bound, tuple[rule_conditions.ParentFact, ...]]) -> told.Conditions:
    return rule_conditions.conditions(*of, (), ())


def _closed(
    claims: catalogue.Claims, producers: Mapping[str, rules.ByRef]
) -> frozenset[parsed.Ref]:
    """The external services that nothing leads to, though requests may leave in one way only."""
    found = set()
    for key, ports in claims.ports.items():
        parents = {http.site.parent for http in ports if http.site.egress_only}
        if parents:
            ref = parsed.Ref(external=True, key=key)
            attached = producers.get(key.namespace, {}).get(ref, ())
            if not parents <= {origin for one in attached for origin in one.bound.rule.origins}:
                found.add(ref)
    return frozenset(found)


def _parents(
    bound: rules.Bound,
    gateways: Mapping[keys.ObjectKey, parsed.Gateway],
    mesh: catalogue.Catalogue,
    claims: catalogue.Claims,
    closed: frozenset[parsed.Ref],
) -> tuple[rule_conditions.ParentFact, ...]:
    """What the parents of a rule lead to; ``closed`` are external services without an exit."""

    def fact(parent: parsed.Parent) -> rule_conditions.ParentFact:
        if parent.gateway is not None:
            gateway = gateways.get(parent.gateway)
            return rule_conditions.ParentFact(exists=gateway is not None, gateway=gateway)
        ref = parent.ref
        assert ref is not None  # noqa: S101  exactly one of the two is set
        if not ref.external:
            entry = mesh.entries.get(ref.key)
            ports = (*entry.ports, *entry.streams) if entry else ()
            return rule_conditions.ParentFact(exists=entry is not None, ports=ports)
        return rule_conditions.ParentFact(
            exists=ref.key in claims.ports,
            ports=claims.ports.get(ref.key, ()),
            has_exit=ref not in closed,
        )

    return tuple(map(fact, bound.rule.parents))


def _known_ports(directory: clusters.Directory, target: parsed.Ref) -> frozenset[int] | None:
    """The ports of a service or external service; None when it does not exist."""
    if target.external:
        external = directory.claims.externals.get(target.key)
        return None if external is None else frozenset(port.number for port in external.ports)
    entry = directory.mesh.entries.get(target.key)
    return None if entry is None else frozenset(port.number for port in entry.service.ports)


def _labelled(rule: parsed.Rule) -> tuple[told.Labelled, ...]:
    found = {
        (destination.ref.key, destination.labels)
        for route in rule.every
        for destination in route.reached
        if destination.labels and not destination.ref.external
    }
    return tuple(sorted(found))


Wanted = tuple[tuple[keys.ServiceKey, tuple[keys.Labels, ...]], ...]
"""Services with the label sets that objects name, sorted."""


def wanted(
    memo: memory.Memo,
    rules: Mapping[keys.ObjectKey, parsed.Rule],
    policies: tuple[parsed.Policy, ...],
) -> Wanted:
    """All label sets that rules and policies name."""
    by_service: dict[keys.ServiceKey, set[keys.Labels]] = {}
    for some in memo.mapped(_labelled, "", rules).values():
        for service, labels in some:
            by_service.setdefault(service, set()).add(labels)
    for policy in policies:
        if policy.labels:
            by_service.setdefault(policy.target.key, set()).add(policy.labels)
    return tuple((service, tuple(sorted(by_service[service]))) for service in sorted(by_service))


def barren(
    memo: memory.Memo, wanted: Wanted, known: endpoints.Endpoints
) -> frozenset[told.Labelled]:
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
) -> tuple[told.Labelled, ...]:
    return tuple(
        (service, labels)
        for labels in wanted
        if not any(keys.selects(labels, one.labels) for one in candidates)
    )


def policy_conditions(
    policy: parsed.Policy,
    exists: bool,  # noqa: FBT001  a memo's functions take positions
    unknown: tuple[int, ...],
    winner: keys.ObjectKey | None,
    barren: tuple[told.Labelled, ...],
) -> told.Conditions:
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
        problems.append(told.Problem("BackendNotFound", text))
    problems += [
        told.Problem("PortNotFound", f"spec.ports: {policy.target} has no port {port}")
        for port in unknown
    ]
    lost = (f"{winner} already says how to talk to the same endpoints",) if winner else ()
    return told.in_order(told.resolved(problems), told.no_endpoints(barren), told.conflicted(lost))
