# SPDX-License-Identifier: Apache-2.0
"""Services and external services, arranged for routing: who owns a name, which ports are HTTP."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from typing import Final

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import memo as memory
from pilothouse.routing import names, parsed, plan

NO_DEFAULTS: Final = parsed.MeshDefaults()
COLLECTOR = keys.ServiceKey(objects.ROOT_NAMESPACE, "tracing-collector")
"""The collector of the mesh's tracing, as an external service; no ExternalService may take the
name.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where requests are routed: all that routes depend on besides the rules."""

    port: int
    """The port that the requests were for."""
    parent: keys.ObjectKey | None = None
    """The ExternalService whose requests these are; None elsewhere."""
    itself: plan.ClusterKey | None = None
    """Where a route without destinations goes; None when there is no such place."""
    gateway: bool = False
    """True at a gateway proxy, which alone may send to external services behind the egress gateway.
    """
    egress_only: bool = False
    """True when requests may leave through the egress gateway only."""
    fallback: plan.Route | None = None
    """The route after those of all rules."""
    transport: parsed.Transport = "http"
    """What is routed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HttpPort:
    """A port whose requests, or connections, sidecars route one by one."""

    ref: parsed.Ref
    number: int
    host: str
    """Name of its virtual host; for what is no HTTP, of that for requests to connect to it."""
    site: Site
    http2: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A service, and what follows from it alone."""

    service: registry.Service
    ports: tuple[HttpPort, ...]
    """Those of HTTP, sorted by number."""
    streams: tuple[HttpPort, ...]
    """Those of TLS, TCP and UDP, sorted by number, those of UDP last."""
    reached: tuple[HttpPort, ...]
    """Those that clients reach through the HTTP proxy of their sidecar, sorted by number."""
    ips: tuple[str, ...]
    """The virtual addresses it owns, sorted: should two services claim one, the first in key order
    does.
    """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The services of the mesh."""

    entries: Mapping[keys.ServiceKey, Entry]
    """In key order."""
    by_namespace: Mapping[str, tuple[Entry, ...]]
    """In order of namespaces, then names."""
    ip_owners: Mapping[str, keys.ServiceKey]


def catalogue(
    memo: memory.Memo,
    services: Mapping[keys.ServiceKey, registry.Service],
    defaults: parsed.MeshDefaults = NO_DEFAULTS,
) -> Catalogue:
    """Arrange the services, where the mesh has these defaults."""
    retry = _default(defaults)
    by_namespace: dict[str, list[Entry]] = {}
    facts: dict[keys.ServiceKey, tuple[registry.Service, tuple[str, ...]]] = {}
    ip_owners: dict[str, keys.ServiceKey] = {}
    for key in sorted(services):
        service = services[key]
        owned = [ip for ip in service.cluster_ips if ip_owners.setdefault(ip, key) == key]
        facts[key] = service, tuple(sorted(owned))
    entries = memo.mapped(_entry, "", facts, retry)
    for key, one in entries.items():
        by_namespace.setdefault(key.namespace, []).append(one)
    return Catalogue(
        entries=entries,
        by_namespace={name: tuple(members) for name, members in by_namespace.items()},
        ip_owners=ip_owners,
    )


Retry = tuple[plan.Retry | None, plan.Origins]
"""When requests are retried that no rule speaks of, and who says so."""
_RETRY: Final[Retry] = (plan.Retry(), ())


def _default(defaults: parsed.MeshDefaults) -> Retry:
    if defaults.retry == plan.Retry():
        return _RETRY
    return defaults.retry, defaults.origins


def _entry(facts: tuple[registry.Service, tuple[str, ...]], retry: Retry) -> Entry:
    return entry(*facts, retry)


def entry(service: registry.Service, ips: tuple[str, ...], retry: Retry = _RETRY) -> Entry:
    """Look at one service."""
    http = http_ports(service, retry)
    taken = {port.number for port in http}
    streams = _streams(service, taken)
    reached = (*http, *(port for port in streams if port.site.transport != "udp"))
    return Entry(
        service=service,
        ports=http,
        streams=streams,
        reached=tuple(sorted(reached, key=_number)),
        ips=ips,
    )


def _number(port: HttpPort) -> int:
    return port.number


