# SPDX-License-Identifier: Apache-2.0
"""Clusters, the policies that shape them, and their endpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import (
    catalogue,
    hosts,
    localities,
    parsed,
    plan,
    routes,
    rules,
    upstreams,
)
from pilothouse.routing import memo as memory

ByLabels = Mapping[keys.Labels, parsed.Policy]
UNSAID: Final = parsed.Connecting()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The DestinationPolicies that count, by their own namespace, target and label set."""

    producers: Mapping[parsed.Ref, ByLabels]
    """From the target's own namespace: for all clients."""
    consumers: Mapping[str, Mapping[parsed.Ref, ByLabels]]
    """From another namespace: for the clients in it."""
    losers: Mapping[keys.ObjectKey, keys.ObjectKey]
    """Policies that do not count, because an older one says how to talk to the same thing."""
    certified: bool = False
    """True when some policy names a secret."""
    zoned: bool = False
    """True when some policy weighs zones."""
    otherwise: parsed.Connecting = UNSAID
    """What holds where no policy says it."""


def arrange(policies: tuple[parsed.Policy, ...], otherwise: parsed.Connecting = UNSAID) -> Policies:
    """Arrange policies; of several in one namespace for the same endpoints the oldest counts."""
    producers: dict[parsed.Ref, dict[keys.Labels, parsed.Policy]] = {}
    consumers: dict[str, dict[parsed.Ref, dict[keys.Labels, parsed.Policy]]] = {}
    losers: dict[keys.ObjectKey, keys.ObjectKey] = {}
    for policy in sorted(policies, key=parsed.seniority):
        speaker = policy.key.namespace
        home = policy.target.key.namespace
        side = producers if speaker == home else consumers.setdefault(speaker, {})
        winner = side.setdefault(policy.target, {}).setdefault(policy.labels, policy)
        if winner is not policy:
            losers[policy.key] = winner.key
    said = [sections for one in policies for sections in (one.sections, *one.ports.values())]
    return Policies(
        producers=producers,
        consumers=consumers,
        losers=losers,
        certified=any(
            (tls := sections.get("tls")) is not None
            and (tls.certificate is not None or tls.authority is not None)
            for sections in said
        ),
        zoned=any(
            isinstance(sections.get("locality"), upstreams.ZoneAwareness) for sections in said
        ),
        otherwise=otherwise,
    )


def settings(
    applying: tuple[parsed.Policy, ...], port: int, otherwise: parsed.Connecting = UNSAID
) -> upstreams.Settings:
    """Merge policies for a port by whole section; the first that sets a section wins it.

    What the mesh says ``otherwise`` is no section: keepalive goes into whichever pool there is.
    """
    merged = upstreams.Sections()
    if otherwise.timeout_ms is not None:
        merged["connect_timeout_ms"] = otherwise.timeout_ms
    for policy in reversed(applying):
        merged.update(policy.at(port))
    if otherwise.tcp_keepalive is not None:
        pool = merged.get("connection_pool", upstreams.DEFAULTS.connection_pool)
        if pool.tcp_keepalive is None:
            merged["connection_pool"] = dataclasses.replace(
                pool, tcp_keepalive=otherwise.tcp_keepalive
            )
    return upstreams.Settings(**merged) if merged else upstreams.DEFAULTS


NO_POLICIES: ByLabels = {}


