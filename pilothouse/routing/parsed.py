# SPDX-License-Identifier: Apache-2.0
"""Config objects as routing reads them: plain values, without what has no effect on traffic.

Each is made from one object once. An object whose generation moved and whose meaning did not gives
an equal value here, and nothing that comes after is computed again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

from pilothouse.model import keys
from pilothouse.routing import accepting, plan, treatment, upstreams


class Ref(NamedTuple):
    """Names a service of the mesh or an external service."""

    external: bool
    key: keys.ServiceKey

    def __str__(self) -> str:
        """For people: ``service NAMESPACE/NAME``."""
        return f"{'external service' if self.external else 'service'} {self.key}"


Transport = Literal["http", "tls", "tcp", "udp"]
"""What a route is for; gRPC is HTTP."""


class Source(NamedTuple):
    """A test of the proxy that sends; all of it must hold, and empty parts test nothing."""

    service: keys.ServiceKey | None
    """It is one of the endpoints of this service."""
    labels: keys.Labels
    namespace: str


MESH = keys.ObjectKey("Mesh", "", "mesh")
"""Stands for the mesh among gateways."""


class Clients(NamedTuple):
    """Whose requests or connections a match takes."""

    source: Source | None = None
    """Only those of such proxies in the mesh; None for all."""
    gateways: tuple[keys.ObjectKey, ...] = ()
    """Only those that come through one of these MeshGateways, or through ``MESH``; sorted; empty
    for all."""


EVERYBODY = Clients()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A match of a route, and its place in the order of all routes of a host."""

    match: plan.RouteMatch
    precedence: tuple[int, ...]
    """Lower goes first: kind of path, length of path (longer first), by elements or by characters,
    case, gRPC or any, method, number of headers and of query parameters (more first).
    """
    port: int | None = None
    """Only requests for this port; None for all."""
    position: int = 0
    """Among the matches of the route, as written."""
    clients: Clients = EVERYBODY


