# SPDX-License-Identifier: Apache-2.0
"""The proxies that share a workload's work: how many are in each zone is what zones are weighed by.

A proxy's peers are the ready endpoints of the services that have its own address among theirs; so
replicas, which are in the same services, have the same peers and share their layer.
"""

from __future__ import annotations

from collections.abc import Mapping

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import catalogue, plan
from pilothouse.routing import memo as memory

KEY = plan.ClusterKey(direction=plan.Direction.INBOUND, port=0)
"""A proxy asks for the endpoints of this cluster, which its bootstrap has."""


def by_address(
    memo: memory.Memo,
    entries: tuple[catalogue.Entry, ...],
    endpoints: tuple[tuple[registry.Endpoint, ...], ...],
) -> Mapping[str, Mapping[keys.ServiceKey, object]]:
    """The services at each address, in order."""
    pairs = zip(entries, endpoints, strict=True)
    candidates = {entry.service.key: found for entry, found in pairs}
    return memo.turned("", memo.mapped(_places, "", candidates))


def _places(candidates: tuple[registry.Endpoint, ...]) -> tuple[tuple[str, None], ...]:
    return tuple((address, None) for address in sorted({one.address for one in candidates}))


def layer(endpoints: tuple[tuple[registry.Endpoint, ...], ...]) -> plan.Layer:
    """Every address once, by place; its port is of no account.

    Without any the layer is there all the same: a proxy's start waits for it, and a proxy would
    keep what it has when it went.
    """
    ports: dict[tuple[registry.Locality, str], int] = {}
    for candidates in endpoints:
        for one in candidates:
            if one.ready:
                place = (one.locality, one.address)
                ports[place] = min(one.port, ports.get(place, one.port))
    found: dict[registry.Locality, list[plan.Address]] = {}
    for locality, address in sorted(ports, key=_order):
        port = ports[locality, address]
        found.setdefault(locality, []).append(plan.Address(host=address, port=port))
    localities = tuple(
        plan.LocalityEndpoints(locality=locality, addresses=tuple(addresses))
        for locality, addresses in found.items()
    )
    return plan.Layer(endpoints=(plan.ClusterEndpoints(key=KEY, localities=localities),))


def _order(place: tuple[registry.Locality, str]) -> tuple[str, str, str, str]:
    locality, address = place
    return (locality.region, locality.zone, locality.sub_zone, address)
