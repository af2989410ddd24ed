# SPDX-License-Identifier: Apache-2.0
"""From plans to snapshots: every part is translated once, and shared by whoever has it.

A change makes a new plan, most of whose parts are the old objects. Those are recognised by identity
and cost next to nothing; what is new but equal gives the very resources that are there already. So
equal plans end in one and the same snapshot, and an unchanged layer is an unchanged object, which
is how the streams see that there is nothing to send.

Certificates: a listener refers to the certificates that are there. One that is missing takes
nothing from its neighbours; a chain that has none left, or that cannot check its clients, refuses
connections, and a listener of nothing but such chains is left out. None ever serves in the clear. A
certificate that is deleted is no longer served.
A cluster that cannot show its own has no endpoints, so its requests get 503: Envoy would hold back
all clusters while it waits for the certificate.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pilothouse.envoy import clusters, endpoints, listeners, memo, proxyless, routes, tcp_forwards
from pilothouse.envoy import secrets as certificates
from pilothouse.model import secrets
from pilothouse.routing import credentials, plan
from pilothouse.xds import resources

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_Identities = tuple[int, ...]
_Weak = weakref.WeakValueDictionary[_Identities, V]
_Shape = tuple[int, tuple[str, ...]]
_Secrets = secrets.Uses
_NONE: _Secrets = frozenset()
_RESULT: operator.attrgetter[resources.Resource] = operator.attrgetter("result")
_FEW = 1000
"""Resources in which two layers may differ for one to be made from the other."""


class _Generations(Generic[K, V]):
    """What was used in this generation or in the one before."""

    def __init__(self) -> None:
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self._young[key] = value
        return value

    def put(self, key: K, value: V) -> V:
        self._young[key] = value
        return value

    def begin(self) -> None:
        self._old, self._young = self._young, {}


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class _Made:
    """A layer, and what must live as long: memo entries, and objects known by identity."""

    layer: resources.Layer
    parts: tuple[resources.Resource, ...]
    """The resources of the layer, in the order of its plan."""
    keep: tuple[object, ...]


class _Assembly:
    """What a route configuration is made of: chunks, which are compared by identity.

    The values themselves would be compared as deep as they go, thousands of virtual hosts each time
    that one of them changes.
    """

    __slots__ = ("_chunks", "_keep", "_key")

    def __init__(
        self, name: str, entries: Sequence[memo.Entry[Any, routes.Chunk]], *, ignore_port: bool
    ) -> None:
        self._keep = entries  # so that nothing else can get the chunks' identities
        self._chunks = [entry.result for entry in entries]
        self._key = (name, ignore_port, tuple(map(id, self._chunks)))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Assembly) and self._key == other._key

    def resource(self) -> resources.Resource:
        """The route configuration."""
        name, ignore_port, _ = self._key
        return routes.resource(name, self._chunks, ignore_port=ignore_port)


class Translator:
    """Translates plans, and remembers. For use from one thread at a time."""

    def __init__(self) -> None:
        self._clusters = memo.Memo(clusters.resource)
        self._endpoints = memo.Memo(endpoints.resource)
        self._listeners = memo.Memo(listeners.Served.resource)
        self._forwards = memo.Memo(tcp_forwards.resource)
        self._chunks = memo.Memo(routes.chunk)
        self._routes = memo.Memo(_Assembly.resource)
        self._certificates = memo.Memo(certificates.certificate)
        self._authorities = memo.Memo(certificates.authority)
        self._client_clusters = memo.Memo(proxyless.cluster)
        self._targets = memo.Memo(proxyless.target)
        self._servers = memo.Memo(proxyless.server)
        self._nowhere = proxyless.nowhere()
        self._layers: _Generations[tuple[int, _Secrets], _Made] = _Generations()
        self._secret_layers: _Generations[tuple[_Identities, _Identities], _Made] = _Generations()
        # A layer keeps its resources alive, and a snapshot its layers: so nothing else can get the
        # identities that they are found by.
        self._by_resources: _Weak[resources.Layer] = weakref.WeakValueDictionary()
        self._by_shape: weakref.WeakValueDictionary[_Shape, _Made] = weakref.WeakValueDictionary()
        self._by_layers: _Weak[resources.Snapshot] = weakref.WeakValueDictionary()

    def begin_generation(self) -> None:
        """Forget what has not been used since the call before this one."""
        self._layers.begin()
        self._secret_layers.begin()

    def translate(self, layer: plan.Layer, *, missing: _Secrets = _NONE) -> resources.Layer:
        """The resources of a layer, without its certificates.

        Args:
            layer: what to translate; the same object again costs one look.
            missing: certificates that its listeners and clusters must do without.

        Raises:
            ValueError: two parts of a layer have one type and name.
        """
        key = (id(layer), missing)
        known = self._layers.get(key)
        if known is None:
            entries = self._entries(layer, missing)
            made = self._made([*map(_RESULT, entries)], (layer, *entries))
            known = self._layers.put(key, made)
        return known.layer

    def secret_layer(
        self,
        held: Iterable[secrets.TlsSecret],
        authorities: Iterable[secrets.TlsSecret] = (),
    ) -> resources.Layer:
        """The certificates themselves, for proxies that may be served them.

        Args:
            held: secrets whose certificates and keys are served.
            authorities: those that say who signs the certificates of others.
        """
        served, trusted = tuple(held), tuple(authorities)
        key = (tuple(map(id, served)), tuple(map(id, trusted)))
        known = self._secret_layers.get(key)
        if known is None:
            entries = (
                *map(self._certificates.entry, served),
                *map(self._authorities.entry, trusted),
            )
            parts = [entry.result for entry in entries]
            made = self._made(parts, (*served, *trusted, *entries))
            known = self._secret_layers.put(key, made)
        return known.layer

    def snapshot(
        self, proxy: plan.ProxyPlan, held: Mapping[secrets.SecretKey, secrets.TlsSecret]
    ) -> resources.Snapshot:
        """Everything that a proxy may hold; the same object again when nothing in it changed.

        The translator holds snapshots weakly: whoever wants the same one again keeps it.

        Args:
            proxy: its plan. Only certificates that the plan lists are given out.
            held: every usable secret there is. It must have been read whole: what is not in it
                counts as deleted, and listeners lose it.

        Raises:
            ValueError: two parts of a plan have one type and name.
        """
        served = _held(held, (key for layer in proxy.layers for key in layer.certificates))
        pairs = tuple(one for one in served if one.certificate_chain)
        trusted = _held(held, (key for layer in proxy.layers for key in layer.authorities))
        signers = tuple(one for one in trusted if one.authorities)
        there = {one.key for one in pairs} | {secrets.AuthorityKey(one.key) for one in signers}
        layers = [self.translate(layer, missing=_needed(layer) - there) for layer in proxy.layers]
        if pairs or signers:
            layers.append(self.secret_layer(pairs, signers))
        layers.extend(map(self._proxyless, proxy.proxyless))
        key = tuple(map(id, layers))
        snapshot = self._by_layers.get(key)
        if snapshot is None:
            snapshot = self._by_layers[key] = resources.Snapshot.of(layers)
        return snapshot

    def _proxyless(self, told: plan.Proxyless) -> resources.Layer:
        """The resources of an application that needs no proxy."""
        key = (id(told), _NONE)
        known = self._layers.get(key)
        if known is None:
            single: tuple[memo.Entry[Any, resources.Resource], ...] = (
                *map(self._client_clusters.entry, told.clusters),
                *map(self._endpoints.entry, told.endpoints),
                *map(self._servers.entry, told.servers),
            )
            several = tuple(map(self._targets.entry, told.targets))
            parts = [entry.result for entry in single]
            parts += [resource for entry in several for resource in entry.result]
            parts += self._nowhere if several else ()
            known = self._layers.put(key, self._made(parts, (told, *single, *several)))
        return known.layer

    def _made(self, parts: Iterable[resources.Resource], keep: tuple[object, ...]) -> _Made:
        """The layer of these resources; the same object for the same resources."""
        listed = tuple(parts)
        key = tuple(map(id, listed))
        shape = (len(listed), tuple([one.name for one in (*listed[:1], *listed[-1:])]))
        layer = self._by_resources.get(key)
        if layer is None:
            like = self._by_shape.get(shape)
            layer = (like and _alike(like, listed)) or resources.Layer.of(listed)
            self._by_resources[key] = layer
        made = self._by_shape[shape] = _Made(layer, listed, keep)
        return made

    def _entries(self, layer: plan.Layer, missing: _Secrets) -> list[memo.Entry[Any, Any]]:
        """The memo entries that the resources of a layer come from, in the order of its plan."""
        parts: list[memo.Entry[Any, Any]] = [
            *self._clusters.entries(_open(layer, missing)),
            *self._endpoints.entries(layer.endpoints),
            *self._forwards.entries(layer.tcp_forwards),
        ]
        here = frozenset(configuration.name for configuration in layer.route_configurations)
        ignoring = {name for one in layer.listeners for name in listeners.port_ignored(one)}
        for configuration in layer.route_configurations:
            chunks = self._chunks.entries(configuration.virtual_hosts)
            assembly = _Assembly(
                configuration.name, chunks, ignore_port=configuration.name in ignoring
            )
            parts.append(self._routes.entry(assembly))
        for planned in layer.listeners:
            served = listeners.served(planned, here=here, missing=missing)
            if served is not None:
                parts.append(self._listeners.entry(served))
        return parts


def _alike(like: _Made, parts: tuple[resources.Resource, ...]) -> resources.Layer | None:
    """The layer of these resources made from a similar one; None when they differ in too much."""
    differing = map(operator.is_not, like.parts, parts)
    replaced = tuple(itertools.compress(zip(like.parts, parts, strict=True), differing))
    if len(replaced) > _FEW or any(
        (old.type_url, old.name) != (new.type_url, new.name) for old, new in replaced
    ):
        return None
    return like.layer.replacing(replaced)


def _held(
    held: Mapping[secrets.SecretKey, secrets.TlsSecret], listed: Iterable[secrets.SecretKey]
) -> tuple[secrets.TlsSecret, ...]:
    return tuple(held[key] for key in sorted(set(listed)) if key in held)


def _needed(layer: plan.Layer) -> _Secrets:
    shown = (key for one in layer.listeners for key in listeners.secrets_of(one))
    return layer.cluster_secrets.union(shown)


def _open(layer: plan.Layer, missing: _Secrets) -> Iterable[plan.Cluster]:
    """The clusters; those whose secrets are missing are closed."""
    if missing.isdisjoint(layer.cluster_secrets):
        return layer.clusters
    return [
        one if missing.isdisjoint(credentials.of_cluster(one)) else clusters.closed(one)
        for one in layer.clusters
    ]