ANYTHING = plan.RouteMatch()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a share of a route's requests goes, as written."""

    ref: Ref
    port: int | None
    labels: keys.Labels
    weight: int
    request_headers: treatment.HeaderChanges
    response_headers: treatment.HeaderChanges


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Where copies of requests go, as written."""

    destination: Destination
    millionths: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RuleRoute:
    """One entry of ``spec.http`` or ``spec.grpc``."""

    position: int
    """From 0; those of ``grpc`` go on after those of ``http``."""
    field: str
    """Its path: ``spec.http[0]``."""
    name: str
    """As in the plan: with kind, namespace and name of the rule."""
    matches: tuple[Match, ...]
    """At least one."""
    destinations: tuple[Destination, ...]
    mirrors: tuple[Mirror, ...]
    answer: plan.Redirect | plan.DirectResponse | None
    """What is answered instead of sending requests on."""
    timeout_ms: int
    retry: plan.Retry | None
    rewrite: treatment.Rewrite | None
    treatment: treatment.Treatment
    logged: bool = True
    websocket: bool = True
    """Its requests may become WebSockets."""
    stat_prefix: str = ""
    connect: bool = False
    """It takes CONNECT requests, too; at gateways."""
    transport: Transport = "http"

    @property
    def reached(self) -> tuple[Destination, ...]:
        """Where its requests or copies of them may go."""
        return (*self.destinations, *(mirror.destination for mirror in self.mirrors))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionMatch:
    """A match of a route for connections; what is empty or None takes all."""

    position: int
    server_names: tuple[str, ...] = ()
    """Lower case, sorted."""
    destinations: tuple[str, ...] = ()
    """Networks, sorted."""
    sources: tuple[str, ...] = ()
    """Networks, sorted."""
    port: int | None = None
    clients: Clients = EVERYBODY


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRoute:
    """One entry of ``spec.tls``, ``spec.tcp`` or ``spec.udp``."""

    transport: Transport
    position: int
    field: str
    """Its path: ``spec.tcp[0]``."""
    name: str
    """As in the plan: with kind, namespace and name of the rule."""
    matches: tuple[ConnectionMatch, ...]
    """At least one."""
    destinations: tuple[Destination, ...]
    idle_timeout_ms: int

    @property
    def reached(self) -> tuple[Destination, ...]:
        """Where its connections may go."""
        return self.destinations


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """One of the parents of a rule; exactly one of ``ref`` and ``gateway`` is set."""

    ref: Ref | None = None
    gateway: keys.ObjectKey | None = None
    port: int | None = None
    listener: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A RouteRule."""

    key: keys.ObjectKey
    origins: plan.Origins
    """The rule itself, and the objects it was derived from."""
    created: int
    priority: int
    parents: tuple[Parent, ...]
    hosts: tuple[str, ...]
    routes: tuple[RuleRoute, ...]
    connections: tuple[ConnectionRoute, ...] = ()
    """Those of ``tls``, then of ``tcp``, then of ``udp``."""

    @property
    def every(self) -> tuple[RuleRoute | ConnectionRoute, ...]:
        """All of its routes, in the order of their fields."""
        return (*self.routes, *self.connections)

    @property
    def from_ingress(self) -> bool:
        """True when a Kubernetes Ingress speaks through this rule."""
        return any(origin.kind == "Ingress" for origin in self.origins)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A DestinationPolicy."""

    key: keys.ObjectKey
    origins: plan.Origins
    created: int
    target: Ref
    labels: keys.Labels
    sections: upstreams.Sections
    """Those that it has; never mutated."""
    ports: Mapping[int, upstreams.Sections]
    """Those that it has for single ports, in order of ports; they win as a whole."""

    def at(self, port: int) -> upstreams.Sections:
        """Those that it has for a port."""
        own = self.ports.get(port)
        return {**self.sections, **own} if own else self.sections

    def has(self, section: str) -> bool:
        """Tell whether it has a section of that name, for any port."""
        return any(section in one for one in (self.sections, *self.ports.values()))


class ExternalPort(NamedTuple):
    """A port of an external service: what clients use, and what is used at the endpoints."""

    number: int
    target: int
    transport: Transport = "http"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """An ExternalService."""

    key: keys.ServiceKey
    object: keys.ObjectKey
    origins: plan.Origins
    created: int
    hosts: tuple[str, ...]
    """As claimed: lower case, without trailing dot. Which of them it keeps is another question."""
    ports: tuple[ExternalPort, ...]
    """Sorted by number."""
    static: bool
    addresses: tuple[str, ...]
    """At least one."""
    through_egress: bool


def allows(allowed: tuple[str, ...], namespace: str) -> bool:
    """Tell whether a namespace is one of those; ``*`` stands for all."""
    return "*" in allowed or namespace in allowed


ListenerProtocol = Literal["http", "https", "tls", "tcp", "udp"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatewayListener:
    """A listener of a MeshGateway."""

    name: str
    port: int
    protocol: ListenerProtocol
    hosts: tuple[str, ...]
    """At least one; ``*`` for all."""
    tls: accepting.ServerTls | None = None
    """None where nothing is decrypted."""
    redirect_port: int | None = None
    """All requests are redirected to https at this port; None for none."""
    http3: bool = False
    client_address: accepting.ClientAddress = accepting.FROM_CONNECTION
    address: str = ""
    """Where its port is opened; empty for where the proxy opens others."""
    allowed: tuple[str, ...] = ()
    """Namespaces whose rules may attach; ``*`` for all."""

    @property
    def transport(self) -> Transport:
        """Which routes it takes."""
        return "http" if self.protocol == "https" else self.protocol

    def admits(self, namespace: str) -> bool:
        """Tell whether rules of ``namespace`` may attach."""
        return allows(self.allowed, namespace)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A MeshGateway."""

    key: keys.ObjectKey
    origins: plan.Origins
    created: int
    selector: keys.Labels
    listeners: tuple[GatewayListener, ...]

    def admits(self, namespace: str) -> bool:
        """Tell whether rules of ``namespace`` may attach to one of its listeners."""
        return any(listener.admits(namespace) for listener in self.listeners)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """How connections to services and hosts outside are made, where no policy says it."""

    timeout_ms: int | None = None
    tcp_keepalive: upstreams.TcpKeepalive | None = None
    origins: plan.Origins = ()
    """Empty where nothing is said."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeshDefaults:
    """What holds where nothing else is said."""

    allow_any: bool = False
    """Hosts that nothing speaks of are asked, too."""
    retry: plan.Retry | None = dataclasses.field(default_factory=plan.Retry)
    """Of routes that do not say when they retry."""
    access_log: plan.AccessLog | None = None
    connecting: Connecting = Connecting()
    origins: plan.Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeshTracing:
    """The tracing section of the mesh's defaults."""

    address: str
    port: int
    sampling_percent: float
    origins: plan.Origins


def seniority(item: Rule | Policy | External | Gateway) -> tuple[object, ...]:
    """Orders objects that claim the same thing: the older wins, then namespace and name decide."""
    key = item.object if isinstance(item, External) else item.key
    return (item.created, key.namespace, key.name)
