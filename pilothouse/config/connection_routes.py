# SPDX-License-Identifier: Apache-2.0
"""The rules of the routes for connections: TLS, TCP and UDP."""

from __future__ import annotations

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.config import checks, clients, route_targets, syntax


def check(
    spec: route_rule_pb2.RouteRuleSpec, parents: clients.Parents, names: dict[object, str]
) -> checks.Found:
    """Every rule that such routes break, in their order.

    Args:
        spec: The rule.
        parents: Its parents.
        names: Names of its other routes, and where they are.
    """
    for index, tls in enumerate(spec.tls):
        where = f"spec.tls[{index}]"
        yield from _name(where, tls.name, names)
        for position, one in enumerate(tls.matches):
            yield from _tls_match(f"{where}.matches[{position}]", one, parents)
        yield from _route(where, tls, parents)
    for index, tcp in enumerate(spec.tcp):
        where = f"spec.tcp[{index}]"
        yield from _name(where, tcp.name, names)
        for position, match in enumerate(tcp.matches):
            yield from _networks(f"{where}.matches[{position}]", match)
            yield from clients.check(f"{where}.matches[{position}]", match, parents)
        yield from _route(where, tcp, parents)
    for index, udp in enumerate(spec.udp):
        where = f"spec.udp[{index}]"
        yield from _name(where, udp.name, names)
        yield from _udp(where, udp, parents)


def _name(where: str, name: str, names: dict[object, str]) -> checks.Found:
    if name:
        yield from checks.unique(names, f"{where}.name", name, what="name")


def _tls_match(
    where: str, match: route_rule_pb2.TlsMatch, parents: clients.Parents
) -> checks.Found:
    yield from checks.hosts(f"{where}.serverNames", match.server_names, _server_name)
    yield from _networks(where, match)
    yield from clients.check(where, match, parents)


def _server_name(value: str) -> str | None:
    if value == "*":
        return "must be a name or `*.` before one; leave `serverNames` out to take all"
    return syntax.host_pattern(value)


def _networks(where: str, match: route_rule_pb2.TlsMatch | route_rule_pb2.TcpMatch) -> checks.Found:
    for index, network in enumerate(match.destination_cidrs):
        yield from checks.broken(f"{where}.destinationCidrs[{index}]", syntax.network(network))
    for index, network in enumerate(match.source_cidrs):
        yield from checks.broken(f"{where}.sourceCidrs[{index}]", syntax.network(network))


def _route(
    where: str,
    route: route_rule_pb2.TlsRoute | route_rule_pb2.TcpRoute,
    parents: clients.Parents,
) -> checks.Found:
    if parents.gateways and not route.destinations:
        yield from checks.broken(f"{where}.destinations", "is required under a gateway parent")
    for index, target in enumerate(route.destinations):
        at = f"{where}.destinations[{index}]"
        yield from route_targets.destination(at, target)
        yield from route_targets.without(at, target, *route_targets.HEADERS, what="connections")
    yield from route_targets.weights(f"{where}.destinations", route.destinations)
    if route.HasField("idle_timeout"):
        yield from checks.duration(f"{where}.idleTimeout", route.idle_timeout)


def _udp(where: str, route: route_rule_pb2.UdpRoute, parents: clients.Parents) -> checks.Found:
    if parents.gateways and not route.destinations:
        yield from checks.broken(f"{where}.destinations", "is required under a gateway parent")
    if len(route.destinations) > 1:
        many = f"a session goes to one place; must be one, is {len(route.destinations)}"
        yield from checks.broken(f"{where}.destinations", many)
    for index, target in enumerate(route.destinations):
        at = f"{where}.destinations[{index}]"
        yield from route_targets.destination(at, target)
        yield from route_targets.without(at, target, "weight", *route_targets.HEADERS, what="UDP")
    if route.HasField("idle_timeout"):
        yield from checks.duration(f"{where}.idleTimeout", route.idle_timeout, positive=True)
