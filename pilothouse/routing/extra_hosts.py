# SPDX-License-Identifier: Apache-2.0
"""The virtual hosts of what is no service: single pods, hosts outside by an alias, addresses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import (
    catalogue,
    clusters,
    hosts,
    names,
    parsed,
    plan,
    routes,
    tunnels,
)
from pilothouse.routing import memo as memory

_ADDRESSES = "addresses"
_ANYWHERE = "anywhere"


def extra(
    memo: memory.Memo,
    directory: clusters.Directory,
    pods: hosts.Pods,
    allow_any: bool,  # noqa: FBT001  a memo's functions take positions
    domain: str,
) -> tuple[routes.Host, ...]:
    """All of them, for all clients.

    Args:
        memo: Remembers them.
        directory: What there is.
        pods: Whom to tell apart.
        allow_any: True when hosts that nothing speaks of are asked, too.
        domain: DNS domain of the mesh.
    """
    taken = frozenset(host for some in directory.claims.hosts.values() for host in some)
    found = []
    for key, pod_names in pods.named:
        entry = directory.mesh.entries[key]
        for port in entry.reached:
            for pod in pod_names:
                own = tuple(one for one in _pod_names(pod, key, domain) if one not in taken)
                found.append(memo.leaf(_pod, (port.host, pod), port, pod, own))
    for key in directory.aliases.outside:
        service = directory.mesh.entries[key].service
        called = tuple(one for one in hosts.alias_hosts((key,), domain) if one not in taken)
        found += memo.leaf(_outside, key, service, called)
    if pods.networks:
        found.append(memo.leaf(_asked, _ADDRESSES, _ADDRESSES, pods.networks, False))  # noqa: FBT003
    if allow_any:
        found.append(memo.leaf(_asked, _ANYWHERE, _ANYWHERE, ("*",), True))  # noqa: FBT003
        for key, external in directory.claims.externals.items():
            if external.through_egress:
                kept = directory.claims.hosts[key]
                found.append(memo.leaf(_closed, ("closed", key), external, kept))
    return tuple(host for host in found if host.virtual_host.domains)


def _pod_names(pod: str, key: keys.ServiceKey, domain: str) -> tuple[str, ...]:
    name = f"{pod}.{key.name}.{key.namespace}"
    return name, f"{name}.svc", f"{name}.svc.{domain}"


Names = Mapping[str, tuple[tuple[str, ...], int]]
"""Shorter names of hosts, and the port that they are for, by host."""


def local_names(
    namespace: str,
    entries: tuple[catalogue.Entry, ...],
    directory: clusters.Directory,
    pods: hosts.Pods,
) -> Names:
    """What the clients of a namespace may call its services, aliases and pods, without it.

    Args:
        namespace: Its name.
        entries: Its services.
        directory: What there is.
        pods: Those with names.
    """
    found: dict[str, tuple[tuple[str, ...], int]] = {}
    for host, port, name in (
        *(
            (port.host, port.number, one.service.key.name)
            for one in entries
            for port in one.reached
        ),
        *_alias_names(namespace, directory),
        *_short_pod_names(namespace, directory, pods),
    ):
        found[host] = (*found.get(host, ((), port))[0], name), port
    return found


def _alias_names(namespace: str, directory: clusters.Directory) -> Iterator[tuple[str, int, str]]:
    """Hosts, their ports, and names of aliases in a namespace."""
    for ref, aliases in directory.aliases.of.items():
        for key in aliases:
            for port in _ports(ref, directory) if key.namespace == namespace else ():
                yield port.host, port.number, key.name
    for key in directory.aliases.outside:
        if key.namespace == namespace:
            for one in hosts.outside_ports(directory.mesh.entries[key].service):
                host = names.virtual_host(key, port=one.number, external=False)
                yield host, one.number, key.name


def _short_pod_names(
    namespace: str, directory: clusters.Directory, pods: hosts.Pods
) -> Iterator[tuple[str, int, str]]:
    """Hosts, their ports, and names of pods; a service that is called so keeps its name."""
    for key, pod_names in pods.named:
        for pod in pod_names if key.namespace == namespace else ():
            if keys.ServiceKey(key.name, pod) not in directory.mesh.entries:
                for port in directory.mesh.entries[key].reached:
                    yield pod_host(port, pod), port.number, f"{pod}.{key.name}"


def _ports(ref: parsed.Ref, directory: clusters.Directory) -> tuple[catalogue.HttpPort, ...]:
    if ref.external:
        return directory.claims.ports.get(ref.key, ())
    return directory.mesh.entries[ref.key].reached


def local(host: routes.Host, more: tuple[str, ...], port: int) -> routes.Host:
    """A host that clients may call by shorter names, too."""
    domains = tuple(sorted({*host.virtual_host.domains, *catalogue.with_port(more, port=port)}))
    return dataclasses.replace(
        host, virtual_host=dataclasses.replace(host.virtual_host, domains=domains)
    )


def pod_host(port: catalogue.HttpPort, pod: str) -> str:
    """The name of a pod's virtual host."""
    return f"{pod}.{port.host}"


