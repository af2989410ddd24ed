# SPDX-License-Identifier: Apache-2.0
"""Small values that plans are made of, each a function of its own so that it can be remembered."""

from __future__ import annotations

from collections.abc import Mapping

from pilothouse.model import keys
from pilothouse.model import proxy as proxies
from pilothouse.model import services as registry
from pilothouse.routing import catalogue, clusters, hosts, parsed
from pilothouse.routing import plan as plans


def by_key(found: tuple[parsed.Gateway, ...]) -> Mapping[keys.ObjectKey, parsed.Gateway]:
    """Gateways by key."""
    return {gateway.key: gateway for gateway in found}


def directory(
    mesh: catalogue.Catalogue,
    claims: catalogue.Claims,
    policies: clusters.Policies,
    aliases: hosts.Aliases,
) -> clusters.Directory:
    """What clusters are made from."""
    return clusters.Directory(mesh=mesh, claims=claims, policies=policies, aliases=aliases)


INGRESS = "ingress"
EGRESS = "egress"


def missing(
    role: proxies.Role, unsynced: frozenset[str], externals: tuple[parsed.External, ...]
) -> tuple[str, ...]:
    """The sources that have not been read whole and that a proxy of a role needs, sorted."""
    if role is proxies.Role.SOURCE:
        return ()
    # In the mesh nothing is from ingress, and from egress only the way to external services.
    needless: set[str] = set()
    if role is not proxies.Role.GATEWAY:
        needless.add(INGRESS)
        if not any(external.through_egress for external in externals):
            needless.add(EGRESS)
    return tuple(sorted(unsynced - needless))


def labels(proxy: proxies.Proxy, workload: registry.Workload | None) -> keys.Labels:
    """Those that a proxy says of itself, else those of its pod."""
    return proxy.labels or (workload.labels if workload else ())


def workloads(
    workloads: tuple[registry.Workload, ...],
) -> Mapping[tuple[str, str], registry.Workload]:
    """Pods by namespace and address; of several the first in order of names."""
    found: dict[tuple[str, str], registry.Workload] = {}
    for workload in sorted(workloads, key=lambda one: (one.namespace, one.name)):
        for address in workload.addresses:
            found.setdefault((workload.namespace, address), workload)
    return found


def endpoints_of(
    entries: tuple[catalogue.Entry, ...],
    endpoints: Mapping[keys.ServiceKey, tuple[registry.Endpoint, ...]],
) -> tuple[tuple[registry.Endpoint, ...], ...]:
    """Those of each service."""
    return tuple(endpoints.get(one.service.key, ()) for one in entries)


def proxyless_plan(
    layers: tuple[plans.Layer, ...], told: tuple[plans.Proxyless, ...]
) -> plans.ProxyPlan:
    """The plan of an application without a proxy."""
    return plans.ProxyPlan(layers=layers, proxyless=told)


def proxy_plan(layers: tuple[plans.Layer, ...]) -> plans.ProxyPlan:
    """The plan of a proxy."""
    return plans.ProxyPlan(layers=layers)
