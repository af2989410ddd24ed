# SPDX-License-Identifier: Apache-2.0
"""The endpoints layers: who answers for each cluster.

All proxies share one; all at the same place share another, of clusters whose policies say something
of places.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Literal, NamedTuple

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import catalogue, clusters, localities, plan, rules, upstreams
from pilothouse.routing import memo as memory

Endpoints = Mapping[keys.ServiceKey, tuple[registry.Endpoint, ...]]
Pairs = tuple[tuple[plan.ClusterKey, plan.ClusterKey], ...]
"""Shared keys with the keys of single namespaces beside them."""


def layer(
    memo: memory.Memo,
    mesh: catalogue.Catalogue,
    endpoints: Endpoints,
    uses: clusters.Uses,
    scoped: Mapping[str, clusters.Scoped],
    placed: clusters.Placed,
) -> plan.Layer:
    """The endpoints of every cluster that some proxy may use, in the order of clusters.

    Those of ``placed`` are left out.
    """
    shapes = memo.group(_shapes, "", mesh, uses, scoped, placed)
    found = memo.joined_group(_service, "", shapes, endpoints)
    return plan.Layer(endpoints=tuple(itertools.chain.from_iterable(found.values())))


_Shape = tuple[tuple[plan.ClusterKey, str], ...]
"""The clusters of a service, and the name by which endpoints say that they serve its port."""


def _shapes(
    memo: memory.Memo,
    mesh: catalogue.Catalogue,
    uses: clusters.Uses,
    scoped: Mapping[str, clusters.Scoped],
    placed: clusters.Placed,
) -> Mapping[keys.ServiceKey, _Shape]:
    """What is to be known of each service, whoever its endpoints are."""
    elsewhere: dict[keys.ServiceKey, list[plan.ClusterKey]] = {}
    for key in placed:
        if key.service is not None:
            elsewhere.setdefault(key.service, []).append(key)
    beside: dict[keys.ServiceKey, list[tuple[plan.ClusterKey, plan.ClusterKey]]] = {}
    for changed in scoped.values():
        for shared, own in changed.items():
            if shared.service is not None and not shared.external:
                beside.setdefault(shared.service, []).append((shared, own))
    facts = {
        key: (entry, uses.get(key, ()), tuple(beside.get(key, ())), tuple(elsewhere.get(key, ())))
        for key, entry in mesh.entries.items()
    }
    return memo.mapped(_shape, "", facts)


def _shape(
    of: tuple[catalogue.Entry, tuple[rules.Labelled, ...], Pairs, tuple[plan.ClusterKey, ...]],
) -> _Shape:
    entry, uses, beside, elsewhere = of
    return tuple(
        (key, _port_name(entry, shared))
        for shared in clusters.shared_keys(entry, uses)
        for key in (shared, *(own for one, own in beside if one == shared))
        if key not in elsewhere
    )


def _service(
    memo: memory.Memo, of: tuple[_Shape, tuple[registry.Endpoint, ...]]
) -> tuple[plan.ClusterEndpoints, ...]:
    shape, candidates = of
    return tuple(memo.leaf(clusters.endpoints, key, key, name, candidates) for key, name in shape)


def _port_name(entry: catalogue.Entry, key: plan.ClusterKey) -> str:
    """The name of a key's port, by which endpoints say what they serve."""
    ports = rules.routable_ports(entry.service, "udp" if key.udp else "tcp")
    return next(port.name for port in ports if port.number == key.port)


def placed_layer(
    memo: memory.Memo,
    mesh: catalogue.Catalogue,
    endpoints: Endpoints,
    placed: clusters.Placed,
    stand: localities.Standpoint,
) -> plan.Layer:
    """The endpoints of the clusters that differ from proxy to proxy, as seen from one."""
    found = []
    for key, policy in placed.items():
        entry = mesh.entries.get(key.service) if key.service else None
        if entry is not None:
            candidates = endpoints.get(entry.service.key, ())
            found.append(memo.leaf(_placed, key, key, entry, candidates, policy, stand))
    return plan.Layer(endpoints=tuple(found))


