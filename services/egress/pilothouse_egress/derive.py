# SPDX-License-Identifier: Apache-2.0
"""From external services to the egress gateway and its routes. Pure.

An ExternalService that goes through the gateway becomes two rules in its own namespace: one has the
mesh send its requests to the gateway's Service, the other has the gateway send them on. What cannot
be routed gets no rules, so that its traffic is refused at the sidecar: it never leaves another way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from pilothouse.api.config.v1alpha1 import mesh_gateway_pb2, route_rule_pb2
from pilothouse.config import codec, objects, status
from pilothouse.model import keys

if TYPE_CHECKING:
    from pilothouse.api.config.v1alpha1 import external_service_pb2

SOURCE = "egress"
LISTENER = "http"
GATEWAY_KEY = keys.ObjectKey("MeshGateway", objects.ROOT_NAMESPACE, "egress")
GATEWAY_LABELS = {"pilothouse.dev/gateway": "egress"}
"""Labels of the proxies that are the egress gateway."""
MAX_NAME = 253
"""Longest name of an object."""

# No name with the one prefix can be a name with the other, whatever an ExternalService is called.
_AT_GATEWAY = "egress-"
_IN_MESH = "mesh-egress-"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The egress gateway as the mesh reaches it."""

    service: str = "egress-gateway"
    """Name of its Service, in the root namespace."""
    port: int = 8080
    """Port of its listener, and of its Service."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """What external services become."""

    configs: tuple[objects.Config, ...]
    """The MeshGateway and the RouteRules, in key order."""
    conditions: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]
    """For each ExternalService that goes through the gateway, in key order."""


def derive(services: Iterable[objects.Config], gateway: Gateway) -> Derived:
    """Derive the gateway's configuration; the order of the input means nothing.

    Args:
        services: ExternalServices, each key once; those that do not go through the gateway are
            passed over.
        gateway: where the mesh finds the gateway.
    """
    configs = [_gateway(gateway)]
    conditions: dict[keys.ObjectKey, tuple[objects.Condition, ...]] = {}
    for service in sorted(services, key=lambda one: one.key):
        spec = cast("external_service_pb2.ExternalServiceSpec", service.spec)
        if not spec.through_egress_gateway:
            continue
        wrong = _violations(service.key, spec)
        conditions[service.key] = (_accepted(wrong),)
        if not wrong:
            configs.append(_rule(service, _AT_GATEWAY, _at_gateway(service, spec)))
            configs.append(_rule(service, _IN_MESH, _in_mesh(service, gateway)))
    return Derived(configs=tuple(sorted(configs, key=lambda one: one.key)), conditions=conditions)


def _violations(
    key: keys.ObjectKey, spec: external_service_pb2.ExternalServiceSpec
) -> tuple[str, ...]:
    """Why a service cannot go through the gateway, each reason with the field it concerns."""
    found = []
    if len(key.name) > (longest := MAX_NAME - len(_IN_MESH)):
        found.append(
            f"metadata.name: has {len(key.name)} characters, and at most {longest} leave room for"
            " the names of the rules derived from it"
        )
    if not spec.hosts:
        # A rule without hosts would take every host of the gateway.
        found.append("spec.hosts: is empty, and the gateway tells services apart by host")
    found.extend(
        f"spec.hosts[{index}]: {host!r} has a wildcard, and the gateway must know each host"
        for index, host in enumerate(spec.hosts)
        if "*" in host
    )
    if len(spec.ports) != 1:
        found.append(
            f"spec.ports: has {len(spec.ports)} entries, and the gateway, which listens on one"
            " port, cannot tell ports apart: split it into services of one port and other hosts"
        )
    return tuple(found)


def _accepted(wrong: tuple[str, ...]) -> objects.Condition:
    if wrong:
        return objects.Condition(
            type=status.ACCEPTED,
            status=False,
            reason="NotThroughGateway",
            message="; ".join(wrong),
        )
    return objects.Condition(type=status.ACCEPTED, status=True, reason="Accepted")


def _gateway(gateway: Gateway) -> objects.Config:
    """The gateway: there before the first service, so that the listener waits for its routes."""
    spec = mesh_gateway_pb2.MeshGatewaySpec(selector=GATEWAY_LABELS, allowed_namespaces=["*"])
    spec.listeners.add(
        name=LISTENER,
        port=gateway.port,
        protocol=mesh_gateway_pb2.Listener.PROTOCOL_HTTP,
        hosts=["*"],
    )
    return codec.make(GATEWAY_KEY, spec, source=SOURCE)


def _rule(
    service: objects.Config, prefix: str, spec: route_rule_pb2.RouteRuleSpec
) -> objects.Config:
    """A rule beside the service, as old as the service: age decides conflicts."""
    key = keys.ObjectKey("RouteRule", service.key.namespace, prefix + service.key.name)
    return codec.make(
        key,
        spec,
        source=SOURCE,
        origins=(service.key,),
        created=service.meta.created,
        generation=service.meta.generation,
    )


def _at_gateway(
    service: objects.Config, external: external_service_pb2.ExternalServiceSpec
) -> route_rule_pb2.RouteRuleSpec:
    spec = route_rule_pb2.RouteRuleSpec(hosts=external.hosts)
    spec.parents.add(gateway=GATEWAY_KEY.name, namespace=GATEWAY_KEY.namespace)
    spec.http.add().destinations.add(external_service=service.key.name)
    return spec


def _in_mesh(service: objects.Config, gateway: Gateway) -> route_rule_pb2.RouteRuleSpec:
    spec = route_rule_pb2.RouteRuleSpec()
    spec.parents.add(external_service=service.key.name)
    spec.http.add().destinations.add(
        service=gateway.service, namespace=objects.ROOT_NAMESPACE, port=gateway.port
    )
    return spec
