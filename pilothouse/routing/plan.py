# SPDX-License-Identifier: Apache-2.0
"""ProxyPlan, the intermediate representation: what a proxy must do, in nobody's product's words.

A plan is a tuple of layers. Layers are built once and shared by all proxies that have them: two
replicas of a workload hold the very same objects. Everything is a frozen, hashable value in a total
order, and the arguments of whatever translates one.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal

from pilothouse.model import keys, secrets, services
from pilothouse.routing import (
    accepting,
    header_tests,
    matching,
    retrying,
    treatment,
    upstreams,
)

Origins = tuple[keys.ObjectKey, ...]
"""Keys of the config objects that a part comes from, sorted; with the objects those were derived
from."""

HeaderMatch = header_tests.HeaderMatch
PathKind = matching.PathKind
QueryMatch = matching.QueryMatch
RouteMatch = matching.RouteMatch
Retry = retrying.Retry


class Direction(enum.StrEnum):
    """Which way traffic goes, seen from the proxy."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ClusterKey:
    """Names a cluster: a service port seen through labels, or a port of the application.

    The latter is inbound: the application beside the proxy.
    """

    direction: Direction
    port: int
    service: keys.ServiceKey | None = None
    """None for inbound."""
    labels: keys.Labels = ()
    external: bool = False
    """True when ``service`` names an ExternalService."""
    scope: str = ""
    """Namespace of the clients whose own policy shapes it; empty for the cluster that everybody
    shares."""
    udp: bool = False
    """True when ``port`` is one of UDP, which is another than that of TCP with the same number."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Host (IP literal, or a name for DNS clusters) and port."""

    host: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where requests can be sent, and how to talk to it."""

    key: ClusterKey
    resolution: Literal["eds", "static", "dns", "asked"] = "eds"
    """``asked``: the address is that of the host that a request is for."""
    addresses: tuple[Address, ...] = ()
    """Sorted; for static and dns only."""
    http2: bool = False
    settings: upstreams.Settings = upstreams.DEFAULTS
    origins: Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocalityEndpoints:
    """The ready endpoints of a cluster in one locality."""

    locality: services.Locality
    addresses: tuple[Address, ...]
    """Sorted, without duplicates."""
    priority: int = 0
    """Those of the lowest get the requests, as far as they are healthy; no number is left out."""
    weight: int | None = None
    """Relative to other localities of the priority; None means the number of addresses."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEndpoints:
    """The endpoints of one EDS cluster; empty when there are none, never missing."""

    key: ClusterKey
    localities: tuple[LocalityEndpoints, ...] = ()
    """Sorted by locality."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WeightedCluster:
    """A share of a route's requests.

    ``cluster`` is None for the share of a reference that cannot be resolved; it is answered 500.
    """

    cluster: ClusterKey | None
    weight: int
    request_headers: treatment.HeaderChanges = treatment.UNCHANGED
    response_headers: treatment.HeaderChanges = treatment.UNCHANGED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Where copies of requests go."""

    cluster: ClusterKey
    millionths: int = 1_000_000
    """The share of requests, of a million."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Send the request on."""

    clusters: tuple[WeightedCluster, ...]
    """At least one; the sum of weights is greater than 0."""
    timeout_ms: int = 0
    """0 means no limit."""
    idle_timeout_ms: int | None = None
    """How long nothing may move; 0 for ever, None as long as the listener lets it."""
    retry: Retry | None = retrying.DEFAULT
    rewrite: treatment.Rewrite | None = None
    asked: bool = False
    """True: its cluster takes the address of the host that is asked for, which is to be found
    first."""
    mirrors: tuple[Mirror, ...] = ()
    websocket: bool = True
    """Requests may become WebSockets."""
    connect: bool = False
    """CONNECT requests are taken too, by a match that asks for no path; they become connections."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """Answer with a redirect; None keeps that part of the request's URL."""

    code: int = 302
    scheme: str | None = None
    host: str | None = None
    port: int | None = None
    path: str | None = None
    prefix: str | None = None
    """Takes the place of what the match's prefix took; None when ``path`` is said."""
    strip_query: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DirectResponse:
    """Answer without asking anybody; for what cannot be resolved or is not allowed."""

    status: int
    body: str = ""
    data: bytes = b""
    """A body that is no text; empty where there is one."""


