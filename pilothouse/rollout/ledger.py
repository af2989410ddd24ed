# SPDX-License-Identifier: Apache-2.0
"""The ledger: which proxies need an object, which run it, which refused it.

A proxy needs an object when something in its target snapshot comes from it (``Resource.origins``).
It has acknowledged the object when, for every type, nothing that comes from the object differs
between what it acknowledged last and its target. Proxies in the same position (the same snapshots,
by identity) are counted as one group, so the cost follows the number of different snapshots, not
the number of proxies. This module knows no stream and no clock.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Mapping

from pilothouse.model import keys
from pilothouse.xds import differences, resources


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TypePosition:
    """Where one proxy stands with one type."""

    type_url: str
    acked: resources.Snapshot
    """The snapshot whose content of this type it acknowledged last; ``Snapshot.EMPTY`` before the
    first ACK."""
    refused: bool = False
    """True when its newest response of this type was refused."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where one proxy stands."""

    target: resources.Snapshot
    types: tuple[TypePosition, ...]
    """One for each subscribed type; may be left out when it is in sync."""
    in_sync: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far one object has travelled, in proxies."""

    needed: int = 0
    acked: int = 0
    refused: int = 0


def count(groups: Mapping[Position, int]) -> Mapping[keys.ObjectKey, Counts]:
    """Count for every object that some proxy needs, in key order.

    Args:
        groups: how many proxies are in each position.
    """
    needed: collections.Counter[keys.ObjectKey] = collections.Counter()
    pending: collections.Counter[keys.ObjectKey] = collections.Counter()
    refused: collections.Counter[keys.ObjectKey] = collections.Counter()
    for position, proxies in groups.items():
        standing = _standing(position)
        for key in standing.needed:
            needed[key] += proxies
        for key in standing.pending & standing.needed:
            pending[key] += proxies
        for key in standing.refused & standing.needed:
            refused[key] += proxies
    return {
        key: _counts(needed[key], pending.get(key, 0), refused.get(key, 0))
        for key in sorted(needed)
    }


@dataclasses.dataclass(frozen=True, slots=True)
class _Standing:
    needed: frozenset[keys.ObjectKey]
    pending: frozenset[keys.ObjectKey]
    refused: frozenset[keys.ObjectKey]


@functools.lru_cache(maxsize=1024)
def _counts(needed: int, pending: int, refused: int) -> Counts:
    """One object for thousands of equal ones, which then cost nothing to compare."""
    return Counts(needed=needed, acked=needed - pending, refused=refused)


def _standing(position: Position) -> _Standing:
    needed = frozenset(key for layer in position.target.layers for key in layer.origins)
    if position.in_sync:
        return _Standing(needed, frozenset(), frozenset())
    pending: set[keys.ObjectKey] = set()
    refused: set[keys.ObjectKey] = set()
    for place in position.types:
        outstanding = _outstanding(place.acked, position.target, place.type_url)
        pending |= outstanding
        if place.refused:
            refused |= outstanding
    return _Standing(needed, frozenset(pending), frozenset(refused))


def _outstanding(
    acked: resources.Snapshot, target: resources.Snapshot, type_url: str
) -> set[keys.ObjectKey]:
    """Objects behind what changes of one type between two snapshots, removals included."""
    if acked is target:
        return set()
    difference = differences.diff(acked, target, type_url)
    origins = {key for resource in difference.changed for key in resource.origins}
    for name in difference.removed:
        gone = acked.get(type_url, name)
        if gone is not None:
            origins.update(gone.origins)
    return origins
