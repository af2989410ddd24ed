# SPDX-License-Identifier: Apache-2.0
"""The ledger: which proxies need an object, which run it, which refused it.

A proxy needs an object when something in its target snapshot comes from it (``Resource.origins``).
It has acknowledged the object when, for every type, nothing that comes from the object differs
between what it acknowledged last and its target. Proxies in the same position (the same snapshots,
by identity) are counted as one group, so the cost follows the number of different snapshots, not
the number of proxies. This module knows no stream and no clock.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

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


class Counts(NamedTuple):
    """How far one object has travelled, in proxies."""

    needed: int = 0
    acked: int = 0
    refused: int = 0


_NOBODY: Final = Counts()
_Found = dict[keys.ObjectKey, Counts]


def count(groups: Mapping[Position, int]) -> Mapping[keys.ObjectKey, Counts]:
    """Count for every object that some proxy needs, in key order.

    Thousands of objects share a resource, and then have the same counts: those are computed once.

    Args:
        groups: how many proxies are in each position.
    """
    found: _Found = {}
    _add_needed(found, groups)
    for position, proxies in groups.items():
        if not position.in_sync:
            pending, refused = _missing(position)
            _add(found, _needed(position.target, pending), Counts(acked=-proxies))
            _add(found, _needed(position.target, refused), Counts(refused=proxies))
    return {key: found[key] for key in sorted(found)}


def _add_needed(found: _Found, groups: Mapping[Position, int]) -> None:
    """Count who needs each object, as if they ran it.

    By layers, which many targets share; then those that two layers of one target come from are
    taken away again.
    """
    targets: dict[resources.Snapshot, int] = {}
    layers: dict[resources.Layer, int] = {}
    for position, proxies in groups.items():
        targets[position.target] = targets.get(position.target, 0) + proxies
        for layer in position.target.layers:
            layers[layer] = layers.get(layer, 0) + proxies
    for layer, proxies in layers.items():
        _add(found, layer.origins, Counts(needed=proxies, acked=proxies))
    for target, proxies in targets.items():
        before: list[Mapping[keys.ObjectKey, object]] = []
        # The largest first, so that nobody walks through it.
        for origins in sorted((layer.origins for layer in target.layers), key=len, reverse=True):
            again = [key for key in origins if any(key in one for one in before)] if before else ()
            _add(found, again, Counts(needed=-proxies, acked=-proxies))
            before.append(origins)


def _needed(target: resources.Snapshot, some: AbstractSet[keys.ObjectKey]) -> set[keys.ObjectKey]:
    """Those of some objects that a target comes from."""
    return set[keys.ObjectKey]().union(*[some & one.origins.keys() for one in target.layers])


class _Sums(dict[Counts, Counts]):
    """Counts plus the same others, worked out once for each."""

    def __init__(self, more: Counts) -> None:
        self._more = more

    def __missing__(self, counts: Counts) -> Counts:
        made = self[counts] = Counts(*map(operator.add, counts, self._more))
        return made


def _add(found: _Found, concerned: Iterable[keys.ObjectKey], more: Counts) -> None:
    before, sums = found.get, _Sums(more)
    found.update([(key, sums[before(key, _NOBODY)]) for key in concerned])


def _missing(position: Position) -> tuple[set[keys.ObjectKey], set[keys.ObjectKey]]:
    """The objects that a proxy has not acknowledged, and those of them that it refused."""
    pending: set[keys.ObjectKey] = set()
    refused: set[keys.ObjectKey] = set()
    for place in position.types:
        outstanding = _outstanding(place.acked, position.target, place.type_url)
        pending |= outstanding
        if place.refused:
            refused |= outstanding
    return pending, refused


def _outstanding(
    acked: resources.Snapshot, target: resources.Snapshot, type_url: str
) -> set[keys.ObjectKey]:
    """Objects behind what changes of one type between two snapshots, removals included."""
    if acked is target:
        return set()
    difference = differences.diff(acked, target, type_url)
    origins = set[keys.ObjectKey]().union(*[one.origins for one in difference.changed])
    for name in difference.removed:
        gone = acked.get(type_url, name)
        if gone is not None:
            origins.update(gone.origins)
    return origins