Action = Forward | Redirect | DirectResponse


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One match and its action."""

    name: str
    """``RouteRule/NAMESPACE/NAME[/grpc]/POSITION[/ROUTE NAME]`` or ``default``; for people, spans
    and explain."""
    match: RouteMatch
    action: Action
    treatment: treatment.Treatment = treatment.NOTHING
    logged: bool = True
    """Whether its requests are in the access log, where there is one."""
    stat_prefix: str = ""
    """The name under which its requests are counted; empty for none."""
    origins: Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHost:
    """Routes of some domains, first match wins."""

    name: str
    domains: tuple[str, ...]
    """Sorted; unique within a route configuration. A domain without port stands for every port only
    if the listener strips ports."""
    routes: tuple[Route, ...]
    origins: Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfiguration:
    """The virtual hosts of one listener or scope."""

    name: str
    virtual_hosts: tuple[VirtualHost, ...]
    """Sorted by name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """Where the proxy sends its spans (OTLP over gRPC)."""

    collector: ClusterKey
    """The collector's cluster, which some layer of the same plan holds."""
    sampling_percent: float = 100.0
    service_name: str = ""
    origins: Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccessLog:
    """A file with a line for each request or connection."""

    path: str
    json: bool = False
    """JSON in place of the proxy's own form of text."""
    origins: Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """A chain whose requests are routed one by one."""

    route_configuration: str
    edge: bool = False
    """True at a gateway: request headers of the outside are not trusted."""
    strip_port: bool = False
    """True: the port in the Host header takes no part in matching."""
    tracing: Tracing | None = None
    access_log: AccessLog | None = None
    """Without the requests of routes that are not logged."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """A chain whose connections are sent on as they are, or as TLS has them inside."""

    forward: str
    """Name of a TcpForward."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Udp:
    """The chain of a UDP listener: the datagrams of a session go to one endpoint."""

    cluster: ClusterKey | None
    """None: nowhere."""
    idle_timeout_ms: int = 60_000
    """Greater than 0."""
    access_log: AccessLog | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What becomes of connections that a listener accepts."""

    name: str
    """Unique in its listener; of one that takes all connections, the listener's own."""
    serves: Http | Tcp | Udp
    tls: accepting.ServerTls | None = None
    """How TLS is terminated; None leaves connections as they are."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which connections a chain gets."""

    match: accepting.ChainMatch
    chain: str
    """Its name. One chain may have several choices, and they need not be next to each other."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A port that the proxy listens on."""

    name: str
    direction: Direction
    address: str
    port: int
    chains: tuple[Chain, ...]
    """At least one, sorted by name; a UDP listener has one, without TLS."""
    choices: tuple[Choice, ...] = ()
    """The first whose match takes a connection has it; one that none takes is closed. Empty: the
    only chain takes all."""
    transport: Literal["tcp", "udp"] = "tcp"
    http3: bool = False
    """True: the same port of UDP serves HTTP/3; its only chain serves HTTP with TLS."""
    client_address: accepting.ClientAddress = accepting.FROM_CONNECTION
    origins: Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TcpForward:
    """Where the connections of a chain go, or the sessions of a UDP port.

    A resource of its own: another answer touches no listener, and so no connection that is open.
    """

    name: str
    """Unique in a plan."""
    clusters: tuple[WeightedCluster, ...]
    """Without headers. At least one, and the sum of weights is greater than 0. Connections of the
    share of None are closed."""
    idle_timeout_ms: int = 3_600_000
    """0 means never."""
    max_duration_ms: int | None = None
    """After it a connection is closed, whatever moves on it."""
    access_log: AccessLog | None = None
    origins: Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A part of a plan that several proxies share; names are disjoint between layers of a plan."""

    clusters: tuple[Cluster, ...] = ()
    endpoints: tuple[ClusterEndpoints, ...] = ()
    route_configurations: tuple[RouteConfiguration, ...] = ()
    listeners: tuple[Listener, ...] = ()
    tcp_forwards: tuple[TcpForward, ...] = ()
    """Sorted by name."""
    certificates: tuple[secrets.SecretKey, ...] = ()
    """Secrets whose certificates and keys this proxy may be served."""
    authorities: tuple[secrets.SecretKey, ...] = ()
    """Secrets of which it may know who signs the certificates of others."""
    cluster_secrets: secrets.Uses = frozenset()
    """What its clusters need; one whose own is not served must be closed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientRoute:
    """A route that an application takes by itself."""

    route: Route
    """Its match has neither method nor query, and no path kind but ``any``, ``exact``,
    ``string_prefix`` and ``regex``."""
    hash_by: tuple[upstreams.HashKey, ...] = ()
    """What requests are told apart by, where its first hashing cluster wants that."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A port of a service, as applications without a proxy reach it."""

    name: str
    """Of its virtual host."""
    authorities: tuple[str, ...]
    """What they may dial, sorted; no address and no wildcard."""
    routes: tuple[ClientRoute, ...]
    origins: Origins = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proxyless:
    """A part of what an application is told that needs no proxy, for it speaks xDS itself."""

    clusters: tuple[Cluster, ...] = ()
    """Without static ones."""
    endpoints: tuple[ClusterEndpoints, ...] = ()
    """Of clusters that have addresses of their own."""
    targets: tuple[Target, ...] = ()
    """Sorted by name; authorities are unique."""
    servers: tuple[Address, ...] = ()
    """Where it may ask how to serve: IP literals, sorted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class ProxyPlan:
    """What one proxy must do."""

    layers: tuple[Layer, ...]
    proxyless: tuple[Proxyless, ...] = ()
    """For an application in a proxy's stead; shared like layers, and disjoint like them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """A proxy cannot be planned yet: these config sources or stores have not synced."""

    waiting_for: tuple[str, ...]
