# SPDX-License-Identifier: Apache-2.0
"""Rules with their destinations looked up, arranged by whose requests they route."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import memo as memory
from pilothouse.routing import parsed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """A host that nothing speaks of but a service of type ExternalName."""

    key: keys.ServiceKey
    """Of that service."""
    ports: tuple[registry.Port, ...]
    """At least one, sorted by number."""


Target = registry.Service | Outside | parsed.External | None
"""What a destination names; None when it does not exist."""


class Labelled(NamedTuple):
    """A port of a service, and the labels of the endpoints that count."""

    port: int
    labels: keys.Labels
    udp: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A rule, and the targets of all its destinations."""

    rule: parsed.Rule
    targets: Mapping[parsed.Ref, Target]
    uses: tuple[tuple[keys.ServiceKey, Labelled], ...] = ()
    """Services with the ports and labels that it may send to, wherever it applies; sorted."""
    sources: tuple[parsed.Source, ...] = ()
    """The tests of clients in its matches, each once."""


class Attached(NamedTuple):
    """A rule at one of its parents."""

    port: int | None
    """Only this port of a service; None for all."""
    listener: str
    """Only this listener of a gateway; empty for all."""
    bound: Bound


ByRef = Mapping[parsed.Ref, tuple[Attached, ...]]
AtGateway = Mapping[keys.ObjectKey, tuple[Attached, ...]]
"""What is attached to a gateway, by rule; in key order."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attachments:
    """Rules by parent; the rules of each parent are in key order."""

    producers: Mapping[str, ByRef]
    """By the parent's namespace. Rules there speak to all clients."""
    consumers: Mapping[str, ByRef]
    """By the rule's namespace. Rules outside their parent's namespace speak to the clients in their
    own only.
    """
    gateways: Mapping[keys.ObjectKey, AtGateway]
    """Rules that the gateway admits."""


def bind(
    memo: memory.Memo,
    rules: Mapping[keys.ObjectKey, parsed.Rule],
    services: Mapping[keys.ServiceKey, Target],
    externals: Mapping[keys.ServiceKey, parsed.External],
) -> Mapping[keys.ObjectKey, Bound]:
    """Look up the destinations of all rules, which are in key order; so is the answer.

    Args:
        memo: Remembers them.
        rules: All rules.
        services: What there is by each name of a service.
        externals: The external services.
    """
    targets = memo.mapped(_targets, "", rules, services, externals)
    return memo.joined(_bind, "", rules, targets)


Targets = tuple[tuple[parsed.Ref, Target], ...]


def _targets(
    rule: parsed.Rule,
    services: Mapping[keys.ServiceKey, Target],
    externals: Mapping[keys.ServiceKey, parsed.External],
) -> Targets:
    refs = {destination.ref for route in rule.every for destination in route.reached}
    return tuple(
        (ref, externals.get(ref.key) if ref.external else services.get(ref.key))
        for ref in sorted(refs)
    )


def _bind(found: tuple[parsed.Rule, Targets]) -> Bound:
    rule, targets = found
    by_ref = dict(targets)
    uses = {
        (target.key, Labelled(port, destination.labels, route.transport == "udp"))
        for route in rule.every
        for destination in route.reached
        if isinstance(target := by_ref[destination.ref], registry.Service)
        for port in possible_ports(destination, target, route.transport)
    }
    return Bound(rule=rule, targets=by_ref, uses=tuple(sorted(uses)), sources=_sources(rule))


def _sources(rule: parsed.Rule) -> tuple[parsed.Source, ...]:
    found = (match.clients.source for route in rule.every for match in route.matches)
    return tuple(dict.fromkeys(source for source in found if source is not None))


def restricted(rule: parsed.Rule, taken: Callable[[parsed.Clients], bool]) -> parsed.Rule:
    """The rule with those matches only whose clients are taken, and the routes that have some."""
    return dataclasses.replace(
        rule,
        routes=tuple(_restricted(rule.routes, taken)),
        connections=tuple(_restricted(rule.connections, taken)),
    )


R = TypeVar("R", parsed.RuleRoute, parsed.ConnectionRoute)


def _restricted(routes: tuple[R, ...], taken: Callable[[parsed.Clients], bool]) -> Iterator[R]:
    for route in routes:
        matches = tuple([match for match in route.matches if taken(match.clients)])
        if len(matches) == len(route.matches):
            yield route
        elif matches:
            yield dataclasses.replace(route, matches=matches)


