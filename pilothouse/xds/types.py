# SPDX-License-Identifier: Apache-2.0
"""The table of resource types: everything that the protocol treats differently from type to type.

Sources: the type list and the ordering rule of
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol. Types of our own travel by the
same protocol between Pilothouse's services.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

PREFIX = "type.googleapis.com/"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """How one type is served."""

    type_url: str
    short: str
    """The service's usual abbreviation, for people and metrics."""
    order: int
    """Responses of a lower order go out first on one stream."""
    wildcard: bool = False
    """True: an empty subscription list means everything (legacy wildcard), and in state of the
    world a response holds the whole subscribed set, so absence is deletion. False: an empty list
    means nothing, so that no tenant's secret or route leaks, and absence means nothing."""
    gated: bool = False
    """True: follows the steps of make-before-break. False: a leaf, answered at any time."""
    retracted: bool = True
    """False: that a resource is gone is said to those who ask for it, and not pushed: the client
    drops it with its last user, and may refuse or misuse the news before
    (envoyproxy/envoy#24373, #32823)."""
    known: bool = True
    """False for what is in no table: nothing is said of its resources."""


def _envoy(
    name: str,
    short: str,
    order: int,
    *,
    wildcard: bool = False,
    gated: bool = False,
    retracted: bool = True,
) -> ResourceType:
    return ResourceType(
        type_url=f"{PREFIX}envoy.{name}",
        short=short,
        order=order,
        wildcard=wildcard,
        gated=gated,
        retracted=retracted,
    )


def _ours(name: str, order: int) -> ResourceType:
    return ResourceType(
        type_url=f"{PREFIX}pilothouse.api.{name}",
        short=name.rpartition(".")[2],
        order=order,
        wildcard=True,
    )


CLUSTER = _envoy("config.cluster.v3.Cluster", "CDS", 10, wildcard=True, gated=True)
ENDPOINT = _envoy("config.endpoint.v3.ClusterLoadAssignment", "EDS", 20)
LISTENER = _envoy("config.listener.v3.Listener", "LDS", 30, wildcard=True, gated=True)
SCOPED_ROUTE = _envoy("config.route.v3.ScopedRouteConfiguration", "SRDS", 35, wildcard=True)
ROUTE = _envoy("config.route.v3.RouteConfiguration", "RDS", 40, gated=True)
VIRTUAL_HOST = _envoy("config.route.v3.VirtualHost", "VHDS", 50)
SECRET = _envoy("extensions.transport_sockets.tls.v3.Secret", "SDS", 60, retracted=False)
EXTENSION = _envoy("config.core.v3.TypedExtensionConfig", "ECDS", 70, gated=True, retracted=False)
"""Filters that listeners refer to. Those of TCP lead to clusters, as routes do."""
RUNTIME = _envoy("service.runtime.v3.Runtime", "RTDS", 80)

MESH_CONFIG = _ours("config.v1alpha1.MeshConfig", 110)
EXTERNAL_SERVICE = _ours("config.v1alpha1.ExternalService", 120)
MESH_GATEWAY = _ours("config.v1alpha1.MeshGateway", 130)
DESTINATION_POLICY = _ours("config.v1alpha1.DestinationPolicy", 140)
ROUTE_RULE = _ours("config.v1alpha1.RouteRule", 150)
OBJECT_STATUS = _ours("status.v1alpha1.ObjectStatus", 160)

ALL = (
    *(CLUSTER, ENDPOINT, LISTENER, SCOPED_ROUTE, ROUTE, VIRTUAL_HOST, SECRET, EXTENSION, RUNTIME),
    *(MESH_CONFIG, EXTERNAL_SERVICE, MESH_GATEWAY, DESTINATION_POLICY, ROUTE_RULE, OBJECT_STATUS),
)
BY_URL: Mapping[str, ResourceType] = {each.type_url: each for each in ALL}
CONFIG = (MESH_CONFIG, EXTERNAL_SERVICE, MESH_GATEWAY, DESTINATION_POLICY, ROUTE_RULE)
"""The types of config objects."""


def of(type_url: str, types: Mapping[str, ResourceType] = BY_URL) -> ResourceType:
    """The row of a type; one that is not in the table is a leaf that goes last."""
    row = types.get(type_url)
    return row or ResourceType(
        type_url=type_url, short=type_url.rpartition(".")[2], order=1000, known=False
    )
