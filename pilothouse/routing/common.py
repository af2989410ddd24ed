# SPDX-License-Identifier: Apache-2.0
"""The hosts and clusters that the clients of all namespaces share."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pilothouse.model import keys
from pilothouse.routing import (
    catalogue,
    clusters,
    extra_hosts,
    parsed,
    plan,
    routes,
    rules,
    sources,
    tunnels,
)
from pilothouse.routing import hosts as hosting
from pilothouse.routing import memo as memory

name_of: Final = operator.attrgetter("virtual_host.name")
"""The name of a host."""
Extra = tuple[tuple[plan.ClusterKey, plan.Origins], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What clients see that have no services, rules or policies of their own."""

    hosts: tuple[routes.Host, ...]
    """Sorted by name."""
    by_name: Mapping[str, routes.Host]
    """The same."""
    clusters: tuple[plan.Cluster, ...]
    extra: Mapping[plan.ClusterKey, plan.Origins]
    """The clusters that are there for the sake of rules, with these rules."""
    varying: tuple[Varying, ...] = ()
    """The hosts that are not the same for all of them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Varying:
    """A host some of whose routes are for some clients only."""

    entry: catalogue.Entry | None
    """None for an external service."""
    http: catalogue.HttpPort
    domains: tuple[str, ...]
    origins: plan.Origins
    attached: tuple[rules.Bound, ...]

    @property
    def sources(self) -> sources.Truths:
        """The tests of clients that its routes ask for."""
        return frozenset(source for bound in self.attached for source in bound.sources)

    @property
    def name(self) -> str:
        """Of its virtual host."""
        return self.http.host


def varied(memo: memory.Memo, one: Varying, truths: sources.Truths | None) -> routes.Host:
    """A host as clients see it of whom these tests hold; None for all routes that it has."""
    bound = one.attached if truths is None else sources.narrow(one.attached, truths)
    routed = memo.group(tunnels.route, "", one.http.site, (), bound)
    return routes.host(one.name, one.domains, routed, one.origins)


def base(
    memo: memory.Memo,
    directory: clusters.Directory,
    producers: Mapping[str, rules.ByRef],
    pods: hosting.Pods,
    allow_any: bool,  # noqa: FBT001  a memo's functions take positions
    domain: str,
) -> Base:
    """The hosts and clusters that all clients share."""
    found = {
        namespace: memo.group(
            _service_hosts,
            namespace,
            entries,
            directory.aliases,
            producers.get(namespace, {}),
            domain,
        )
        for namespace, entries in directory.mesh.by_namespace.items()
    }
    # No namespace is called that.
    found[""] = memo.group(
        _external_hosts, "", directory.claims, directory.aliases, producers, domain
    )
    more = memo.group(extra_hosts.extra, "", directory, pods, allow_any, domain)
    found["/"] = _Hosts(more, ())
    hosts = sorted([host for some in found.values() for host in some.hosts], key=name_of)
    extra = tuple([memo.leaf(extra_of, namespace, some.hosts) for namespace, some in found.items()])
    shared = memo.group(_base_clusters, "", directory, extra)
    return Base(
        hosts=tuple(hosts),
        by_name={one.virtual_host.name: one for one in hosts},
        clusters=shared.clusters,
        extra=shared.extra,
        varying=tuple([one for some in found.values() for one in some.varying]),
    )


class _Hosts(NamedTuple):
    """The hosts of a namespace, and those of them that are not the same for all clients."""

    hosts: tuple[routes.Host, ...]
    varying: tuple[Varying, ...]


def extra_of(hosts: tuple[routes.Host, ...]) -> Extra:
    """The clusters that are there for the sake of some routes, with what these come from."""
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
                producers.get(entry.reached[0].ref, none) if entry.reached else none
                for entry in entries
            ]
        )
        found += memo.group(
            _service_clusters, namespace, entries, policies, directory.policies.otherwise
        )
    merged = dict(_merged(extra))
    found += [
        clusters.build(memo, directory, key, origins=origins) for key, origins in merged.items()
    ]
    found.sort(key=order_of)
    return _BaseClusters(clusters=tuple(found), extra=merged)


def order_of(cluster: plan.Cluster) -> tuple[object, ...]:
    """Of clusters in a layer."""
    return routes.cluster_order(cluster.key)


def _service_hosts(
    memo: memory.Memo,
    entries: tuple[catalogue.Entry, ...],
    aliases: hosting.Aliases,
    producers: rules.ByRef,
    domain: str,
) -> _Hosts:
    of = aliases.of
    facts = {
        ref.key: (entry, of.get(ref, ()), producers.get(ref, ()))
        for entry in entries
        if entry.reached
        for ref in (entry.reached[0].ref,)
    }
    found = memo.mapped_group(_hosts_of_service, "", facts, domain).values()
    return _Hosts(
        tuple([host for some in found for host in some.hosts]),
        tuple([one for some in found for one in some.varying]),
    )


def _hosts_of_service(
    memo: memory.Memo,
    facts: tuple[catalogue.Entry, tuple[keys.ServiceKey, ...], tuple[rules.Attached, ...]],
    domain: str,
) -> _Hosts:
    entry, others, producers = facts
    found = []
    varying = []
    for http in entry.reached:
        attached = rules.at_port(producers, http.number)
        bound = sources.narrow(attached, sources.NOTHING)
        routed = memo.group(tunnels.route, http.host, http.site, (), bound)
        host = memo.leaf(_service_host, http.host, entry, others, http, routed, domain)
        found.append(host)
        if bound is not attached:
            varying.append(_varying(host, http, attached, (), entry))
    return _Hosts(tuple(found), tuple(varying))


def _service_host(
    entry: catalogue.Entry,
    aliases: tuple[keys.ServiceKey, ...],
    http: catalogue.HttpPort,
    routed: routes.Routed,
    domain: str,
) -> routes.Host:
    more = hosting.alias_hosts(aliases, domain)
    domains = catalogue.service_domains(
        entry, port=http.number, domain=domain, local=False, more=more
    )
    return routes.host(http.host, domains, routed, ())


def _varying(
    host: routes.Host,
    http: catalogue.HttpPort,
    attached: tuple[rules.Bound, ...],
    origins: plan.Origins,
    entry: catalogue.Entry | None = None,
) -> Varying:
    domains = host.virtual_host.domains
    return Varying(entry=entry, http=http, domains=domains, origins=origins, attached=attached)


def _service_clusters(
    memo: memory.Memo,
    entries: tuple[catalogue.Entry, ...],
    policies: tuple[clusters.ByLabels, ...],
    otherwise: parsed.Connecting,
) -> tuple[plan.Cluster, ...]:
    facts = {
        http.host: (http.site.itself, http.http2, applying)
        for entry, shared in zip(entries, policies, strict=True)
        for applying in (clusters.applying(clusters.NO_POLICIES, shared, ()),)
        for http in entry.reached
        if http.site.itself is not None
    }
    return tuple(memo.mapped(_service_cluster, "", facts, otherwise).values())


def _service_cluster(
    facts: tuple[plan.ClusterKey, bool, tuple[parsed.Policy, ...]], otherwise: parsed.Connecting
) -> plan.Cluster:
    key, http2, policies = facts
    return clusters.cluster(key, http2, policies, (), otherwise)


def _external_hosts(
    memo: memory.Memo,
    claims: catalogue.Claims,
    aliases: hosting.Aliases,
    producers: Mapping[str, rules.ByRef],
    domain: str,
) -> _Hosts:
    found = []
    varying = []
    for key, external in claims.externals.items():
        attached = producers.get(key.namespace, {})
        more = hosting.alias_hosts(aliases.external(key), domain)
        for http in claims.ports[key]:
            domains = catalogue.external_domains(claims.hosts[key], port=http.number, more=more)
            if domains:
                bound = rules.at_port(attached.get(http.ref, ()), http.number)
                narrow = sources.narrow(bound, sources.NOTHING)
                routed = memo.group(tunnels.route, http.host, http.site, (), narrow)
                origins = external.origins
                host = memo.leaf(routes.host, http.host, http.host, domains, routed, origins)
                found.append(host)
                if narrow is not bound:
                    varying.append(_varying(host, http, bound, origins))
    return _Hosts(tuple(found), tuple(varying))
