# SPDX-License-Identifier: Apache-2.0
"""The table of kinds: what drives the codec, stores, the command and validation.

A new kind is its proto, one line here, and its rules (`pilothouse.config.validation`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from google.protobuf import message as protobuf

from pilothouse.api.config.v1alpha1 import (
    destination_policy_pb2,
    external_service_pb2,
    mesh_config_pb2,
    mesh_gateway_pb2,
    route_rule_pb2,
)

API_GROUP = "pilothouse.dev"
API_VERSION = "pilothouse.dev/v1alpha1"
"""``apiVersion`` of every kind below."""

_TYPE_URL_PREFIX = "type.googleapis.com/"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of config object."""

    name: str
    """As users write it: ``RouteRule``."""
    plural: str
    """As the Kubernetes API and the command write it: ``routerules``."""
    message: type[protobuf.Message]
    """The whole object: ``metadata``, ``spec``, ``status``."""
    spec: type[protobuf.Message]
    type_url: str
    """Of the whole object, for xDS and ``google.protobuf.Any``."""
    namespaced: bool = True


def _kind(whole: type[protobuf.Message], spec: type[protobuf.Message]) -> Kind:
    name = whole.DESCRIPTOR.name
    return Kind(
        name=name,
        plural=_plural(name.lower()),
        message=whole,
        spec=spec,
        type_url=_TYPE_URL_PREFIX + whole.DESCRIPTOR.full_name,
    )


def _plural(singular: str) -> str:
    # As English has it: policies, but gateways.
    if singular.endswith("y") and singular[-2] not in "aeiou":
        return singular[:-1] + "ies"
    return singular + "s"


_ALL = (
    _kind(
        destination_policy_pb2.DestinationPolicy,
        destination_policy_pb2.DestinationPolicySpec,
    ),
    _kind(external_service_pb2.ExternalService, external_service_pb2.ExternalServiceSpec),
    _kind(mesh_config_pb2.MeshConfig, mesh_config_pb2.MeshConfigSpec),
    _kind(mesh_gateway_pb2.MeshGateway, mesh_gateway_pb2.MeshGatewaySpec),
    _kind(route_rule_pb2.RouteRule, route_rule_pb2.RouteRuleSpec),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
"""By name, sorted."""

_BY_TYPE_URL = {kind.type_url: kind for kind in _ALL}


def by_type_url(type_url: str) -> Kind | None:
    """The kind whose objects have this type URL; None for any other type."""
    return _BY_TYPE_URL.get(type_url)
