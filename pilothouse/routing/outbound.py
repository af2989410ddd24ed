# SPDX-License-Identifier: Apache-2.0
"""The outbound layers of sidecars: one for each namespace of clients, most of it shared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from pilothouse.model import keys
from pilothouse.routing import catalogue, clusters, names, parsed, plan, routes, rules
from pilothouse.routing import memo as memory

Extra = tuple[tuple[plan.ClusterKey, plan.Origins], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What clients see that have no services, rules or policies of their own."""

    hosts: tuple[routes.Host, ...]
    """Sorted by name."""
    by_name: Mapping[str, routes.Host]
    clusters: tuple[plan.Cluster, ...]
    extra: Mapping[plan.ClusterKey, plan.Origins]
    """The clusters that are there for the sake of rules, with these rules."""


def base(
    memo: memory.Memo,
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
    domain: str,
) -> Base:
    """The hosts and clusters that all clients share."""
    found = {
        namespace: memo.group(
            _service_hosts, namespace, entries, producers.get(namespace, {}), domain
        )
        for namespace, entries in directory.mesh.by_namespace.items()
    }
    # No namespace is called that.
    found[""] = memo.group(_external_hosts, "", directory.claims, producers)
    hosts = sorted((host for some in found.values() for host in some), key=_name)
    extra = tuple([memo.leaf(_extra, namespace, some) for namespace, some in found.items()])
    shared = memo.group(_base_clusters, "", directory, extra)
    return Base(
        hosts=tuple(hosts),
        by_name={_name(one): one for one in hosts},
        clusters=shared.clusters,
        extra=shared.extra,
    )


def _extra(hosts: tuple[routes.Host, ...]) -> Extra:
    return _merged(host.routed.extra for host in hosts if host.routed.extra)


def _merged(some: Iterable[Extra]) -> Extra:
    found: dict[plan.ClusterKey, plan.Origins] = {}
    for extra in some:
        for key, origins in extra:
            found[key] = routes.merge_origins(found.get(key, ()), origins)
    return tuple((key, found[key]) for key in sorted(found, key=routes.cluster_order))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _BaseClusters:
    clusters: tuple[plan.Cluster, ...]
    extra: Mapping[plan.ClusterKey, plan.Origins]


def _base_clusters(
    memo: memory.Memo, directory: clusters.Directory, extra: tuple[Extra, ...]
) -> _BaseClusters:
    producers, none = directory.policies.producers, clusters.NO_POLICIES
    found: list[plan.Cluster] = []
    for namespace, entries in directory.mesh.by_namespace.items():
        policies = tuple(
            [
                producers.get(parsed.Ref(external=False, key=entry.service.key), none)
                for entry in entries
            ]
        )
        found += memo.group(_service_clusters, namespace, entries, policies)
    merged = dict(_merged(extra))
    found += [
        clusters.build(memo, directory, key, origins=origins) for key, origins in merged.items()
    ]
    found.sort(key=_order)
    return _BaseClusters(clusters=tuple(found), extra=merged)


def _name(host: routes.Host) -> str:
    return host.virtual_host.name


def _order(cluster: plan.Cluster) -> tuple[object, ...]:
    return routes.cluster_order(cluster.key)


def _service_hosts(
    memo: memory.Memo,
    entries: tuple[catalogue.Entry, ...],
    producers: rules.ByRef,
    domain: str,
) -> tuple[routes.Host, ...]:
    found = []
    for entry in entries:
        for http in entry.ports:
            attached = rules.at_port(producers.get(http.ref, ()), http.number)
            routed = memo.group(routes.route_host, http.host, http.site, (), attached)
            found.append(memo.leaf(_service_host, http.host, entry, http, routed, domain))
    return tuple(found)


def _service_host(
    entry: catalogue.Entry, http: catalogue.HttpPort, routed: routes.Routed, domain: str
) -> routes.Host:
    domains = catalogue.service_domains(entry, port=http.number, domain=domain, local=False)
    return routes.host(http.host, domains, routed, ())


def _local_host(
    entry: catalogue.Entry, http: catalogue.HttpPort, routed: routes.Routed, domain: str
) -> routes.Host:
    domains = catalogue.service_domains(entry, port=http.number, domain=domain, local=True)
    return routes.host(http.host, domains, routed, ())