def http_ports(service: registry.Service, retry: Retry = _RETRY) -> tuple[HttpPort, ...]:
    """The HTTP ports of a service; one of type ExternalName is a DNS alias, and has none."""
    if service.external_name is not None:
        return ()
    ref = parsed.Ref(external=False, key=service.key)
    found: dict[int, HttpPort] = {}
    for port in service.ports:
        if port.protocol.is_http and port.number not in found:
            cluster = plan.ClusterKey(
                direction=plan.Direction.OUTBOUND, port=port.number, service=service.key
            )
            found[port.number] = HttpPort(
                ref=ref,
                number=port.number,
                host=names.virtual_host(service.key, port=port.number, external=False),
                site=Site(
                    port=port.number,
                    itself=cluster,
                    fallback=default_route(cluster, origins=(), retry=retry),
                ),
                http2=speaks_http2(port),
            )
    return tuple(found[number] for number in sorted(found))


_TRANSPORTS: Final[Mapping[registry.AppProtocol, parsed.Transport]] = {
    registry.AppProtocol.TLS: "tls",
    registry.AppProtocol.TCP: "tcp",
    registry.AppProtocol.UDP: "udp",
}


def _streams(service: registry.Service, taken: set[int]) -> tuple[HttpPort, ...]:
    """The ports of a service that are no HTTP; ``taken`` are those of HTTP."""
    if service.external_name is not None:
        return ()
    ref = parsed.Ref(external=False, key=service.key)
    found: dict[tuple[bool, int], HttpPort] = {}
    for port in service.ports:
        transport = _TRANSPORTS.get(port.protocol)
        udp = transport == "udp"
        if transport is None or (udp, port.number) in found or (port.number in taken and not udp):
            continue
        cluster = plan.ClusterKey(
            direction=plan.Direction.OUTBOUND, port=port.number, service=service.key, udp=udp
        )
        found[udp, port.number] = HttpPort(
            ref=ref,
            number=port.number,
            host=names.virtual_host(service.key, port=port.number, external=False),
            site=Site(port=port.number, itself=cluster, transport=transport),
        )
    return tuple(found[place] for place in sorted(found))


def speaks_http2(port: registry.Port) -> bool:
    """True when HTTP/2 is spoken on it without being negotiated."""
    return port.protocol in (registry.AppProtocol.HTTP2, registry.AppProtocol.GRPC)


def default_route(
    cluster: plan.ClusterKey, *, origins: plan.Origins, retry: Retry = _RETRY
) -> plan.Route:
    """The route for requests that no rule speaks of."""
    share = plan.WeightedCluster(cluster=cluster, weight=1)
    when, said_by = retry
    action = plan.Forward(clusters=(share,), retry=when)
    return plan.Route(
        name=names.DEFAULT_ROUTE,
        match=parsed.ANYTHING,
        action=action,
        origins=tuple(sorted({*origins, *said_by})),
    )


def external_ports(external: parsed.External, retry: Retry = _RETRY) -> tuple[HttpPort, ...]:
    """The ports of an external service, as sidecars see them."""
    ref = parsed.Ref(external=True, key=external.key)
    return tuple(
        HttpPort(
            ref=ref,
            number=port.number,
            host=names.virtual_host(external.key, port=port.number, external=True),
            site=_external_site(external, port, retry),
        )
        for port in external.ports
    )


def _external_site(external: parsed.External, at: parsed.ExternalPort, retry: Retry) -> Site:
    port = at.number
    cluster = external_cluster_key(external.key, port)
    if at.transport != "http":
        return Site(
            port=port,
            parent=external.object,
            itself=None if external.through_egress else cluster,
            egress_only=external.through_egress,
            transport=at.transport,
        )
    if external.through_egress:
        text = (
            f"ExternalService {external.key} is reached through the egress gateway only, "
            "and no rule leads there"
        )
        closed = plan.Route(
            name=names.DEFAULT_ROUTE,
            match=parsed.ANYTHING,
            action=plan.DirectResponse(status=503, body=text),
            origins=external.origins,
        )
        return Site(port=port, parent=external.object, egress_only=True, fallback=closed)
    return Site(
        port=port,
        parent=external.object,
        itself=cluster,
        fallback=default_route(cluster, origins=external.origins, retry=retry),
    )