def at(bound: Bound, place: keys.ObjectKey) -> Bound:
    """A rule as it is at one of its parents: without the matches for others.

    Args:
        bound: The rule.
        place: A gateway, or `parsed.MESH`. No client at a gateway is a proxy of the mesh, so a test
            of such takes none there.
    """

    def taken(clients: parsed.Clients) -> bool:
        elsewhere = clients.gateways and place not in clients.gateways
        return not elsewhere and (clients.source is None or place == parsed.MESH)

    rule = restricted(bound.rule, taken)
    if rule == bound.rule:
        return bound
    return dataclasses.replace(bound, rule=rule, sources=_sources(rule))


def together(one: Bound, other: Bound) -> Bound:
    """A rule where it is by two of its parents: with the HTTP matches for either."""
    if one.rule.routes == other.rule.routes:
        return one
    found: dict[int, parsed.RuleRoute] = {}
    for route in (*one.rule.routes, *other.rule.routes):
        known = found.get(route.position, route)
        matches = {match.position: match for match in (*known.matches, *route.matches)}
        ordered = tuple(matches[position] for position in sorted(matches))
        found[route.position] = dataclasses.replace(route, matches=ordered)
    routes = tuple(found[position] for position in sorted(found))
    return dataclasses.replace(one, rule=dataclasses.replace(one.rule, routes=routes))


def routable_ports(
    service: registry.Service, transport: parsed.Transport = "http"
) -> tuple[registry.Port, ...]:
    """The ports that a destination may name; a rule that does says itself what is spoken there."""
    udp = transport == "udp"
    return tuple(
        port for port in service.ports if (port.protocol == registry.AppProtocol.UDP) == udp
    )


def possible_ports(
    destination: parsed.Destination, target: registry.Service, transport: parsed.Transport
) -> tuple[int, ...]:
    """The ports of a service that a destination may mean, wherever requests are routed; sorted."""
    if target.external_name is not None:
        return ()
    numbers = {port.number for port in routable_ports(target, transport)}
    return tuple(sorted(numbers if destination.port is None else numbers & {destination.port}))


def attach(
    memo: memory.Memo,
    bound: Mapping[keys.ObjectKey, Bound],
    gateways: Mapping[keys.ObjectKey, parsed.Gateway],
) -> Attachments:
    """Arrange rules, which are in key order, by parent."""
    at_services = memo.turned("services", memo.mapped(_at_services, "", bound))
    at_gateways = memo.turned("gateways", memo.mapped(_at_gateways, "", bound, gateways))
    by_ref = memo.mapped(_in_order, "", at_services)
    return Attachments(
        producers=_by_namespace(memo, by_ref, produced=True),
        consumers=_by_namespace(memo, by_ref, produced=False),
        gateways={key: at_gateways[key] for key in sorted(at_gateways)},
    )


class _Place(NamedTuple):
    """A parent, as rules of one namespace speak of it."""

    namespace: str
    ref: parsed.Ref


def _at_services(whole: Bound) -> tuple[tuple[_Place, Attached], ...]:
    here = at(whole, parsed.MESH)
    namespace = whole.rule.key.namespace
    return tuple(
        (_Place(namespace, parent.ref), Attached(parent.port, parent.listener, here))
        for parent in whole.rule.parents
        if parent.ref is not None
    )


def _at_gateways(
    whole: Bound, gateways: Mapping[keys.ObjectKey, parsed.Gateway]
) -> tuple[tuple[keys.ObjectKey, Attached], ...]:
    found = []
    for parent in whole.rule.parents:
        gateway = None if parent.gateway is None else gateways.get(parent.gateway)
        if gateway is not None and gateway.admits(whole.rule.key.namespace):
            here = at(whole, gateway.key)
            found.append((gateway.key, Attached(parent.port, parent.listener, here)))
    return tuple(found)


def _in_order(attached: Mapping[keys.ObjectKey, tuple[Attached, ...]]) -> tuple[Attached, ...]:
    return tuple([one for some in attached.values() for one in some])


def _by_namespace(
    memo: memory.Memo,
    places: Mapping[_Place, tuple[Attached, ...]],
    *,
    produced: bool,
) -> Mapping[str, ByRef]:
    found: dict[str, dict[parsed.Ref, tuple[Attached, ...]]] = {}
    for place in sorted(places):
        if (place.ref.key.namespace == place.namespace) == produced:
            found.setdefault(place.namespace, {})[place.ref] = places[place]
    return memo.mapped(_same, produced, found)


def _same(by_ref: ByRef) -> ByRef:
    return by_ref


def at_port(attached: tuple[Attached, ...], port: int) -> tuple[Bound, ...]:
    """The rules that speak of this port, each once."""
    found = {one.bound.rule.key: one.bound for one in attached if one.port in (None, port)}
    return tuple(found.values())
