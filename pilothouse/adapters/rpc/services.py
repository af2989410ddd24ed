# SPDX-License-Identifier: Apache-2.0
"""The discovery services by name: which method is which variant, of which type.

Sources: the `service` declarations of Envoy's `ads.proto`, `cds.proto`, `eds.proto`, `lds.proto`,
`rds.proto` (virtual hosts too), `srds.proto`, `sds.proto`, `config_discovery.proto` and
`rtds.proto`. The unary `Fetch...` methods (REST) are not served.
"""

import dataclasses
import importlib

from pilothouse.api.envoy.service.discovery.v3 import ads_pb2
from pilothouse.xds import types


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One discovery service."""

    name: str
    sotw: str | None
    """Its method for state of the world; None where delta is the only variant."""
    delta: str
    """Its method for delta."""
    type_url: str | None = None
    """The only type it serves; None for all of them on one stream."""

    @property
    def delta_path(self) -> str:
        """What a client calls for delta."""
        return f"/{self.name}/{self.delta}"


ADS = Service(
    name=ads_pb2.DESCRIPTOR.services_by_name["AggregatedDiscoveryService"].full_name,
    sotw="StreamAggregatedResources",
    delta="DeltaAggregatedResources",
)


def _per_type(
    name: str, plural: str, kind: types.ResourceType, *, only_delta: bool = False
) -> Service:
    return Service(
        name=f"envoy.service.{name}DiscoveryService",
        sotw=None if only_delta else f"Stream{plural}",
        delta=f"Delta{plural}",
        type_url=kind.type_url,
    )


PER_TYPE = (
    _per_type("cluster.v3.Cluster", "Clusters", types.CLUSTER),
    _per_type("endpoint.v3.Endpoint", "Endpoints", types.ENDPOINT),
    _per_type("listener.v3.Listener", "Listeners", types.LISTENER),
    _per_type("route.v3.ScopedRoutes", "ScopedRoutes", types.SCOPED_ROUTE),
    _per_type("route.v3.Route", "Routes", types.ROUTE),
    _per_type("route.v3.VirtualHost", "VirtualHosts", types.VIRTUAL_HOST, only_delta=True),
    _per_type("secret.v3.Secret", "Secrets", types.SECRET),
    _per_type("extension.v3.ExtensionConfig", "ExtensionConfigs", types.EXTENSION),
    _per_type("runtime.v3.Runtime", "Runtime", types.RUNTIME),
)
"""One for each of Envoy's types that this server knows, in the order of the types."""

_DECLARED_IN = (
    *("cluster.v3.cds", "endpoint.v3.eds", "listener.v3.lds", "route.v3.rds", "route.v3.srds"),
    *("secret.v3.sds", "extension.v3.config_discovery", "runtime.v3.rtds"),
)


def load_descriptors() -> None:
    """Have reflection describe the services of one type.

    Not at import: a config source does not serve them, and need not hold Envoy's messages.
    """
    for name in _DECLARED_IN:
        importlib.import_module(f"pilothouse.api.envoy.service.{name}_pb2")
