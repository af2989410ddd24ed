# SPDX-License-Identifier: Apache-2.0
"""Reads admitted config objects into the values of `parsed`, each by a pure function of it."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, cast

from pilothouse.api.config.v1alpha1 import (
    external_service_pb2,
)
from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.routing import memo as memory
from pilothouse.routing import mesh_defaults, mesh_gateways, parsed, policies, readers, route_rules

MESH_CONFIG = keys.ObjectKey("MeshConfig", objects.ROOT_NAMESPACE, "default")
"""The only MeshConfig that is used."""

_Port = external_service_pb2.ExternalPort
_TRANSPORTS: Final[dict[_Port.Protocol.ValueType, parsed.Transport]] = {
    _Port.PROTOCOL_TLS: "tls",
    _Port.PROTOCOL_TCP: "tcp",
}
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """All objects in force, by kind, each kind in key order."""

    rules: Mapping[keys.ObjectKey, parsed.Rule] = dataclasses.field(default_factory=dict)
    policies: tuple[parsed.Policy, ...] = ()
    externals: tuple[parsed.External, ...] = ()
    gateways: tuple[parsed.Gateway, ...] = ()
    tracing: parsed.MeshTracing | None = None
    defaults: parsed.MeshDefaults = dataclasses.field(default_factory=parsed.MeshDefaults)


def parse(memo: memory.Memo, configs: Mapping[keys.ObjectKey, objects.Config]) -> Objects:
    """Read every object that routing knows; other kinds are for others."""
    by_kind = {
        kind: {key: configs[key] for key in some}
        for kind, some in itertools.groupby(sorted(configs), operator.attrgetter("kind"))
    }

    def read(kind: str, reader: Callable[[objects.Config], T]) -> tuple[T, ...]:
        return tuple(memo.mapped(reader, "", by_kind.get(kind, {})).values())

    mesh = configs.get(MESH_CONFIG)
    defaults = (
        parsed.MeshDefaults() if mesh is None else memo.leaf(mesh_defaults.defaults, mesh.key, mesh)
    )
    return Objects(
        rules=memo.mapped(route_rules.rule, "", by_kind.get("RouteRule", {}), defaults.retry),
        policies=read("DestinationPolicy", policies.policy),
        externals=read("ExternalService", external),
        gateways=read("MeshGateway", mesh_gateways.gateway),
        tracing=None if mesh is None else memo.leaf(mesh_defaults.tracing, mesh.key, mesh),
        defaults=defaults,
    )


def external(config: objects.Config) -> parsed.External:
    """Read an ExternalService."""
    spec = cast("external_service_pb2.ExternalServiceSpec", config.spec)
    hosts = readers.hosts(spec.hosts)
    addresses = tuple(sorted({endpoint.address for endpoint in spec.endpoints}))
    ports = {
        port.number: parsed.ExternalPort(
            port.number,
            port.target_port if port.HasField("target_port") else port.number,
            _TRANSPORTS.get(port.protocol, "http"),
        )
        for port in spec.ports
    }
    return parsed.External(
        key=keys.ServiceKey(config.key.namespace, config.key.name),
        object=config.key,
        origins=readers.origins(config.meta),
        created=config.meta.created,
        hosts=hosts,
        ports=tuple(ports[number] for number in sorted(ports)),
        static=spec.resolution == external_service_pb2.ExternalServiceSpec.RESOLUTION_STATIC,
        addresses=addresses or hosts[:1],
        through_egress=spec.through_egress_gateway,
    )
