# SPDX-License-Identifier: Apache-2.0
"""The discovery services by name: which method is which variant, of which type.

Sources: the `service` declarations of Envoy's `ads.proto`, `cds.proto`, `eds.proto`, `lds.proto`,
`rds.proto` and `sds.proto`. The unary `Fetch...` methods (REST) are not served.
"""

import dataclasses
import importlib

from pilothouse.api.envoy.service.discovery.v3 import ads_pb2
from pilothouse.xds import types


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One discovery service."""

    name: str
    sotw: str
    """Its method for state of the world."""
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


def _per_type(kind: str, plural: str, type_url: str) -> Service:
    return Service(
        name=f"envoy.service.{kind.lower()}.v3.{kind}DiscoveryService",
        sotw=f"Stream{plural}",
        delta=f"Delta{plural}",
        type_url=type_url,
    )


PER_TYPE = (
    _per_type("Cluster", "Clusters", types.CLUSTER.type_url),
    _per_type("Endpoint", "Endpoints", types.ENDPOINT.type_url),
    _per_type("Listener", "Listeners", types.LISTENER.type_url),
    _per_type("Route", "Routes", types.ROUTE.type_url),
    _per_type("Secret", "Secrets", types.SECRET.type_url),
)

_DECLARED_IN = ("cluster.v3.cds", "endpoint.v3.eds", "listener.v3.lds", "route.v3.rds")


def load_descriptors() -> None:
    """Have reflection describe the services of one type.

    Not at import: a config source does not serve them, and need not hold Envoy's messages.
    """
    for name in (*_DECLARED_IN, "secret.v3.sds"):
        importlib.import_module(f"pilothouse.api.envoy.service.{name}_pb2")
