# SPDX-License-Identifier: Apache-2.0
"""Make before break: from one snapshot to another in steps that are acknowledged one by one.

1. New and changed clusters, beside all the old ones. Envoy withholds this acknowledgement until
   they are warm.
2. The new listeners and routes. Nothing that they need is missing, nothing that the old ones need
   is gone.
3. Clusters that nobody uses any more go.
4. The target itself: what only those clusters needed goes.

A step that changes nothing is left out. Endpoints and secrets are leaves: they come from the target
at every step, and from where they were as long as an old cluster still needs them. The way is
worked out once for each pair of snapshots, whoever goes it, and a newer target starts from the step
that was reached.
Source: "Eventual consistency considerations" in
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Iterable

from pilothouse.xds import resources, types

_GATED = frozenset(each.type_url for each in types.ALL if each.gated)
_CLUSTER = types.CLUSTER.type_url
_UPPER = _GATED - {_CLUSTER}


class _Step(enum.Enum):
    """What an intermediate snapshot takes from the target; leaves are of both in each."""

    HOLD = enum.auto()
    """Clusters, listeners and routes of before."""
    ADD = enum.auto()
    """Clusters of both; listeners and routes of before."""
    USE = enum.auto()
    """Clusters of both; listeners and routes of the target."""
    DROP = enum.auto()
    """Clusters, listeners and routes of the target."""


_Steps = weakref.WeakKeyDictionary[
    resources.Snapshot, weakref.WeakKeyDictionary[resources.Snapshot, resources.Snapshot | None]
]
_next: _Steps = weakref.WeakKeyDictionary()
_holds: _Steps = weakref.WeakKeyDictionary()


def next_step(current: resources.Snapshot, target: resources.Snapshot) -> resources.Snapshot:
    """The next snapshot on the way; ``target`` itself when it is the last step.

    Only to be gone when ``current`` was acknowledged, unless it `only_adds`.
    """
    if current is target:
        return target
    per_target = _next.setdefault(current, weakref.WeakKeyDictionary())
    if target not in per_target:
        per_target[target] = _intermediate(current, target)
    # None stands for the target: were it a value here, it would keep its own key alive.
    return per_target[target] or target


def hold(current: resources.Snapshot, target: resources.Snapshot) -> resources.Snapshot:
    """The step to wait at until ``current`` is acknowledged: it, with the newest of the leaves."""
    per_target = _holds.setdefault(current, weakref.WeakKeyDictionary())
    step = per_target.get(target)
    if step is None:
        step = per_target[target] = _mix(current, target, _Step.HOLD)
    return step


def only_adds(current: resources.Snapshot, step: resources.Snapshot) -> bool:
    """True if a step fits whatever the client holds on the way to ``current``.

    It takes nothing away, and listeners and routes stay.
    """
    return not (
        any(resources.diff(current, step, url) for url in _UPPER)
        or resources.diff(current, step, _CLUSTER).removed
        or _loses_leaves(current, step)
    )


def _intermediate(
    current: resources.Snapshot, target: resources.Snapshot
) -> resources.Snapshot | None:
    clusters = resources.diff(current, target, _CLUSTER)
    upper = any(resources.diff(current, target, url) for url in _UPPER)
    if clusters.changed and upper:
        return _mix(current, target, _Step.ADD)
    if clusters.removed and upper:
        return _mix(current, target, _Step.USE)
    if clusters and _loses_leaves(current, target):
        return _mix(current, target, _Step.DROP)
    return None


def _loses_leaves(current: resources.Snapshot, target: resources.Snapshot) -> bool:
    leaves = {*current.types} - _GATED
    return any(resources.diff(current, target, url).removed for url in leaves)


def _mix(
    current: resources.Snapshot, target: resources.Snapshot, step: _Step
) -> resources.Snapshot:
    layers = [
        before if before is after else _mixed_layer(before, after, step)
        for before, after in resources.pairs(current, target)
    ]
    try:
        return resources.Snapshot.of(layers)
    except ValueError:
        # A resource went from one layer to another: its two versions must meet in one place.
        before, after = (resources.Layer.of(_all(one)) for one in (current, target))
        return resources.Snapshot.of((_mixed_layer(before, after, step),))


def _all(snapshot: resources.Snapshot) -> Iterable[resources.Resource]:
    return (resource for layer in snapshot.layers for resource in layer)


_LayerMemo = weakref.WeakKeyDictionary[
    resources.Layer, weakref.WeakKeyDictionary[resources.Layer, dict[_Step, resources.Layer]]
]
_layer_memo: _LayerMemo = weakref.WeakKeyDictionary()


def _mixed_layer(before: resources.Layer, after: resources.Layer, step: _Step) -> resources.Layer:
    """Two layers in one; worked out once for each pair, however many snapshots share them."""
    per_pair = _layer_memo.setdefault(before, weakref.WeakKeyDictionary()).setdefault(after, {})
    mixed = per_pair.get(step)
    if mixed is None:
        parts: list[resources.Resource] = []
        for url in sorted({*before.types, *after.types}):
            parts.extend(_mixed_type(before, after, url, step))
        mixed = per_pair[step] = resources.Layer.of(parts)
    return mixed


def _mixed_type(
    before: resources.Layer, after: resources.Layer, url: str, step: _Step
) -> Iterable[resources.Resource]:
    old, new = before.resources(url), after.resources(url)
    if url in _UPPER:
        return (old if step in {_Step.HOLD, _Step.ADD} else new).values()
    if url == _CLUSTER and step is _Step.HOLD:
        return old.values()
    if url == _CLUSTER and step is _Step.DROP:
        return new.values()
    return {**old, **new}.values()
