# SPDX-License-Identifier: Apache-2.0
"""Make before break: from one snapshot to another in steps that are acknowledged one by one.

1. New and changed clusters, beside all the old ones. Envoy withholds this acknowledgement until
   they are warm.
2. The new listeners and routes. Nothing that they need is missing, nothing that the old ones need
   is gone.
3. The target itself: clusters that nobody uses any more go.

A step that changes nothing is left out. Endpoints and secrets are leaves: they come from the target
at every step, and from where they were as long as an old cluster still needs them. The way is
worked out once for each pair of snapshots, whoever goes it, and a newer target starts from the step
that was reached. Source: "Eventual consistency considerations" in
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from pilothouse.xds import resources, types

_GATED = frozenset(each.type_url for each in types.ALL if each.gated)
_CLUSTER = types.CLUSTER.type_url
_memo: weakref.WeakKeyDictionary[
    resources.Snapshot, weakref.WeakKeyDictionary[resources.Snapshot, resources.Snapshot]
] = weakref.WeakKeyDictionary()


def next_step(current: resources.Snapshot, target: resources.Snapshot) -> resources.Snapshot:
    """The next snapshot on the way; ``target`` itself when it is the last step."""
    if current is target:
        return target
    per_target = _memo.setdefault(current, weakref.WeakKeyDictionary())
    step = per_target.get(target)
    if step is None:
        step = per_target[target] = _next_step(current, target)
    return step


def _next_step(current: resources.Snapshot, target: resources.Snapshot) -> resources.Snapshot:
    clusters = resources.diff(current, target, _CLUSTER)
    upper = any(resources.diff(current, target, url) for url in _GATED if url != _CLUSTER)
    if clusters.changed and upper:
        return _mix(current, target, upper_from=current)
    if clusters.removed and upper:
        return _mix(current, target, upper_from=target)
    return target


def _mix(
    current: resources.Snapshot, target: resources.Snapshot, *, upper_from: resources.Snapshot
) -> resources.Snapshot:
    """Clusters and leaves of both, the target's first; listeners and routes of one."""
    newest = upper_from is target
    layers = [
        before if before is after else _mixed_layer(before, after, newest=newest)
        for before, after in resources.pairs(current, target)
    ]
    try:
        return resources.Snapshot.of(layers)
    except ValueError:
        # A resource went from one layer to another: its two versions must meet in one place.
        before, after = (resources.Layer.of(_all(one)) for one in (current, target))
        return resources.Snapshot.of((_mixed_layer(before, after, newest=newest),))


def _all(snapshot: resources.Snapshot) -> Iterable[resources.Resource]:
    return (resource for layer in snapshot.layers for resource in layer)


_LayerMemo = weakref.WeakKeyDictionary[
    resources.Layer, weakref.WeakKeyDictionary[resources.Layer, dict[bool, resources.Layer]]
]
_layer_memo: _LayerMemo = weakref.WeakKeyDictionary()


def _mixed_layer(
    before: resources.Layer, after: resources.Layer, *, newest: bool
) -> resources.Layer:
    """Two layers in one; worked out once for each pair, however many snapshots share them."""
    per_pair = _layer_memo.setdefault(before, weakref.WeakKeyDictionary()).setdefault(after, {})
    mixed = per_pair.get(newest)
    if mixed is None:
        upper = after if newest else before
        parts: list[resources.Resource] = []
        for url in sorted({*before.types, *after.types}):
            if url in _GATED and url != _CLUSTER:
                parts.extend(upper.resources(url).values())
            else:
                parts.extend({**before.resources(url), **after.resources(url)}.values())
        mixed = per_pair[newest] = resources.Layer.of(parts)
    return mixed
