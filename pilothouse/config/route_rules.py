# SPDX-License-Identifier: Apache-2.0
"""The rules of a RouteRule that it can break by itself."""

from __future__ import annotations

import re
from typing import Final

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.config import (
    checks,
    clients,
    connection_routes,
    grpc_routes,
    http_actions,
    http_matches,
    route_targets,
    syntax,
    treatments,
)

MAX_PRIORITY = 1_000
_STAT_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def check(spec: route_rule_pb2.RouteRuleSpec, namespace: str) -> checks.Found:
    """Every rule that the spec of a rule in some namespace breaks, in the order of its fields."""
    if not spec.parents:
        yield from checks.broken("spec.parents", "at least one is required")
    for index, parent in enumerate(spec.parents):
        yield from _parent(f"spec.parents[{index}]", parent)
    parents = clients.Parents.of(spec, namespace)
    if spec.hosts and not parents.gateways:
        yield from checks.broken("spec.hosts", "only a rule with a gateway parent has hosts")
    yield from checks.hosts("spec.hosts", spec.hosts, syntax.host_pattern)
    if abs(spec.priority) > MAX_PRIORITY:
        limits = f"from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        yield from checks.broken("spec.priority", f"must be {limits}, is {spec.priority}")
    if not (spec.http or spec.grpc or spec.tls or spec.tcp or spec.udp):
        missing = "at least one route is required here or in `grpc`, `tls`, `tcp` or `udp`"
        yield from checks.broken("spec.http", missing)
    names: dict[object, str] = {}
    yield from _routes(spec, parents, names)
    yield from connection_routes.check(spec, parents, names)


def _routes(
    spec: route_rule_pb2.RouteRuleSpec, parents: clients.Parents, names: dict[object, str]
) -> checks.Found:
    at_gateway = bool(parents.gateways)
    for index, route in enumerate(spec.http):
        where = f"spec.http[{index}]"
        if route.name:
            yield from checks.unique(names, f"{where}.name", route.name, what="name")
        for position, match in enumerate(route.matches):
            yield from http_matches.check(f"{where}.matches[{position}]", match, parents)
        yield from _route(where, route, at_gateway=at_gateway)
    for index, call in enumerate(spec.grpc):
        where = f"spec.grpc[{index}]"
        if call.name:
            yield from checks.unique(names, f"{where}.name", call.name, what="name")
        for position, test in enumerate(call.matches):
            yield from http_matches.check_grpc(f"{where}.matches[{position}]", test, parents)
        if at_gateway and not call.destinations:
            yield from checks.broken(f"{where}.destinations", "is required under a gateway parent")
        yield from _route(where, grpc_routes.as_http(call), at_gateway=False)


def _parent(where: str, parent: route_rule_pb2.ParentReference) -> checks.Found:
    match parent.WhichOneof("parent"):
        case "service":
            yield from checks.required(f"{where}.service", parent.service, syntax.label)
        case "gateway":
            yield from checks.required(f"{where}.gateway", parent.gateway, syntax.subdomain)
        case "external_service":
            name = parent.external_service
            yield from checks.required(f"{where}.externalService", name, syntax.subdomain)
        case None:
            choices = "`service`, `gateway` or `externalService`"
            yield from checks.broken(where, f"one of {choices} is required")
    yield from checks.optional(f"{where}.namespace", parent.namespace, syntax.label)
    is_gateway = parent.WhichOneof("parent") == "gateway"
    if parent.HasField("port"):
        if is_gateway:
            yield from checks.broken(f"{where}.port", "a gateway has listeners; use `listener`")
        yield from checks.broken(f"{where}.port", syntax.port(parent.port))
    if parent.listener:
        if not is_gateway:
            yield from checks.broken(f"{where}.listener", "only a gateway has listeners")
        yield from checks.broken(f"{where}.listener", syntax.label(parent.listener))


def _route(where: str, route: route_rule_pb2.HttpRoute, *, at_gateway: bool) -> checks.Found:
    for index, destination in enumerate(route.destinations):
        yield from route_targets.destination(f"{where}.destinations[{index}]", destination)
    yield from route_targets.weights(f"{where}.destinations", route.destinations)
    yield from _fate(where, route, at_gateway=at_gateway)
    for index, mirror in enumerate(route.mirrors):
        yield from _mirror(f"{where}.mirrors[{index}]", route, mirror)
    if route.HasField("timeout"):
        yield from checks.duration(f"{where}.timeout", route.timeout)
    if route.HasField("retry"):
        yield from http_actions.retry(f"{where}.retry", route)
    if route.HasField("rewrite"):
        yield from http_actions.rewrite(f"{where}.rewrite", route)
    yield from treatments.check(where, route)
    yield from checks.optional(f"{where}.statPrefix", route.stat_prefix, _stat_prefix)
    if route.upgrades.connect and not at_gateway:
        only = "is for rules with a gateway parent; sidecars connect to TCP ports anyway"
        yield from checks.broken(f"{where}.upgrades.connect", only)
    if route.HasField("upgrades") and treatments.answers(route):
        yield from checks.broken(f"{where}.upgrades", "is for requests that are sent on")


def _fate(where: str, route: route_rule_pb2.HttpRoute, *, at_gateway: bool) -> checks.Found:
    """Where requests go, or how they are answered."""
    given = [f"`{name}`" for name, there in _fates(route).items() if there]
    if len(given) > 1:
        both = f"{' and '.join(given)} exclude each other; set one of them"
        yield from checks.broken(where, both)
    elif not given and at_gateway:
        # Elsewhere the parent itself is meant. A gateway is no place to end up in.
        either = "under a gateway parent `destinations`, `redirect` or `directResponse` is required"
        yield from checks.broken(where, either)
    if route.HasField("redirect"):
        yield from http_actions.redirect(f"{where}.redirect", route)
    if route.HasField("direct_response"):
        yield from http_actions.direct_response(f"{where}.directResponse", route.direct_response)


def _stat_prefix(value: str) -> str | None:
    if _STAT_PREFIX.fullmatch(value):
        return None
    return f"must be 1 to 64 letters, digits, - and _, is {value!r}"


def _fates(route: route_rule_pb2.HttpRoute) -> dict[str, bool]:
    return {
        "destinations": bool(route.destinations),
        "redirect": route.HasField("redirect"),
        "directResponse": route.HasField("direct_response"),
    }


def _mirror(
    where: str, route: route_rule_pb2.HttpRoute, mirror: route_rule_pb2.HttpMirror
) -> checks.Found:
    if treatments.answers(route):
        yield from checks.broken(where, "is for requests that are sent on")
    at = f"{where}.destination"
    yield from route_targets.destination(at, mirror.destination)
    fields = ("weight", *route_targets.HEADERS)
    yield from route_targets.without(at, mirror.destination, *fields, what="a mirror")
    yield from checks.percent(f"{where}.percent", mirror.percent)