def external_cluster_key(key: keys.ServiceKey, port: int) -> plan.ClusterKey:
    """The cluster of an external service's port."""
    return plan.ClusterKey(direction=plan.Direction.OUTBOUND, port=port, service=key, external=True)


def service_domains(
    entry: Entry, *, port: int, domain: str, local: bool, more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Every authority a client may write for a port of a service: any of its names, or its address.

    Args:
        entry: The service.
        more: Other names that stand for it.
        port: Number of its port; the forms without port stand for port 80, as in http URLs.
        domain: DNS domain of the mesh.
        local: True for clients in the service's own namespace, who may leave the namespace out.
    """
    namespace, name = entry.service.key
    hosts = [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{domain}"]
    if local:
        hosts.append(name)
    hosts.extend(url_host(address) for address in entry.ips)
    hosts.extend(more)
    return with_port(tuple(hosts), port=port)


def with_port(hosts: tuple[str, ...], *, port: int) -> tuple[str, ...]:
    """Hosts with a port, and without where the port is that of http URLs; sorted."""
    bare = hosts if port == 80 else ()
    return tuple(sorted({*bare, *(f"{host}:{port}" for host in hosts)}))


def url_host(address: str) -> str:
    """An IP address as it stands in an authority: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def is_ip(text: str) -> bool:
    """Tell an IP address from a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Which external service keeps which host."""

    externals: Mapping[keys.ServiceKey, parsed.External]
    """In key order."""
    hosts: Mapping[keys.ServiceKey, tuple[str, ...]]
    """The hosts that each keeps, sorted."""
    ports: Mapping[keys.ServiceKey, tuple[HttpPort, ...]]
    lost: Mapping[keys.ServiceKey, tuple[str, ...]]
    """What each loses and to whom, as sentences."""
    undotted: tuple[tuple[str, keys.ServiceKey], ...]
    """Hosts without a dot, with who keeps them: a client's own namespace may have a service of that
    name.
    """


def claims(
    memo: memory.Memo,
    externals: tuple[parsed.External, ...],
    mesh: Catalogue,
    domain: str,
    defaults: parsed.MeshDefaults = NO_DEFAULTS,
) -> Claims:
    """Settle who keeps a host claimed twice: a service of the mesh, else the older claim."""
    owners: dict[str, str] = {}
    kept: dict[keys.ServiceKey, tuple[str, ...]] = {}
    lost: dict[keys.ServiceKey, tuple[str, ...]] = {}
    for external in sorted(externals, key=parsed.seniority):
        if external.key == COLLECTOR:
            lost[external.key] = ("the name is taken by the collector of the mesh's tracing",)
            continue
        losses = []
        wins = []
        for host in external.hosts:
            owner = _mesh_owner(host, mesh=mesh, domain=domain) or owners.get(host)
            if owner is None:
                wins.append(host)
                owners[host] = f"ExternalService {external.key}"
            else:
                losses.append(f"host {host} belongs to {owner}")
        kept[external.key] = tuple(sorted(wins))
        lost[external.key] = tuple(losses)
    counted = [one for one in externals if one.key in kept]
    retry = _default(defaults)
    return Claims(
        externals={one.key: one for one in counted},
        hosts=kept,
        ports={one.key: memo.leaf(external_ports, one.key, one, retry) for one in counted},
        lost={key: losses for key, losses in lost.items() if losses},
        undotted=tuple(
            sorted((host, key) for key, hosts in kept.items() for host in hosts if "." not in host)
        ),
    )


def external_domains(
    hosts: tuple[str, ...], *, port: int, more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Every authority a client may write for a port of an external service, or of ``more``."""
    return with_port((*(url_host(host) for host in hosts), *more), port=port)


def _mesh_owner(host: str, *, mesh: Catalogue, domain: str) -> str | None:
    owner = mesh.ip_owners.get(host) or named(host, mesh=mesh, domain=domain)
    return None if owner is None else f"service {owner}"


def named(host: str, *, mesh: Catalogue, domain: str) -> keys.ServiceKey | None:
    """The service with a name as clients of all namespaces may write it."""
    name, _, rest = host.partition(".")
    for suffix in (f".svc.{domain}", ".svc", ""):
        if rest.endswith(suffix):
            key = keys.ServiceKey(rest.removesuffix(suffix), name)
            if key in mesh.entries:
                return key
    return None
