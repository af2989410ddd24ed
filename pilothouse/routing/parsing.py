# SPDX-License-Identifier: Apache-2.0
"""Reads admitted config objects into the values of `parsed`, each by a pure function of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast

from pilothouse.api.config.v1alpha1 import (
    external_service_pb2,
    mesh_config_pb2,
    mesh_gateway_pb2,
    route_rule_pb2,
)
from pilothouse.config import grpc_routes, objects
from pilothouse.model import keys, secrets
from pilothouse.routing import (
    http_actions,
    http_matches,
    names,
    parsed,
    policies,
    readers,
    treatments,
)
from pilothouse.routing import memo as memory

MESH_CONFIG = keys.ObjectKey("MeshConfig", objects.ROOT_NAMESPACE, "default")
"""The only MeshConfig that is used."""

_DEFAULT_OTLP_PORT = 4317

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """All objects in force, by kind, each kind in key order."""

    rules: tuple[parsed.Rule, ...] = ()
    policies: tuple[parsed.Policy, ...] = ()
    externals: tuple[parsed.External, ...] = ()
    gateways: tuple[parsed.Gateway, ...] = ()
    tracing: parsed.MeshTracing | None = None


def parse(memo: memory.Memo, configs: Mapping[keys.ObjectKey, objects.Config]) -> Objects:
    """Read every object that routing knows; other kinds are for others."""
    by_kind: dict[str, list[objects.Config]] = {}
    for key in sorted(configs):
        by_kind.setdefault(key.kind, []).append(configs[key])

    def read(kind: str, reader: Callable[[objects.Config], T]) -> tuple[T, ...]:
        return tuple(memo.leaf(reader, one.key, one) for one in by_kind.get(kind, ()))

    mesh = configs.get(MESH_CONFIG)
    return Objects(
        rules=read("RouteRule", rule),
        policies=read("DestinationPolicy", policies.policy),
        externals=read("ExternalService", external),
        gateways=read("MeshGateway", gateway),
        tracing=None if mesh is None else memo.leaf(tracing, mesh.key, mesh),
    )


def rule(config: objects.Config) -> parsed.Rule:
    """Read a RouteRule."""
    spec = cast("route_rule_pb2.RouteRuleSpec", config.spec)
    return parsed.Rule(
        key=config.key,
        origins=readers.origins(config.meta),
        created=config.meta.created,
        priority=spec.priority,
        parents=tuple(_parent(parent, namespace=config.key.namespace) for parent in spec.parents),
        hosts=tuple(sorted({host.lower() for host in spec.hosts})),
        routes=tuple(
            _route(route, rule=config.key, position=position, grpc=position - len(spec.http))
            for position, route in enumerate(
                (*spec.http, *(grpc_routes.as_http(route) for route in spec.grpc))
            )
        ),
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
    route: route_rule_pb2.HttpRoute, *, rule: keys.ObjectKey, position: int, grpc: int
) -> parsed.RuleRoute:
    """Read a route; ``grpc`` is its position among gRPC routes, negative for an HTTP route."""
    matches = tuple(http_matches.match(match) for match in route.matches)
    return parsed.RuleRoute(
        position=position,
        field=f"spec.http[{position}]" if grpc < 0 else f"spec.grpc[{grpc}]",
        name=names.route(
            rule, position=position if grpc < 0 else grpc, name=route.name, grpc=grpc >= 0
        ),
        matches=matches or (http_matches.match(route_rule_pb2.HttpMatch()),),
        destinations=tuple(
            _destination(destination, namespace=rule.namespace)
            for destination in route.destinations
        ),
        mirrors=tuple(
            parsed.Mirror(
                destination=_destination(mirror.destination, namespace=rule.namespace),
                millionths=readers.millionths(mirror),
            )
            for mirror in route.mirrors
        ),
        answer=http_actions.answer(route),
        timeout_ms=readers.milliseconds(route.timeout),
        retry=http_actions.retry(route.retry),
        rewrite=http_actions.rewrite(route),
        treatment=treatments.treatment(route),
    )


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


def external(config: objects.Config) -> parsed.External:
    """Read an ExternalService."""
    spec = cast("external_service_pb2.ExternalServiceSpec", config.spec)
    hosts = _hosts(spec.hosts)
    addresses = tuple(sorted({endpoint.address for endpoint in spec.endpoints}))
    ports = {
        port.number: port.target_port if port.HasField("target_port") else port.number
        for port in spec.ports
    }
    return parsed.External(
        key=keys.ServiceKey(config.key.namespace, config.key.name),
        object=config.key,
        origins=readers.origins(config.meta),
        created=config.meta.created,
        hosts=hosts,
        ports=tuple(parsed.ExternalPort(*item) for item in sorted(ports.items())),
        static=spec.resolution == external_service_pb2.ExternalServiceSpec.RESOLUTION_STATIC,
        addresses=addresses or hosts[:1],
        through_egress=spec.through_egress_gateway,
    )


def _hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """In the order written (the first one is asked from DNS), each once, as DNS compares them."""
    return tuple(dict.fromkeys(host.lower().rstrip(".") for host in hosts))


def gateway(config: objects.Config) -> parsed.Gateway:
    """Read a MeshGateway."""
    spec = cast("mesh_gateway_pb2.MeshGatewaySpec", config.spec)
    return parsed.Gateway(
        key=config.key,
        origins=readers.origins(config.meta),
        created=config.meta.created,
        selector=keys.labels(dict(spec.selector)),
        listeners=tuple(
            parsed.GatewayListener(
                name=listener.name,
                port=listener.port,
                https=listener.protocol == mesh_gateway_pb2.Listener.PROTOCOL_HTTPS,
                hosts=tuple(sorted(_hosts(listener.hosts))) or ("*",),
                certificates=tuple(
                    secrets.SecretKey(one.namespace or config.key.namespace, one.secret)
                    for one in listener.tls.certificates
                ),
            )
            for listener in spec.listeners
        ),
        allowed=tuple(sorted(set(spec.allowed_namespaces))) or (config.key.namespace,),
    )


def tracing(config: objects.Config) -> parsed.MeshTracing | None:
    """Read the tracing section of the mesh's defaults."""
    spec = cast("mesh_config_pb2.MeshConfigSpec", config.spec)
    if not spec.HasField("tracing"):
        return None
    section = spec.tracing
    return parsed.MeshTracing(
        address=section.address,
        port=section.port if section.HasField("port") else _DEFAULT_OTLP_PORT,
        sampling_percent=section.sampling_percent
        if section.HasField("sampling_percent")
        else 100.0,
        origins=readers.origins(config.meta),
    )
