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

Target = registry.Service | parsed.External | None
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attachments:
    """Rules by parent; the rules of each parent are in key order."""

    producers: Mapping[str, ByRef]
    """By the parent's namespace. Rules there speak to all clients."""
    consumers: Mapping[str, ByRef]
    """By the rule's namespace. Rules outside their parent's namespace speak to the clients in their
    own only.
    """
    gateways: Mapping[keys.ObjectKey, tuple[Attached, ...]]
    """Rules that the gateway admits."""


def bind(
    memo: memory.Memo,
    rules: tuple[parsed.Rule, ...],
    services: Mapping[keys.ServiceKey, registry.Service],
    externals: Mapping[keys.ServiceKey, parsed.External],
) -> Mapping[keys.ObjectKey, Bound]:
    """Look up the destinations of all rules; the answer is in key order."""
    bound: dict[keys.ObjectKey, Bound] = {}
    for rule in rules:
        refs = {destination.ref for route in rule.every for destination in route.reached}
        targets: list[tuple[parsed.Ref, Target]] = [
            (ref, externals.get(ref.key) if ref.external else services.get(ref.key))
            for ref in sorted(refs)
        ]
        bound[rule.key] = memo.leaf(_bind, rule.key, rule, tuple(targets))
    return bound


def _bind(rule: parsed.Rule, targets: tuple[tuple[parsed.Ref, Target], ...]) -> Bound:
    by_ref = dict(targets)
    uses = {
        (destination.ref.key, Labelled(port, destination.labels, route.transport == "udp"))
        for route in rule.every
        for destination in route.reached
        for port in possible_ports(destination, by_ref[destination.ref], route.transport)
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
    destination: parsed.Destination, target: Target, transport: parsed.Transport
) -> tuple[int, ...]:
    """The ports of a service that a destination may mean, wherever requests are routed; sorted."""
    if not isinstance(target, registry.Service) or target.external_name is not None:
        return ()
    numbers = {port.number for port in routable_ports(target, transport)}
    return tuple(sorted(numbers if destination.port is None else numbers & {destination.port}))


def attach(
    memo: memory.Memo,
    bound: Mapping[keys.ObjectKey, Bound],
    gateways: Mapping[keys.ObjectKey, parsed.Gateway],
) -> Attachments:
    """Arrange rules by parent."""
    producers: dict[str, dict[parsed.Ref, list[Attached]]] = {}
    consumers: dict[str, dict[parsed.Ref, list[Attached]]] = {}
    at_gateways: dict[keys.ObjectKey, list[Attached]] = {}
    for key, whole in bound.items():
        for parent in whole.rule.parents:
            rule = memo.leaf(at, (key, parent.gateway), whole, parent.gateway or parsed.MESH)
            attached = Attached(parent.port, parent.listener, rule)
            if parent.gateway is not None:
                gateway = gateways.get(parent.gateway)
                if gateway is not None and gateway.admits(key.namespace):
                    at_gateways.setdefault(parent.gateway, []).append(attached)
            elif parent.ref is not None:
                produced = parent.ref.key.namespace == key.namespace
                side = producers if produced else consumers
                side.setdefault(key.namespace, {}).setdefault(parent.ref, []).append(attached)
    return Attachments(
        producers=_frozen(memo, "producers", producers),
        consumers=_frozen(memo, "consumers", consumers),
        gateways={key: tuple(items) for key, items in sorted(at_gateways.items())},
    )


def _frozen(
    memo: memory.Memo, side: str, found: dict[str, dict[parsed.Ref, list[Attached]]]
) -> Mapping[str, ByRef]:
    return {
        namespace: memo.leaf(
            _by_ref,
            (side, namespace),
            tuple((ref, tuple(items)) for ref, items in sorted(by_ref.items())),
        )
        for namespace, by_ref in sorted(found.items())
    }


def _by_ref(items: tuple[tuple[parsed.Ref, tuple[Attached, ...]], ...]) -> ByRef:
    return dict(items)


def at_port(attached: tuple[Attached, ...], port: int) -> tuple[Bound, ...]:
    """The rules that speak of this port, each once."""
    found = {one.bound.rule.key: one.bound for one in attached if one.port in (None, port)}
    return tuple(found.values())
