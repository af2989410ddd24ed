# SPDX-License-Identifier: Apache-2.0
"""Make before break: from one snapshot to another in steps that are acknowledged one by one.

1. New and changed clusters, beside all the old ones. Envoy withholds this acknowledgement until
   they are warm.
2. The new listeners, routes and filters. Nothing that they need is missing, nothing that the old
   ones need is gone.
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
from typing import Final

from pilothouse.xds import differences, memo, resources, types

_CLUSTER: Final = types.CLUSTER.type_url
_UPPER: Final = tuple(
    each.type_url for each in types.ALL if each.gated and each is not types.CLUSTER
)
_GATED: Final = frozenset({_CLUSTER, *_UPPER})


class _From(enum.Enum):
    """Which of two snapshots a mixed one has a type from; if both, then the newer one first."""

    OLD = enum.auto()
    NEW = enum.auto()
    BOTH = enum.auto()


_Recipe = tuple[tuple[str, _From], ...]
"""Type URL to source, for gated types; leaves are of both."""


def _recipe(clusters: _From, upper: _From) -> _Recipe:
    return ((_CLUSTER, clusters), *((url, upper) for url in _UPPER))


_HOLD: Final = _recipe(_From.OLD, _From.OLD)
_ADD: Final = _recipe(_From.BOTH, _From.OLD)
_USE: Final = _recipe(_From.BOTH, _From.NEW)
_DROP: Final = _recipe(_From.NEW, _From.NEW)

_steps: memo.Pairs[resources.Snapshot, resources.Snapshot | None] = memo.Pairs()
_takes: memo.Pairs[resources.Snapshot, bool] = memo.Pairs()
_Mixes = weakref.WeakKeyDictionary[
    resources.Snapshot,
    weakref.WeakKeyDictionary[resources.Snapshot, dict[_Recipe, resources.Snapshot]],
]
_mixes: _Mixes = weakref.WeakKeyDictionary()


def next_step(current: resources.Snapshot, target: resources.Snapshot) -> resources.Snapshot:
    """The next snapshot on the way; ``target`` itself when it is the last step.

    Only to be gone when ``current`` was acknowledged, unless it `only_adds`.
    """
    if current is target:
        return target
    known = _steps.of(current, target)
    if "next" not in known:
        known["next"] = _intermediate(current, target)
    # None stands for the target: were it a value here, it would keep its own key alive.
    return known["next"] or target


def hold(current: resources.Snapshot, target: resources.Snapshot) -> resources.Snapshot:
    """The step to wait at until ``current`` is acknowledged: it, with the newest of the leaves."""
    return _mix(current, target, _HOLD)


def straight(current: resources.Snapshot, target: resources.Snapshot) -> resources.Snapshot:
    """The target at once, but with the leaves of clusters that are warming still."""
    return _mix(current, target, _DROP) if _loses_leaves(current, target) else target


def beside(current: resources.Snapshot, target: resources.Snapshot) -> resources.Snapshot:
    """The target at once, but with the old clusters beside its own, for users of them."""
    return _mix(current, target, _USE) if takes_away(current, target) else target


def rollback(
    settled: resources.Snapshot, current: resources.Snapshot, refused: frozenset[str]
) -> resources.Snapshot:
    """Where a client stands that refused types of ``current`` after it accepted ``settled``.

    The refused ones are as they were, the others as they are.
    """
    recipe = tuple((url, _From.OLD if url in refused else _From.NEW) for url in (_CLUSTER, *_UPPER))
    return _mix(settled, current, recipe)


def only_adds(current: resources.Snapshot, step: resources.Snapshot) -> bool:
    """True if a step fits whatever the client holds on the way to ``current``.

    It takes nothing away, and listeners and routes stay.
    """
    if current is step:
        return True
    known = _takes.of(current, step)
    if "only adds" not in known:
        upper = any(differences.diff(current, step, url) for url in _UPPER)
        known["only adds"] = not (upper or takes_away(current, step))
    return known["only adds"]


def takes_away(current: resources.Snapshot, step: resources.Snapshot) -> bool:
    """True if a step lacks something that listeners and routes of before may use."""
    if current is step:
        return False
    known = _takes.of(current, step)
    if "takes away" not in known:
        removed = differences.diff(current, step, _CLUSTER).removed
        known["takes away"] = bool(removed) or _loses_leaves(current, step)
    return known["takes away"]


def _intermediate(
    current: resources.Snapshot, target: resources.Snapshot
) -> resources.Snapshot | None:
    clusters = differences.diff(current, target, _CLUSTER)
    upper = any(differences.diff(current, target, url) for url in _UPPER)
    if clusters.changed and upper:
        return _mix(current, target, _ADD)
    if clusters.removed and upper:
        return _mix(current, target, _USE)
    if clusters and _loses_leaves(current, target):
        return _mix(current, target, _DROP)
    return None


def _loses_leaves(current: resources.Snapshot, target: resources.Snapshot) -> bool:
    leaves = {*current.types} - _GATED
    return any(differences.diff(current, target, url).removed for url in leaves)


def _mix(old: resources.Snapshot, new: resources.Snapshot, recipe: _Recipe) -> resources.Snapshot:
    """Two snapshots in one; worked out once for each pair."""
    if old is new:
        return new
    per_pair = _mixes.setdefault(old, weakref.WeakKeyDictionary()).setdefault(new, {})
    mixed = per_pair.get(recipe)
    if mixed is None:
        mixed = per_pair[recipe] = _mixed(old, new, recipe)
    return mixed


def _mixed(old: resources.Snapshot, new: resources.Snapshot, recipe: _Recipe) -> resources.Snapshot:
    layers = [
        before if before is after else _mixed_layer(before, after, recipe)
        for before, after in differences.pairs(old, new)
    ]
    try:
        return resources.Snapshot.of(layers)
    except ValueError:
        # A resource went from one layer to another: its two versions must meet in one place.
        before, after = (resources.Layer.of(_all(one)) for one in (old, new))
        return resources.Snapshot.of((_mixed_layer(before, after, recipe),))


def _all(snapshot: resources.Snapshot) -> Iterable[resources.Resource]:
    return (resource for layer in snapshot.layers for resource in layer)


_LayerMemo = weakref.WeakKeyDictionary[
    resources.Layer, weakref.WeakKeyDictionary[resources.Layer, dict[_Recipe, resources.Layer]]
]
_layer_memo: _LayerMemo = weakref.WeakKeyDictionary()


def _mixed_layer(
    before: resources.Layer, after: resources.Layer, recipe: _Recipe
) -> resources.Layer:
    """Two layers in one; worked out once for each pair, however many snapshots share them."""
    per_pair = _layer_memo.setdefault(before, weakref.WeakKeyDictionary()).setdefault(after, {})
    mixed = per_pair.get(recipe)
    if mixed is None:
        sources = dict(recipe)
        parts: list[resources.Resource] = []
        for url in sorted({*before.types, *after.types}):
            old, new = before.resources(url), after.resources(url)
            match sources.get(url, _From.BOTH):
                case _From.OLD:
                    parts.extend(old.values())
                case _From.NEW:
                    parts.extend(new.values())
                case _From.BOTH:
                    parts.extend({**old, **new}.values())
        mixed = per_pair[recipe] = resources.Layer.of(parts)
    return mixed
