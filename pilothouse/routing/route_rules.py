# SPDX-License-Identifier: Apache-2.0
"""Reads RouteRules: their parents, their routes, and whose requests these take."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, cast

from pilothouse.api.config.v1alpha1 import matches_pb2, route_rule_pb2
from pilothouse.config import grpc_routes, objects
from pilothouse.model import keys
from pilothouse.routing import http_actions, http_matches, names, parsed, plan, readers, treatments

_DEFAULT_RETRY = plan.Retry()
_IDLE_TIMEOUT_MS = 3_600_000
_UDP_IDLE_TIMEOUT_MS = 60_000

_Match = (
    matches_pb2.HttpMatch
    | matches_pb2.GrpcMatch
    | route_rule_pb2.TlsMatch
    | route_rule_pb2.TcpMatch
)
_Connection = route_rule_pb2.TlsRoute | route_rule_pb2.TcpRoute | route_rule_pb2.UdpRoute
M = TypeVar("M", route_rule_pb2.TlsMatch, route_rule_pb2.TcpMatch)


def rule(config: objects.Config, default_retry: plan.Retry | None = _DEFAULT_RETRY) -> parsed.Rule:
    """Read a RouteRule; ``default_retry`` is of routes that do not say when they retry."""
    spec = cast("route_rule_pb2.RouteRuleSpec", config.spec)
    return parsed.Rule(
        key=config.key,
        origins=readers.origins(config.meta),
        created=config.meta.created,
        priority=spec.priority,
        parents=tuple(_parent(parent, namespace=config.key.namespace) for parent in spec.parents),
        hosts=tuple(sorted({host.lower() for host in spec.hosts})),
        routes=tuple(
            _route(
                route,
                rule=config.key,
                position=position,
                grpc=position - len(spec.http),
                default_retry=default_retry,
            )
            for position, route in enumerate(
                (*spec.http, *(grpc_routes.as_http(route) for route in spec.grpc))
            )
        ),
        connections=tuple(_connections(spec, config.key)),
    )


def _parent(parent: route_rule_pb2.ParentReference, *, namespace: str) -> parsed.Parent:
    space = parent.namespace or namespace
    port = parent.port if parent.HasField("port") else None
    if parent.WhichOneof("parent") == "gateway":
        key = keys.ObjectKey("MeshGateway", space, parent.gateway)
        return parsed.Parent(gateway=key, port=port, listener=parent.listener)
    external = parent.WhichOneof("parent") == "external_service"
    name = parent.external_service if external else parent.service
    return parsed.Parent(ref=parsed.Ref(external, keys.ServiceKey(space, name)), port=port)


def _route(
    route: route_rule_pb2.HttpRoute,
    *,
    rule: keys.ObjectKey,
    position: int,
    grpc: int,
    default_retry: plan.Retry | None,
) -> parsed.RuleRoute:
    """Read a route; ``grpc`` is its position among gRPC routes, negative for an HTTP route."""
    return parsed.RuleRoute(
        position=position,
        field=f"spec.http[{position}]" if grpc < 0 else f"spec.grpc[{grpc}]",
        name=names.route(
            rule,
            position=position if grpc < 0 else grpc,
            name=route.name,
            family="http" if grpc < 0 else "grpc",
        ),
        matches=tuple(
            http_matches.match(match, position, _clients(match, rule.namespace), grpc=grpc >= 0)
            for position, match in enumerate(route.matches or (matches_pb2.HttpMatch(),))
        ),
        destinations=_destinations(route.destinations, rule),
        mirrors=tuple(
            parsed.Mirror(
                destination=_destination(mirror.destination, namespace=rule.namespace),
                millionths=readers.millionths(mirror),
            )
            for mirror in route.mirrors
        ),
        answer=http_actions.answer(route),
        timeout_ms=readers.milliseconds(route.timeout),
        retry=http_actions.retry(route.retry) if route.HasField("retry") else default_retry,
        rewrite=http_actions.rewrite(route),
        treatment=treatments.treatment(route),
        websocket=route.upgrades.websocket if route.upgrades.HasField("websocket") else True,
        connect=route.upgrades.connect,
        stat_prefix=route.stat_prefix,
        logged=route.access_log if route.HasField("access_log") else True,
    )


def _destinations(
    destinations: Iterable[route_rule_pb2.Destination], rule: keys.ObjectKey
) -> tuple[parsed.Destination, ...]:
    return tuple(_destination(one, namespace=rule.namespace) for one in destinations)


def _destination(destination: route_rule_pb2.Destination, *, namespace: str) -> parsed.Destination:
    external = destination.WhichOneof("target") == "external_service"
    name = destination.external_service if external else destination.service
    key = keys.ServiceKey(destination.namespace or namespace, name)
    return parsed.Destination(
        ref=parsed.Ref(external, key),
        port=destination.port if destination.HasField("port") else None,
        labels=keys.labels(dict(destination.labels)),
        weight=destination.weight if destination.HasField("weight") else 1,
        request_headers=treatments.headers(destination.request_headers),
        response_headers=treatments.headers(destination.response_headers),
    )


def _clients(match: _Match, namespace: str) -> parsed.Clients:
    """Whose requests a match takes."""
    source = None
    if match.HasField("source"):
        wanted = match.source
        source = parsed.Source(
            service=keys.ServiceKey(wanted.namespace or namespace, wanted.service)
            if wanted.service
            else None,
            labels=keys.labels(dict(wanted.labels)),
            namespace=wanted.namespace,
        )
    if source is None and not match.gateways:
        return parsed.EVERYBODY
    gateways = {_gateway(name, namespace) for name in match.gateways}
    return parsed.Clients(source, tuple(sorted(gateways)))


def _gateway(name: str, namespace: str) -> keys.ObjectKey:
    if name == "mesh":
        return parsed.MESH
    space, _, own = name.rpartition("/")
    return keys.ObjectKey("MeshGateway", space or namespace, own)


def _connections(
    spec: route_rule_pb2.RouteRuleSpec, rule: keys.ObjectKey
) -> Iterator[parsed.ConnectionRoute]:
    position = 0
    families: tuple[tuple[parsed.Transport, Iterable[_Connection]], ...] = (
        ("tls", spec.tls),
        ("tcp", spec.tcp),
        ("udp", spec.udp),
    )
    for transport, routes in families:
        for index, route in enumerate(routes):
            yield parsed.ConnectionRoute(
                transport=transport,
                position=position,
                field=f"spec.{transport}[{index}]",
                name=names.route(rule, position=index, name=route.name, family=transport),
                matches=_connection_matches(route, rule.namespace),
                destinations=_destinations(route.destinations, rule),
                idle_timeout_ms=_idle_timeout(route),
            )
            position += 1


def _idle_timeout(route: _Connection) -> int:
    if route.HasField("idle_timeout"):
        return readers.milliseconds(route.idle_timeout)
    return _UDP_IDLE_TIMEOUT_MS if isinstance(route, route_rule_pb2.UdpRoute) else _IDLE_TIMEOUT_MS


def _connection_matches(route: _Connection, namespace: str) -> tuple[parsed.ConnectionMatch, ...]:
    match route:
        case route_rule_pb2.TlsRoute():
            found = _each(route.matches, namespace, _tls_names)
        case route_rule_pb2.TcpRoute():
            found = _each(route.matches, namespace, _no_names)
        case route_rule_pb2.UdpRoute():
            found = ()
    return found or (parsed.ConnectionMatch(position=0),)


def _each(
    matches: Iterable[M], namespace: str, server_names: Callable[[M], tuple[str, ...]]
) -> tuple[parsed.ConnectionMatch, ...]:
    return tuple(
        parsed.ConnectionMatch(
            position=position,
            server_names=server_names(match),
            destinations=_networks(match.destination_cidrs),
            sources=_networks(match.source_cidrs),
            port=match.port if match.HasField("port") else None,
            clients=_clients(match, namespace),
        )
        for position, match in enumerate(matches)
    )


def _tls_names(match: route_rule_pb2.TlsMatch) -> tuple[str, ...]:
    return tuple(sorted({name.lower() for name in match.server_names}))


def _no_names(_match: route_rule_pb2.TcpMatch) -> tuple[str, ...]:
    return ()


def _networks(written: Iterable[str]) -> tuple[str, ...]:
    """Networks in one spelling each; a single address is one, too."""
    return tuple(sorted({str(ipaddress.ip_network(text)) for text in written}))
