# SPDX-License-Identifier: Apache-2.0
"""A proxy as discovery knows it: its node id, role and the few facts its configuration depends on.

Whatever may change a proxy's configuration is a field here, so that a field left out of a cache key
cannot exist.
"""

from __future__ import annotations

import dataclasses
import enum

from pilothouse.model import keys, mapped, services


class Role(enum.StrEnum):
    """What a proxy is for."""

    SIDECAR = "sidecar"
    GATEWAY = "gateway"
    GRPC = "grpc"
    """No proxy: a gRPC application that reads its configuration itself."""
    SOURCE = "source"
    """Not a proxy: another service (ingress, egress) that reads config and status over the same
    protocol."""


class Interception(enum.StrEnum):
    """How an application's traffic reaches its sidecar."""

    EXPLICIT = "explicit"
    """The application uses the sidecar as its HTTP proxy."""


DEFAULT_BIND_ADDRESS = "0.0.0.0"  # noqa: S104  a proxy serves its whole network namespace
DEFAULT_APPLICATION_ADDRESS = "127.0.0.1"
DEFAULT_OUTBOUND_PORT = 15001


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeId:
    """The four parts of ``role~ip~id.namespace~domain``."""

    role: Role
    address: str
    name: str
    namespace: str
    domain: str = "cluster.local"

    @classmethod
    def parse(cls, text: str) -> NodeId:
        """Read a node id; ValueError names what is wrong with it."""
        parts = text.split("~")
        if len(parts) != 4:
            msg = f"node id {text!r} must have the form role~ip~id.namespace~domain"
            raise ValueError(msg)
        role, address, instance, domain = parts
        name, dot, namespace = instance.rpartition(".")
        if not (dot and name and namespace):
            msg = f"node id {text!r}: the third part must be id.namespace"
            raise ValueError(msg)
        if role not in set(Role):
            msg = f"node id {text!r}: unknown role {role!r}; known: {', '.join(Role)}"
            raise ValueError(msg)
        return cls(role=Role(role), address=address, name=name, namespace=namespace, domain=domain)

    def __str__(self) -> str:
        """``role~ip~id.namespace~domain``."""
        return f"{self.role}~{self.address}~{self.name}.{self.namespace}~{self.domain}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Proxy:
    """One connected proxy: exactly the facts that its configuration may depend on."""

    id: NodeId
    labels: keys.Labels = ()
    locality: services.Locality = services.Locality()
    interception: Interception = Interception.EXPLICIT
    bind_address: str = DEFAULT_BIND_ADDRESS
    """Address that its listeners bind to."""
    application_address: str = DEFAULT_APPLICATION_ADDRESS
    """Where the application beside it listens."""
    outbound_port: int = DEFAULT_OUTBOUND_PORT
    """Port of the sidecar's HTTP proxy in explicit interception."""
    mapped: tuple[mapped.MappedPort, ...] = ()
    """More ports of a sidecar, each for one port of a service; sorted."""
    certificate_provider: str = ""
    """What a gRPC application has its certificates from, by the name in its bootstrap; empty for
    none."""