def _service_clusters(
    memo: memory.Memo,
    entries: tuple[catalogue.Entry, ...],
    policies: tuple[clusters.ByLabels, ...],
) -> tuple[plan.Cluster, ...]:
    return tuple(
        memo.leaf(
            clusters.cluster,
            http.host,
            http.site.itself,
            http.http2,
            clusters.applying(clusters.NO_POLICIES, shared, ()),
            (),
        )
        for entry, shared in zip(entries, policies, strict=True)
        for http in entry.ports
        if http.site.itself is not None
    )


def _external_hosts(
    memo: memory.Memo, claims: catalogue.Claims, producers: Mapping[str, rules.ByRef]
) -> tuple[routes.Host, ...]:
    found = []
    for key, external in claims.externals.items():
        attached = producers.get(key.namespace, {})
        for http in claims.ports[key]:
            domains = catalogue.external_domains(claims.hosts[key], port=http.number)
            if domains:
                bound = rules.at_port(attached.get(http.ref, ()), http.number)
                routed = memo.group(routes.route_host, http.host, http.site, (), bound)
                found.append(
                    memo.leaf(routes.host, http.host, http.host, domains, routed, external.origins)
                )
    return tuple(found)


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

    @property
    def is_nothing(self) -> bool:
        """True when they share everything."""
        return not (self.entries or self.consumers or self.scoped)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """The outbound layer of one namespace."""

    layer: plan.Layer
    shadows: tuple[tuple[str, routes.Shadow], ...]
    """Matches of the namespace's own rules that no request reaches, with the host."""


def outbound(
    memo: memory.Memo,
    shared: Base,
    own: Own,
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
    domain: str,
) -> Outbound:
    """What the sidecars of one namespace send, and how."""
    consumed = _consumer_hosts(memo, shared, own, directory, producers)
    changed: dict[str, routes.Host | None] = dict(consumed)
    for entry in own.entries:
        for http in entry.ports:
            routed = shared.by_name[http.host].routed
            changed[http.host] = memo.leaf(_local_host, http.host, entry, http, routed, domain)
    _give_way(changed, shared, own, directory)
    hosts = [changed.get(_name(host), host) for host in shared.hosts]
    virtual_hosts = tuple([_in_scope(memo, host, own.scoped) for host in hosts if host is not None])
    found = _clusters(memo, shared, own, directory, consumed)
    shown = clusters.client_certificates(directory.policies, found)
    return Outbound(
        layer=plan.Layer(
            clusters=found,
            route_configurations=(memo.leaf(_route_configuration, "", virtual_hosts),),
            certificates=clusters.served(shown, namespace=own.namespace),
            client_certificates=shown,
        ),
        shadows=tuple(
            (_name(host), shadow) for host in consumed.values() for shadow in host.routed.shadows
        ),
    )


def _route_configuration(virtual_hosts: tuple[plan.VirtualHost, ...]) -> plan.RouteConfiguration:
    return plan.RouteConfiguration(name=names.HTTP_PROXY, virtual_hosts=virtual_hosts)


def _consumer_hosts(
    memo: memory.Memo,
    shared: Base,
    own: Own,
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
) -> Mapping[str, routes.Host]:
    """The hosts of other namespaces that the clients' own rules speak of."""
    found: dict[str, routes.Host] = {}
    for ref, attached in own.consumers.items():
        theirs = producers.get(ref.key.namespace, {}).get(ref, ())
        for http in _ports(directory, ref):
            ours = rules.at_port(attached, http.number)
            host = shared.by_name.get(http.host)
            if ours and host is not None:
                bound = rules.at_port(theirs, http.number)
                routed = memo.group(routes.route_host, http.host, http.site, ours, bound)
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
    return entry.ports if entry else ()


def _give_way(
    changed: dict[str, routes.Host | None],
    shared: Base,
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
    if not scoped:
        return host.virtual_host
    hits = tuple((key, scoped[key]) for key in host.routed.uses if key in scoped)
    if not hits:
        return host.virtual_host
    return memo.leaf(routes.rescope, _name(host), host.virtual_host, hits)


def _clusters(
    memo: memory.Memo,
    shared: Base,
    own: Own,
    directory: clusters.Directory,
    consumed: Mapping[str, routes.Host],
) -> tuple[plan.Cluster, ...]:
    extra = dict(_extra(tuple(consumed.values())))
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
    return tuple(sorted(found.values(), key=_order))