def _pod(port: catalogue.HttpPort, pod: str, called: tuple[str, ...]) -> routes.Host:
    cluster = plan.ClusterKey(
        direction=plan.Direction.OUTBOUND,
        port=port.number,
        service=port.ref.key,
        labels=((hosts.POD_LABEL, pod),),
    )
    domains = catalogue.with_port(called, port=port.number)
    return _host(pod_host(port, pod), domains, port.number, cluster, port.site.transport)


def _outside(service: registry.Service, called: tuple[str, ...]) -> tuple[routes.Host, ...]:
    found = []
    for port in hosts.outside_ports(service):
        cluster = plan.ClusterKey(
            direction=plan.Direction.OUTBOUND, port=port.number, service=service.key
        )
        transport: parsed.Transport = "http" if port.protocol.is_http else "tcp"
        name = names.virtual_host(service.key, port=port.number, external=False)
        domains = catalogue.with_port(called, port=port.number)
        found.append(_host(name, domains, port.number, cluster, transport))
    return tuple(found)


def _host(
    name: str,
    domains: tuple[str, ...],
    port: int,
    cluster: plan.ClusterKey,
    transport: parsed.Transport,
) -> routes.Host:
    """A host all of whose traffic goes to one cluster."""
    fallback = catalogue.default_route(cluster, origins=()) if transport == "http" else None
    site = catalogue.Site(port=port, itself=cluster, transport=transport, fallback=fallback)
    routed = tunnels.route(memory.Memo(), site, (), ())
    routed = dataclasses.replace(routed, extra=((cluster, ()),))
    return routes.host(name, domains, routed, ())


def _closed(external: parsed.External, kept: tuple[str, ...]) -> routes.Host:
    """The ports that an external service does not have, which is reached by the gateway only.

    Its hosts are none that nothing speaks of.
    """
    called = tuple(catalogue.url_host(host) for host in kept)
    bare = () if any(port.number == 80 for port in external.ports) else called
    text = f"ExternalService {external.key} is reached through the egress gateway only"
    route = plan.Route(
        name=names.DEFAULT_ROUTE,
        match=parsed.ANYTHING,
        action=plan.DirectResponse(status=503, body=text),
        origins=external.origins,
    )
    routed = routes.Routed(routes=(route,), uses=(), extra=(), origins=external.origins)
    name = f"closed:{external.key.name}.{external.key.namespace}"
    domains = tuple(sorted((*bare, *(f"{host}:*" for host in called))))
    return routes.host(name, domains, routed, external.origins)


def _asked(
    name: str,
    domains: tuple[str, ...],
    connects: bool,  # noqa: FBT001  a memo's functions take positions
) -> routes.Host:
    """A host whose traffic goes to the address that is asked for."""
    share = plan.WeightedCluster(cluster=hosts.ASKED, weight=1)
    kinds: tuple[plan.PathKind, ...] = ("connect", "any") if connects else ("any",)
    routed = routes.Routed(
        routes=tuple(
            plan.Route(
                name=names.DEFAULT_ROUTE,
                match=plan.RouteMatch(path_kind=kind),
                action=plan.Forward(clusters=(share,), asked=True),
            )
            for kind in kinds
        ),
        uses=(hosts.ASKED,),
        extra=((hosts.ASKED, ()),),
    )
    return routes.host(name, domains, routed, ())