def applying(own: ByLabels, shared: ByLabels, labels: keys.Labels) -> tuple[parsed.Policy, ...]:
    """The policies for a cluster, in the order in which they win.

    Args:
        own: Those of the clients' namespace for the service, where that is not the service's.
        shared: Those of the service's namespace.
        labels: The cluster's label set; a policy with labels is for exactly these.
    """
    if not own and not shared:
        return ()
    wanted = (labels, ()) if labels else ((),)
    found = [policies.get(each) for policies in (own, shared) for each in wanted]
    return tuple(one for one in found if one is not None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Everything that a cluster may be made from."""

    mesh: catalogue.Catalogue
    claims: catalogue.Claims
    policies: Policies
    aliases: hosts.Aliases


def build(
    memo: memory.Memo, directory: Directory, key: plan.ClusterKey, *, origins: plan.Origins
) -> plan.Cluster:
    """The cluster of a key.

    Args:
        memo: Remembers it.
        directory: Must hold the key's service and port; else KeyError: a key comes from a resolved
            destination.
        key: The key, with or without scope.
        origins: The rules for whose sake it is there.
    """
    otherwise = directory.policies.otherwise
    if key == hosts.ASKED:
        return memo.leaf(_asked, key, origins, otherwise)
    if key.service is None:
        raise KeyError(key)
    target = parsed.Ref(key.external, key.service)
    own = directory.policies.consumers.get(key.scope, {}).get(target, NO_POLICIES)
    shared = directory.policies.producers.get(target, NO_POLICIES)
    if key.external:
        external = directory.claims.externals[key.service]
        return memo.leaf(_external, key, key, external, applying(own, shared, ()), otherwise)
    entry = directory.mesh.entries[key.service]
    if entry.service.external_name is not None:
        outside = directory.aliases.outside[key.service]
        found = applying(own, shared, ())
        return memo.leaf(_outside, key, key, entry, outside, found, otherwise)
    ports = entry.ports
    # A port that is HTTP by the word of a rule only is plain HTTP/1.1.
    http2 = any(http.http2 for http in ports if http.number == key.port)
    found = applying(own, shared, key.labels)
    return memo.leaf(cluster, key, key, http2, found, origins, otherwise)


def cluster(
    key: plan.ClusterKey,
    http2: bool,  # noqa: FBT001  a memo's functions take positions
    policies: tuple[parsed.Policy, ...],
    origins: plan.Origins,
    otherwise: parsed.Connecting = UNSAID,
) -> plan.Cluster:
    """A cluster of mesh endpoints."""
    return plan.Cluster(
        key=key,
        http2=http2,
        settings=settings(policies, key.port, otherwise),
        origins=_origins(origins, policies, otherwise),
    )


def _origins(
    whose: plan.Origins, policies: tuple[parsed.Policy, ...], otherwise: parsed.Connecting
) -> plan.Origins:
    return routes.merge_origins(whose, *(policy.origins for policy in policies), otherwise.origins)


def _asked(origins: plan.Origins, otherwise: parsed.Connecting) -> plan.Cluster:
    """The cluster whose address is the host that is asked for."""
    return plan.Cluster(
        key=hosts.ASKED,
        resolution="asked",
        settings=settings((), hosts.ASKED.port, otherwise),
        origins=_origins(origins, (), otherwise),
    )


def _outside(
    key: plan.ClusterKey,
    entry: catalogue.Entry,
    host: str,
    policies: tuple[parsed.Policy, ...],
    otherwise: parsed.Connecting,
) -> plan.Cluster:
    """The cluster of a host outside that has an alias."""
    port = next(one for one in hosts.outside_ports(entry.service) if one.number == key.port)
    target = port.target_port if isinstance(port.target_port, int) else port.number
    return plan.Cluster(
        key=key,
        resolution="static" if catalogue.is_ip(host) else "dns",
        addresses=(plan.Address(host=host, port=target),),
        http2=catalogue.speaks_http2(port),
        settings=settings(policies, key.port, otherwise),
        origins=_origins((), policies, otherwise),
    )


def _external(
    key: plan.ClusterKey,
    external: parsed.External,
    policies: tuple[parsed.Policy, ...],
    otherwise: parsed.Connecting,
) -> plan.Cluster:
    target = next(port.target for port in external.ports if port.number == key.port)
    chosen = settings(policies, key.port, otherwise)
    health = chosen.health_check
    if health is not None and isinstance(health.check, upstreams.HttpCheck):
        # The endpoints know their service by its own name, not by the one it has in the mesh.
        check = dataclasses.replace(health.check, host=health.check.host or external.hosts[0])
        health = dataclasses.replace(health, check=check)
        chosen = dataclasses.replace(chosen, health_check=health)
    return plan.Cluster(
        key=key,
        resolution="static" if external.static else "dns",
        addresses=tuple(plan.Address(host=host, port=target) for host in external.addresses),
        settings=chosen,
        origins=_origins(external.origins, policies, otherwise),
    )


Uses = Mapping[keys.ServiceKey, tuple[rules.Labelled, ...]]


def labelled_uses(
    memo: memory.Memo, bound: Mapping[keys.ObjectKey, rules.Bound], pods: Uses
) -> Uses:
    """The ports and label sets of services that rules, or whatever names ``pods``, may send to."""
    by_service = memo.turned("", memo.mapped(_uses, "", bound))
    found = memo.mapped(_distinct, "", by_service)
    if not pods:
        return found
    more = {key: tuple(sorted({*found.get(key, ()), *single})) for key, single in pods.items()}
    return {**found, **more}


def _uses(bound: rules.Bound) -> tuple[tuple[keys.ServiceKey, rules.Labelled], ...]:
    return bound.uses


def _distinct(
    uses: Mapping[keys.ObjectKey, tuple[rules.Labelled, ...]],
) -> tuple[rules.Labelled, ...]:
    return tuple(sorted({use for some in uses.values() for use in some}))


def shared_key(entry: catalogue.Entry, use: rules.Labelled) -> plan.ClusterKey:
    """The key of a service port seen through a label set, as all clients know it."""
    return plan.ClusterKey(
        direction=plan.Direction.OUTBOUND,
        port=use.port,
        service=entry.service.key,
        labels=use.labels,
        udp=use.udp,
    )


def shared_keys(
    entry: catalogue.Entry, uses: tuple[rules.Labelled, ...]
) -> tuple[plan.ClusterKey, ...]:
    """All clusters of a service that some proxy may use; sorted by port, labels."""
    found: dict[rules.Labelled, plan.ClusterKey] = {}
    for port in (*entry.ports, *entry.streams):
        if port.site.itself is not None:
            found[rules.Labelled(port.number, (), port.site.itself.udp)] = port.site.itself
    for use in uses:
        if use not in found:
            found[use] = shared_key(entry, use)
    return tuple(found[use] for use in sorted(found))


Scoped = Mapping[plan.ClusterKey, plan.ClusterKey]


def rescoped(
    policies: Policies, mesh: catalogue.Catalogue, claims: catalogue.Claims, uses: Uses
) -> Mapping[str, Scoped]:
    """The clusters that a namespace's own policies really change: shared key to own key."""
    found: dict[str, dict[plan.ClusterKey, plan.ClusterKey]] = {}
    for client, by_target in sorted(policies.consumers.items()):
        for target in sorted(by_target):
            shared = policies.producers.get(target, NO_POLICIES)
            for key in keys_of(target, mesh, claims, uses):
                own = applying(by_target[target], shared, key.labels)
                theirs = applying(NO_POLICIES, shared, key.labels)
                chosen = settings(own, key.port, policies.otherwise)
                if chosen != settings(theirs, key.port, policies.otherwise):
                    changed = found.setdefault(client, {})
                    changed[key] = dataclasses.replace(key, scope=client)
    return found


def keys_of(
    target: parsed.Ref, mesh: catalogue.Catalogue, claims: catalogue.Claims, uses: Uses
) -> tuple[plan.ClusterKey, ...]:
    """All clusters of a target, as clients know them that share them."""
    if target.external:
        return tuple(
            catalogue.external_cluster_key(target.key, http.number)
            for http in claims.ports.get(target.key, ())
        )
    entry = mesh.entries.get(target.key)
    return shared_keys(entry, uses.get(target.key, ())) if entry else ()


Placed = Mapping[plan.ClusterKey, upstreams.Locality]
"""Clusters whose endpoints differ from place to place, in the order of clusters."""


def placed(
    policies: Policies,
    mesh: catalogue.Catalogue,
    uses: Uses,
    rescoped: Mapping[str, Scoped],
) -> Placed:
    """The clusters whose policies say something of places."""
    found: dict[plan.ClusterKey, upstreams.Locality] = {}
    for target, shared in policies.producers.items():
        entry = None if target.external else mesh.entries.get(target.key)
        if entry and any(policy.has("locality") for policy in shared.values()):
            for key in shared_keys(entry, uses.get(target.key, ())):
                own = applying(NO_POLICIES, shared, key.labels)
                policy = settings(own, key.port).locality
                if policy is not None and localities.depends(policy):
                    found[key] = policy
    for client, changed in rescoped.items():
        for key, scoped in changed.items():
            if key.service is not None and not key.external:
                target = parsed.Ref(external=False, key=key.service)
                shared = policies.producers.get(target, NO_POLICIES)
                own = applying(policies.consumers[client][target], shared, key.labels)
                policy = settings(own, key.port).locality
                if policy is not None and localities.depends(policy):
                    found[scoped] = policy
    return {key: found[key] for key in sorted(found, key=routes.cluster_order)}


def endpoints(
    key: plan.ClusterKey, port_name: str, candidates: tuple[registry.Endpoint, ...]
) -> plan.ClusterEndpoints:
    """The ready endpoints of a service port that have the key's labels, by locality."""
    labels = set(key.labels)
    found: dict[registry.Locality, set[tuple[str, int]]] = {}
    for one in candidates:
        if one.ready and one.port_name == port_name and (not labels or labels <= set(one.labels)):
            found.setdefault(one.locality, set()).add((one.address, one.port))
    return plan.ClusterEndpoints(
        key=key,
        localities=tuple(
            plan.LocalityEndpoints(locality=locality, addresses=_addresses(found[locality]))
            for locality in sorted(found, key=_place)
        ),
    )


def _place(locality: registry.Locality) -> tuple[str, str, str]:
    return (locality.region, locality.zone, locality.sub_zone)


def _addresses(pairs: Iterable[tuple[str, int]]) -> tuple[plan.Address, ...]:
    return tuple(plan.Address(host=host, port=port) for host, port in sorted(pairs))
