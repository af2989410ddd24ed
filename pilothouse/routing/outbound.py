# SPDX-License-Identifier: Apache-2.0
"""The outbound layers of sidecars: one for each namespace of clients, most of it shared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from pilothouse.model import keys
from pilothouse.routing import (
    catalogue,
    clusters,
    common,
    connections,
    credentials,
    extra_hosts,
    names,
    parsed,
    plan,
    routes,
    rules,
    sources,
    tunnels,
)
from pilothouse.routing import memo as memory


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What the clients of one namespace do not share with others."""

    namespace: str
    entries: tuple[catalogue.Entry, ...] = ()
    """Its services, whose names they may write without the namespace."""
    consumers: rules.ByRef
    """Its rules for services and external services of other namespaces."""
    scoped: clusters.Scoped
    """The clusters that its policies change."""
    truths: sources.Truths = sources.NOTHING
    """The tests of sources that hold of these clients."""
    varied: tuple[routes.Host, ...] = ()
    """The hosts that are others for them because of that."""
    names: extra_hosts.Names = dataclasses.field(default_factory=dict)
    """Shorter names by which its clients may call hosts."""
    local: Mapping[str, routes.Host] = dataclasses.field(default_factory=dict)
    """The hosts under all their names, but for what is varied."""

    @property
    def is_nothing(self) -> bool:
        """True when they share everything that does not come from tests of sources."""
        return not (self.entries or self.consumers or self.scoped)


NOTHING = Own(namespace="", consumers={}, scoped={})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """The outbound layer of one namespace."""

    layer: plan.Layer


def unreached(
    memo: memory.Memo,
    shared: common.Base,
    owns: tuple[Own, ...],
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
) -> tuple[tuple[str, routes.Shadow], ...]:
    """Matches that no request reaches, with the hosts where that is so.

    Of hosts that vary, and of rules that ask for clients, all routes are looked at together.
    """
    whole = {one.name: memo.group(common.varied, one.name, one, None) for one in shared.varying}
    found = [
        (name, shadow)
        for name, host in shared.by_name.items()
        for shadow in whole.get(name, host).routed.shadows
    ]
    found += memo.leaf(_udp_shadows, "", directory.mesh, producers)
    for own in owns:
        found += memo.group(_own_shadows, own.namespace, shared, own, directory, producers)
    return tuple(found)


Shadows = tuple[tuple[str, routes.Shadow], ...]


def _udp_shadows(mesh: catalogue.Catalogue, producers: Mapping[str, rules.ByRef]) -> Shadows:
    """Those of UDP, which has no virtual hosts."""
    return tuple(
        (port.host, shadow)
        for by_ref in producers.values()
        for ref, attached in by_ref.items()
        if not ref.external and ref.key in mesh.entries
        for port in mesh.entries[ref.key].streams
        if port.site.transport == "udp"
        for shadow in connections.connect(
            connections.Port(listener="", site=port.site), (), rules.at_port(attached, port.number)
        ).shadows
    )


def _own_shadows(
    memo: memory.Memo,
    shared: common.Base,
    own: Own,
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
) -> Shadows:
    return _shadows(consumer_hosts(memo, shared, own, directory, producers, whole=True).values())


def _shadows(hosts: Iterable[routes.Host]) -> Shadows:
    return tuple((common.name_of(host), shadow) for host in hosts for shadow in host.routed.shadows)


def local_hosts(
    memo: memory.Memo, shared: common.Base, names: extra_hosts.Names
) -> Mapping[str, routes.Host]:
    """The hosts that the clients of a namespace may call by shorter names."""
    by_name = shared.by_name
    shorter = {host: (by_name[host], short) for host, short in names.items() if host in by_name}
    return memo.mapped(_local, "", shorter)


def _local(of: tuple[routes.Host, tuple[tuple[str, ...], int]]) -> routes.Host:
    host, (names, port) = of
    return extra_hosts.local(host, names, port)


