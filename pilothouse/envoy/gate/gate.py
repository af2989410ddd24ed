# SPDX-License-Identifier: Apache-2.0
"""The gate itself: looks at each resource once, whoever is to get it.

Rules of this file:
- A version of a resource is checked once, and a layer that was passed costs one look, for however
  many proxies. The tables hold weakly.
- A resource that breaks a constraint costs its neighbours what they have: Envoy refuses all of a
  response in which one message is not valid
  (https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol). So `passed` leaves it out.
- A reference that leads nowhere is told, but the resource goes out: the rest of it works.
- Secrets are checked like everything else, and no finding ever holds a value of a field.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from google.protobuf import message

from pilothouse.envoy import names
from pilothouse.envoy.gate import findings, parts, profile, sizes
from pilothouse.xds import memo, resources, types

_UNRESOLVED = (types.CLUSTER.type_url, names.UNRESOLVED)
_References = frozenset[resources.Reference]
_V = TypeVar("_V")
_PerSnapshot = dict[bool, weakref.WeakKeyDictionary[resources.Snapshot, _V]]
"""By whether it is for a gRPC application."""
_weak = weakref.WeakKeyDictionary
_Look = Callable[[resources.Resource], tuple[findings.Broken, ...]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the gate says of a snapshot."""

    faults: tuple[findings.Fault, ...] = ()
    """What its client would refuse, by resource."""
    dangling: tuple[findings.Fault, ...] = ()
    """References that lead nowhere."""

    @property
    def all(self) -> tuple[findings.Fault, ...]:
        """Both, in order."""
        return tuple(sorted((*self.faults, *self.dangling)))

    def __bool__(self) -> bool:
        """True when there is something to say."""
        return bool(self.faults or self.dangling)


_RIGHT = Report()


class Gate:
    """Looks at snapshots, and remembers. For use from one thread at a time."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._inspector = parts.Inspector()
        self._tables = {False: _Table(self._look), True: _Table(self._look_for_grpc)}
        self._reports: _PerSnapshot[Report] = {False: _weak(), True: _weak()}
        self._passed: _PerSnapshot[resources.Snapshot] = {False: _weak(), True: _weak()}
        self._missing: memo.Pairs[resources.Layer, _References] = memo.Pairs()
        self._references: weakref.WeakKeyDictionary[
            resources.Layer, Mapping[str, frozenset[str]]
        ] = _weak()
        self._outwards: weakref.WeakKeyDictionary[resources.Layer, _References] = _weak()

    def report(self, snapshot: resources.Snapshot, *, grpc: bool = False) -> Report:
        """Look at a snapshot.

        Args:
            snapshot: What is to be published.
            grpc: True for a gRPC application, which takes less than Envoy does.
        """
        reports = self._reports[grpc]
        known = reports.get(snapshot)
        if known is None:
            faults = [one for layer in snapshot.layers for one in self._tables[grpc].faults(layer)]
            dangling = self._dangling(snapshot)
            known = _RIGHT
            if faults or dangling:
                known = Report(faults=tuple(sorted(faults)), dangling=tuple(sorted(dangling)))
            reports[snapshot] = known
        return known

    def passed(self, snapshot: resources.Snapshot, *, grpc: bool = False) -> resources.Snapshot:
        """What of a snapshot may go out; the same object if all of it may."""
        bad = {(one.type_url, one.name) for one in self.report(snapshot, grpc=grpc).faults}
        if not bad:
            return snapshot
        known = self._passed[grpc].get(snapshot)
        if known is None:
            known = resources.Snapshot.of(_without(layer, bad) for layer in snapshot.layers)
            self._passed[grpc][snapshot] = known
        return known

    @staticmethod
    def large(snapshot: resources.Snapshot) -> tuple[resources.Resource, ...]:
        """The resources of a snapshot that are worth an alarm for their size."""
        return tuple(one for layer in snapshot.layers for one in layer if sizes.is_large(one))

    def _look(self, resource: resources.Resource) -> tuple[findings.Broken, ...]:
        return self._inspector.broken(resource)

    @staticmethod
    def _look_for_grpc(resource: resources.Resource) -> tuple[findings.Broken, ...]:
        """What is said in annotations is Envoy's to check; gRPC has rules of its own."""
        try:
            value = parts.parse(resource)
        except message.DecodeError:
            return (findings.Broken("", "must be a message of its type"),)
        found = sizes.too_large(resource)
        return found if value is None else (*found, *profile.broken(resource.type_url, value))

    def _dangling(self, snapshot: resources.Snapshot) -> list[findings.Fault]:
        """References that no layer satisfies.

        Worked out for each pair of layers, so that what many snapshots share costs once.
        """
        found: list[findings.Fault] = []
        for layer in snapshot.layers:
            missing = self._outward(layer)
            if not missing:
                continue
            # The largest first: it has the endpoints of nearly everything.
            others = sorted((one for one in snapshot.layers if one is not layer), key=_size)
            while missing and others:
                missing &= self._unsatisfied(layer, others.pop())
            if missing:
                found += _told(layer, missing)
        return found

    def _outward(self, layer: resources.Layer) -> _References:
        """What resources of a layer refer to outside of it."""
        known = self._outwards.get(layer)
        if known is None:
            known = self._outwards[layer] = self._unsatisfied(layer, layer)
        return known

    def _unsatisfied(self, layer: resources.Layer, other: resources.Layer) -> _References:
        """What resources of a layer refer to, and another layer does not have."""
        found = self._missing.of(layer, other)
        if "missing" not in found:
            known = self._inherited(layer, other)
            if known is None:
                known = frozenset(
                    (url, name)
                    for url, named in self._referred(layer).items()
                    for name in named - other.resources(url).keys()
                )
            found["missing"] = known
        return found["missing"]

    def _inherited(self, layer: resources.Layer, other: resources.Layer) -> _References | None:
        """What was found when one of these, or both, had other resources of the same names."""
        before = layer.made_from
        after = other.made_from
        layers = [layer, before[0]] if before and _same_references(before[1]) else [layer]
        others = [other, after[0]] if after else [other]
        for pair in itertools.product(layers, others):
            known = self._missing.of(*pair).get("missing")
            if known is not None:
                return known
        return None

    def _referred(self, layer: resources.Layer) -> Mapping[str, frozenset[str]]:
        """The names that resources of a layer refer to, by type; worked out once."""
        known = self._references.get(layer)
        if known is None and (before := layer.made_from) and _same_references(before[1]):
            known = self._references.get(before[0])
        if known is None:
            every = frozenset[resources.Reference]().union(*[one.references for one in layer]) - {
                _UNRESOLVED
            }
            by_type: dict[str, set[str]] = {}
            for url, name in every:
                by_type.setdefault(url, set()).add(name)
            known = {url: frozenset(named) for url, named in by_type.items()}
        self._references[layer] = known
        return known


