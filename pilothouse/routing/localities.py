# SPDX-License-Identifier: Apache-2.0
"""The endpoints of a cluster as proxies that stand at one place prefer them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import assert_never

from pilothouse.model import keys, services
from pilothouse.routing import plan, upstreams

_SCALE = 10_000
"""Weights are whole numbers: the share of a place is cut finely enough for its localities."""


_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standpoint:
    """All about a proxy that its preferences may depend on."""

    place: services.Locality = services.Locality()
    labels: keys.Labels = ()
    """Those alone that some policy compares, sorted."""


NOWHERE = Standpoint()


def depends(policy: upstreams.Locality | None) -> bool:
    """Tell whether the endpoints of a cluster are other ones for proxies at other places."""
    match policy:
        case None | upstreams.ZoneAwareness(failover=None):
            return False
        case _:
            return True


def compared(policies: Iterable[upstreams.Locality]) -> frozenset[str]:
    """The names of a proxy's labels that policies compare with its endpoints'."""
    return frozenset(name for policy in policies for name, value in labels(policy) if value is None)


def labels(policy: upstreams.Locality) -> tuple[tuple[str, str | None], ...]:
    """What a policy compares in the stead of places."""
    by = policy.failover if isinstance(policy, upstreams.ZoneAwareness) else policy
    return by.labels if isinstance(by, upstreams.Failover) else ()


def ranked(
    policy: upstreams.Locality, candidates: Iterable[services.Endpoint], stand: Standpoint
) -> tuple[tuple[services.Endpoint, ...], ...]:
    """Endpoints by the labels that a policy compares, the most alike first; some may be empty.

    All are alike when it compares none.
    """
    own = _with_place(stand.labels, stand.place)
    wanted = [
        (name, own.get(name, "") if value is None else value) for name, value in labels(policy)
    ]
    found: list[list[services.Endpoint]] = [[] for _ in range(len(wanted) + 1)]
    for one in candidates:
        has = _with_place(one.labels, one.locality) if wanted else {}
        agreed = next(
            (n for n, (name, value) in enumerate(wanted) if has.get(name, "") != value), len(wanted)
        )
        found[len(wanted) - agreed].append(one)
    return tuple(map(tuple, found))


def _with_place(labels: keys.Labels, place: services.Locality) -> dict[str, str]:
    return {_REGION: place.region, _ZONE: place.zone} | dict(labels)


def merged(
    key: plan.ClusterKey, ranks: Iterable[tuple[plan.LocalityEndpoints, ...]]
) -> plan.ClusterEndpoints:
    """The endpoints of a cluster whose ranks are known: each is a priority, if it has any."""
    there = [localities for localities in ranks if localities]
    return plan.ClusterEndpoints(
        key=key,
        localities=tuple(
            dataclasses.replace(one, priority=priority)
            for priority, localities in enumerate(there)
            for one in localities
        ),
    )


def arrange(
    found: plan.ClusterEndpoints, policy: upstreams.Locality, place: services.Locality
) -> plan.ClusterEndpoints:
    """Give localities their priorities or weights.

    Args:
        found: All endpoints, without priorities.
        policy: What the cluster's policy says of places.
        place: Where the proxy is.
    """
    match policy:
        case upstreams.Failover():
            localities = _failover(found.localities, policy, place)
        case upstreams.ZoneAwareness():
            if policy.failover is None:
                return found
            # It is the proxy that weighs the zones of a region.
            localities = _failover(found.localities, policy.failover, place, nearest=_SAME_REGION)
        case upstreams.Distribution():
            localities = _distribution(found.localities, policy, place)
        case _:
            assert_never(policy)
    return dataclasses.replace(found, localities=localities)


def _failover(
    localities: tuple[plan.LocalityEndpoints, ...],
    policy: upstreams.Failover,
    place: services.Locality,
    *,
    nearest: int = 0,
) -> tuple[plan.LocalityEndpoints, ...]:
    """Priorities by distance; what is nearer than ``nearest`` counts as if it were as far."""
    if not place.region:
        return localities
    preferred = dict(policy.regions).get(place.region)
    distances = [max(nearest, _distance(place, one.locality, preferred)) for one in localities]
    priorities = {distance: rank for rank, distance in enumerate(sorted(set(distances)))}
    return tuple(
        dataclasses.replace(one, priority=priorities[distance])
        for one, distance in zip(localities, distances, strict=True)
    )


_SAME_REGION = 2


def _distance(one: services.Locality, other: services.Locality, preferred: str | None) -> int:
    if other.region != one.region:
        return 3 if other.region == preferred else 4
    if other.zone != one.zone:
        return _SAME_REGION
    return 0 if other.sub_zone == one.sub_zone else 1


def _distribution(
    localities: tuple[plan.LocalityEndpoints, ...],
    policy: upstreams.Distribution,
    place: services.Locality,
) -> tuple[plan.LocalityEndpoints, ...]:
    shares = dict(policy.shares)
    start = _most_specific(shares, place)
    if start is None:
        return localities
    weights = dict(shares[start])
    chosen = [(one, _most_specific(weights, one.locality)) for one in localities]
    addresses: dict[str, int] = {}
    for one, target in chosen:
        if target is not None:
            addresses[target] = addresses.get(target, 0) + len(one.addresses)
    return tuple(
        dataclasses.replace(
            one, weight=max(1, _SCALE * weights[target] * len(one.addresses) // addresses[target])
        )
        for one, target in chosen
        if target is not None and weights[target]
    )


def _most_specific(places: Iterable[str], locality: services.Locality) -> str | None:
    """The longest of the places that a locality is in."""
    names = (locality.region, locality.zone, locality.sub_zone)
    inside = [
        (len(parts), text)
        for text in places
        if (parts := () if text == "*" else tuple(text.split("/"))) == names[: len(parts)]
    ]
    return max(inside)[1] if inside else None