def outbound(
    memo: memory.Memo,
    shared: common.Base,
    own: Own,
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
) -> Outbound:
    """What those sidecars of one namespace send, and how, of whom the same tests hold."""
    varied = {common.name_of(host): host for host in own.varied}
    consumed = consumer_hosts(memo, shared, own, directory, producers)
    changed: dict[str, routes.Host | None] = {**own.local}
    for name, host in {**varied, **consumed}.items():
        short = own.names.get(name)
        changed[name] = memo.leaf(extra_hosts.local, name, host, *short) if short else host
    _give_way(changed, shared, own, directory)
    hosts = [changed.get(name, host) for name, host in shared.by_name.items()]
    left = [host for host in hosts if host is not None]
    if own.scoped:
        virtual_hosts = tuple([_in_scope(memo, host, own.scoped) for host in left])
    else:
        virtual_hosts = tuple([host.virtual_host for host in left])
    found = _clusters(memo, shared, own, directory, (*varied.values(), *consumed.values()))
    needed = credentials.needed(found, certified=directory.policies.certified)
    return Outbound(
        layer=plan.Layer(
            clusters=found,
            route_configurations=(memo.leaf(_route_configuration, "", virtual_hosts),),
            certificates=needed.served(own.namespace),
            authorities=needed.authorities,
            cluster_secrets=needed.uses,
        ),
    )


def _route_configuration(virtual_hosts: tuple[plan.VirtualHost, ...]) -> plan.RouteConfiguration:
    return plan.RouteConfiguration(name=names.HTTP_PROXY, virtual_hosts=virtual_hosts)


def consumer_hosts(
    memo: memory.Memo,
    shared: common.Base,
    own: Own,
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
    *,
    whole: bool = False,
) -> Mapping[str, routes.Host]:
    """The hosts of other namespaces that the clients' own rules speak of.

    With ``whole`` they have the routes for all clients, whatever tests hold of these.
    """

    def taken(bounds: tuple[rules.Bound, ...]) -> tuple[rules.Bound, ...]:
        return bounds if whole else sources.narrow(bounds, own.truths)

    found: dict[str, routes.Host] = {}
    for ref, attached in own.consumers.items():
        theirs = producers.get(ref.key.namespace, {}).get(ref, ())
        for http in _ports(directory, ref):
            ours = taken(rules.at_port(attached, http.number))
            host = shared.by_name.get(http.host)
            if ours and host is not None:
                bound = taken(rules.at_port(theirs, http.number))
                routed = memo.group(tunnels.route, http.host, http.site, ours, bound)
                external = directory.claims.externals[ref.key] if ref.external else None
                found[http.host] = memo.leaf(
                    routes.host,
                    http.host,
                    http.host,
                    host.virtual_host.domains,
                    routed,
                    external.origins if external else (),
                )
    return found


def _ports(directory: clusters.Directory, ref: parsed.Ref) -> tuple[catalogue.HttpPort, ...]:
    if ref.external:
        return directory.claims.ports.get(ref.key, ())
    entry = directory.mesh.entries.get(ref.key)
    return entry.reached if entry else ()


def _give_way(
    changed: dict[str, routes.Host | None],
    shared: common.Base,
    own: Own,
    directory: clusters.Directory,
) -> None:
    """Give undotted hosts to services of the clients' namespace that have that short name."""
    for name, external in directory.claims.undotted:
        if keys.ServiceKey(own.namespace, name) in directory.mesh.entries:
            for http in directory.claims.ports[external]:
                host = changed.get(http.host) or shared.by_name[http.host]
                taken = {name, f"{name}:{http.number}"}
                left = tuple(one for one in host.virtual_host.domains if one not in taken)
                virtual_host = dataclasses.replace(host.virtual_host, domains=left)
                changed[http.host] = (
                    dataclasses.replace(host, virtual_host=virtual_host) if left else None
                )


def _in_scope(memo: memory.Memo, host: routes.Host, scoped: clusters.Scoped) -> plan.VirtualHost:
    hits = tuple((key, scoped[key]) for key in host.routed.uses if key in scoped)
    if not hits:
        return host.virtual_host
    return memo.leaf(routes.rescope, common.name_of(host), host.virtual_host, hits)


def _clusters(
    memo: memory.Memo,
    shared: common.Base,
    own: Own,
    directory: clusters.Directory,
    own_hosts: tuple[routes.Host, ...],
) -> tuple[plan.Cluster, ...]:
    extra = dict(common.extra_of(own_hosts))
    if not extra and not own.scoped:
        return shared.clusters
    origins = {
        key: routes.merge_origins(shared.extra.get(key, ()), more) for key, more in extra.items()
    }
    found = {cluster.key: cluster for cluster in shared.clusters}
    for key, more in origins.items():
        if more != shared.extra.get(key):
            found[key] = clusters.build(memo, directory, key, origins=more)
    for key, scoped in own.scoped.items():
        if key in found:
            more = origins.get(key) or shared.extra.get(key, ())
            del found[key]
            found[scoped] = clusters.build(memo, directory, scoped, origins=more)
    return tuple(sorted(found.values(), key=common.order_of))
