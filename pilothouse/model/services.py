# SPDX-License-Identifier: Apache-2.0
"""Services, endpoints and workloads, in Kubernetes' own words, and the registries' port.

Everything here is a frozen value. A registry swaps whole snapshots; nobody patches one in place.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Protocol

from pilothouse.model import changes, keys


class AppProtocol(enum.StrEnum):
    """What is spoken on a service port, from ``appProtocol``, the port's name prefix, or TCP."""

    HTTP = "HTTP"
    HTTP2 = "HTTP2"
    GRPC = "GRPC"
    TCP = "TCP"
    TLS = "TLS"
    UDP = "UDP"

    @property
    def is_http(self) -> bool:
        """True when requests can be routed one by one."""
        return self in (AppProtocol.HTTP, AppProtocol.HTTP2, AppProtocol.GRPC)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port that clients of a service use."""

    number: int
    """1 to 65535."""
    name: str = ""
    protocol: AppProtocol = AppProtocol.TCP
    target_port: int | str | None = None
    """Number or container-port name at the workload; None means ``number``."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service of the mesh."""

    key: keys.ServiceKey
    ports: tuple[Port, ...]
    """Sorted by number."""
    cluster_ips: tuple[str, ...] = ()
    """Sorted; empty for a headless service."""
    selector: keys.Labels = ()
    external_name: str | None = None
    """Set for type ExternalName only."""

    def port(self, number: int) -> Port | None:
        """The port with this number, or None."""
        return next((port for port in self.ports if port.number == number), None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """Where an endpoint or a proxy is; empty strings are unknown."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One address behind one service port."""

    address: str
    """IP literal."""
    port: int
    port_name: str = ""
    """Name of the service port served: the join key between Service and EndpointSlice."""
    labels: keys.Labels = ()
    """Labels of the workload behind it."""
    ready: bool = True
    locality: Locality = Locality()
    workload: str = ""
    """Name of the pod behind it; empty when unknown."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A pod: what a proxy runs beside."""

    namespace: str
    name: str
    addresses: tuple[str, ...] = ()
    labels: keys.Labels = ()
    service_account: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegistryState:
    """Everything one registry knows; equal states are equal values."""

    services: Mapping[keys.ServiceKey, Service] = dataclasses.field(default_factory=dict)
    """In key order."""
    endpoints: Mapping[keys.ServiceKey, tuple[Endpoint, ...]] = dataclasses.field(
        default_factory=dict
    )
    """Sorted by address, port, port name; a service without endpoints may be missing."""
    workloads: tuple[Workload, ...] = ()
    """Sorted by namespace, name."""
    synced: bool = False
    """False until the registry has been read whole once; then True for ever."""


class ServiceRegistry(Protocol):
    """Where services come from.

    ``current`` is AT LEAST as fresh as the change last notified and MAY be fresher. Once synced, a
    registry that loses its source keeps the last good state. Change handlers are called in order,
    on the event loop of the registry.
    """

    name: str

    def current(self) -> RegistryState:
        """The present state; cheap, never blocks."""

    def subscribe(self, notify: Callable[[changes.Change], None]) -> Callable[[], None]:
        """Call ``notify`` after each change; the answer ends the subscription."""