def _placed(
    key: plan.ClusterKey,
    entry: catalogue.Entry,
    candidates: tuple[registry.Endpoint, ...],
    policy: upstreams.Locality,
    stand: localities.Standpoint,
) -> plan.ClusterEndpoints:
    name = _port_name(entry, key)
    if localities.labels(policy):
        ranks = localities.ranked(policy, candidates, stand)
        return localities.merged(
            key, [clusters.endpoints(key, name, some).localities for some in ranks]
        )
    return localities.arrange(clusters.endpoints(key, name, candidates), policy, stand.place)


Spoken = Literal["http", "http2", "tcp", "udp"]


class ServedPort(NamedTuple):
    """A port of an application."""

    number: int
    spoken: Spoken
    """How its sidecar takes what arrives; ``http2`` without being negotiated, ``tcp`` any bytes."""


def spoken(port: registry.Port) -> Spoken:
    """How a sidecar takes what arrives for a port of a service."""
    if port.protocol.is_http:
        return "http2" if catalogue.speaks_http2(port) else "http"
    return "udp" if port.protocol == registry.AppProtocol.UDP else "tcp"


_Place = tuple[str, str]
_Ports = Mapping[keys.ServiceKey, tuple[tuple[ServedPort, ...], ...]]
"""By service; a port may be there twice."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ByAddress:
    """The ports that serve at each address.

    Compared by identity: comparing a hundred thousand addresses costs more than to find what
    changed among them, and nobody remembers anything by all of them.
    """

    places: Mapping[_Place, _Ports]
    """By namespace and address."""

    def get(self, place: _Place, default: _Ports) -> _Ports:
        """Those at one address."""
        return self.places.get(place, default)


def by_address(memo: memory.Memo, mesh: catalogue.Catalogue, endpoints: Endpoints) -> ByAddress:
    """The ports that serve at each address."""
    return ByAddress(memo.turned("", memo.joined(_served, "", mesh.entries, endpoints)))


def _served(
    of: tuple[catalogue.Entry, tuple[registry.Endpoint, ...]],
) -> tuple[tuple[tuple[str, str], tuple[ServedPort, ...]], ...]:
    """The ports at each address of a service, ready or not: a pod is served before it is ready."""
    entry, candidates = of
    by_name = {port.name: spoken(port) for port in entry.service.ports}
    found: dict[str, list[ServedPort]] = {}
    for one in candidates:
        if one.port_name in by_name:
            served = ServedPort(one.port, by_name[one.port_name])
            found.setdefault(one.address, []).append(served)
    namespace = entry.service.key.namespace
    return tuple(((namespace, address), tuple(found[address])) for address in sorted(found))


def by_selector(
    entries: tuple[catalogue.Entry, ...],
) -> Mapping[tuple[str, str], tuple[catalogue.Entry, ...]]:
    """Services by the first label that they select, so that a workload need not try them all."""
    found: dict[tuple[str, str], list[catalogue.Entry]] = {}
    for entry in entries:
        if entry.service.selector:
            found.setdefault(entry.service.selector[0], []).append(entry)
    return {pair: tuple(members) for pair, members in found.items()}


def selected(
    services: Mapping[tuple[str, str], tuple[catalogue.Entry, ...]], labels: keys.Labels
) -> tuple[ServedPort, ...]:
    """The ports of a workload that services select by label.

    A target port given by name is known only once the workload is an endpoint.
    """
    found = []
    for pair in labels:
        for entry in services.get(pair, ()):
            if keys.selects(entry.service.selector, labels):
                found += [
                    (port.number if port.target_port is None else port.target_port, port)
                    for port in entry.service.ports
                ]
    return tuple(
        ServedPort(number, spoken(port)) for number, port in found if isinstance(number, int)
    )