class _Table:
    """What one way to look found, by resource and by layer."""

    def __init__(self, look: _Look) -> None:
        self._look = look
        self._right: dict[int, weakref.ref[resources.Resource]] = {}
        """By identity: a look-up by weak key would hash type, name and version each time."""
        self._wrong: weakref.WeakKeyDictionary[resources.Layer, tuple[findings.Fault, ...]] = (
            weakref.WeakKeyDictionary()
        )

    def faults(self, layer: resources.Layer) -> tuple[findings.Fault, ...]:
        known = self._wrong.get(layer)
        if known is None:
            right = self._right
            base, replaced = layer.made_from or (layer, ())
            before = self._wrong.get(base)
            found: list[findings.Fault] = []
            if before:
                gone = {(old.type_url, old.name) for old, _ in replaced}
                found += [one for one in before if (one.type_url, one.name) not in gone]
            for resource in layer if before is None else [new for _, new in replaced]:
                if id(resource) not in right:
                    found += self._faults(resource)
            known = self._wrong[layer] = tuple(found)
        return known

    def _faults(self, resource: resources.Resource) -> Iterable[findings.Fault]:
        broken = self._look(resource)
        if not broken:
            identity, right = id(resource), self._right
            # Gone before anything else can get the same identity.
            right[identity] = weakref.ref(resource, lambda _: right.pop(identity, None))
        return (_fault(resource, one.path, one.rule) for one in broken)


def _fault(resource: resources.Resource, path: str, rule: str) -> findings.Fault:
    return findings.Fault(
        type_url=resource.type_url,
        name=resource.name,
        path=path,
        rule=rule,
        origins=resource.origins,
    )


def _told(layer: resources.Layer, missing: _References) -> Iterable[findings.Fault]:
    for resource in layer:
        for url, name in sorted(resource.references & missing):
            rule = f"refers to {url.rpartition('.')[2]} {name}, which is not there"
            yield _fault(resource, "", rule)


def _same_references(replaced: resources.Replaced) -> bool:
    return all(old.references == new.references for old, new in replaced)


def _size(layer: resources.Layer) -> int:
    return sum(len(layer.resources(url)) for url in layer.types)


def _without(layer: resources.Layer, bad: set[tuple[str, str]]) -> resources.Layer:
    if all(layer.get(*one) is None for one in bad):
        return layer
    return resources.Layer.of(one for one in layer if (one.type_url, one.name) not in bad)
