# SPDX-License-Identifier: Apache-2.0
"""What changes from one snapshot to another: worked out once for each pair, whoever asks."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator, Mapping

from pilothouse.xds import memo, resources


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What changes from one snapshot to another, for one type."""

    changed: tuple[resources.Resource, ...] = ()
    """New or different in the newer one, in name order."""
    removed: tuple[str, ...] = ()
    """Names that the newer one lacks, in order."""

    def __bool__(self) -> bool:
        """True when anything changes."""
        return bool(self.changed or self.removed)


_NOTHING = Difference()
_layers: memo.Pairs[resources.Layer, Difference] = memo.Pairs()
_snapshots: memo.Pairs[resources.Snapshot, Difference] = memo.Pairs()


def pairs(
    old: resources.Snapshot, new: resources.Snapshot
) -> Iterator[tuple[resources.Layer, resources.Layer]]:
    """The layers of two snapshots by position; what one lacks is paired with an empty one."""
    return itertools.zip_longest(old.layers, new.layers, fillvalue=resources.EMPTY_LAYER)


def diff(old: resources.Snapshot, new: resources.Snapshot, type_url: str) -> Difference:
    """What changes, for one type.

    Worked out once for each pair of snapshots and of layers, however many streams hold them; layers
    that two snapshots share cost nothing.
    """
    if old is new:
        return _NOTHING
    by_type = _snapshots.of(old, new)
    if type_url not in by_type:
        by_type[type_url] = _diff(old, new, type_url)
    return by_type[type_url]


def _diff(old: resources.Snapshot, new: resources.Snapshot, type_url: str) -> Difference:
    found = [
        difference
        for before, after in pairs(old, new)
        if before is not after and (difference := _layer_diff(before, after, type_url))
    ]
    if not found:
        return _NOTHING
    if len(found) == 1 and not found[0].removed:
        return found[0]
    return _combine(old, new, type_url, found)


def _combine(
    old: resources.Snapshot, new: resources.Snapshot, type_url: str, found: list[Difference]
) -> Difference:
    """Join what several layers change; a resource that only moved between them did not."""
    changed = [
        resource
        for difference in found
        for resource in difference.changed
        if (held := old.get(type_url, resource.name)) is None or held.version != resource.version
    ]
    removed = [
        name
        for difference in found
        for name in difference.removed
        if new.get(type_url, name) is None
    ]
    changed.sort(key=operator.attrgetter("name"))
    return Difference(changed=tuple(changed), removed=tuple(sorted(removed)))


def _layer_diff(old: resources.Layer, new: resources.Layer, type_url: str) -> Difference:
    before, after = old.resources(type_url), new.resources(type_url)
    if before is after:
        return _NOTHING  # mostly because neither layer is about this type
    by_type = _layers.of(old, new)
    if type_url not in by_type:
        made_from = new.made_from
        if made_from is not None and made_from[0] is old:
            by_type[type_url] = _replaced(made_from[1], type_url)
        else:
            by_type[type_url] = _compare(before, after)
    return by_type[type_url]


def _replaced(pairs: resources.Replaced, type_url: str) -> Difference:
    changed = [new for old, new in pairs if new.type_url == type_url and new.version != old.version]
    if not changed:
        return _NOTHING
    return Difference(changed=tuple(sorted(changed, key=operator.attrgetter("name"))))


def _compare(
    before: Mapping[str, resources.Resource], after: Mapping[str, resources.Resource]
) -> Difference:
    changed = tuple(
        resource
        for name, resource in after.items()
        if (held := before.get(name)) is not resource
        and (held is None or held.version != resource.version)
    )
    removed = tuple(name for name in before if name not in after)
    return Difference(changed=changed, removed=removed) if changed or removed else _NOTHING
