# SPDX-License-Identifier: Apache-2.0
"""Resources, the layers that proxies share, and snapshots, as immutable values.

Comparing two snapshots skips the layers they share. The version of a set of resources is a hash of
its content, as that of each of them is.
"""

from __future__ import annotations

import hashlib
import itertools
import types as stdlib_types
import weakref
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import ClassVar

from pilothouse.model import keys
from pilothouse.xds import resource as single

Resource = single.Resource
Reference = single.Reference
_EMPTY: Mapping[str, Resource] = stdlib_types.MappingProxyType({})


Replaced = tuple[tuple[Resource, Resource], ...]
"""Resources, and others of their types and names in their places."""


class Layer:
    """An immutable set of resources that several snapshots share. Compared by identity.

    One that was made from another knows that, so that what is asked of both costs the difference.
    What the answers are does not depend on it.
    """

    __slots__ = (
        "__weakref__",
        "_by_type",
        "_digests",
        "_made_from",
        "_news",
        "_origins",
        "_versions",
    )

    def __init__(self, by_type: Mapping[str, Mapping[str, Resource]]) -> None:
        """Use ``of``."""
        self._by_type = by_type
        self._made_from: weakref.ref[Layer] | None = None
        self._news: tuple[Resource, ...] = ()
        """What was put in place of others; those are not kept for it."""
        self._digests: dict[str, int] = {}
        self._versions: dict[str, Mapping[str, str]] = {}
        self._origins: Mapping[keys.ObjectKey, tuple[Resource, ...]] | None = None

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> Layer:
        """Make a layer.

        Raises:
            ValueError: two resources have one type and name.
        """
        by_type: dict[str, dict[str, Resource]] = {}
        for resource in resources:
            named = by_type.setdefault(resource.type_url, {})
            if resource.name in named:
                msg = f"two resources of type {resource.type_url} are named {resource.name!r}"
                raise ValueError(msg)
            named[resource.name] = resource
        return cls({url: _by_name(by_type[url]) for url in sorted(by_type)})

    def replacing(self, replaced: Replaced) -> Layer:
        """The same layer with some of its resources replaced.

        Raises:
            ValueError: one of them is not in it, or another one is to be in its place.
        """
        fresh: dict[str, dict[str, Resource]] = {}
        for old, new in replaced:
            if self.get(new.type_url, new.name) is not old:
                raise ValueError(f"{old!r} cannot be replaced by {new!r}")
            if new.type_url not in fresh:
                fresh[new.type_url] = {**self._by_type[new.type_url]}
            fresh[new.type_url][new.name] = new
        layer = Layer({url: fresh.get(url, named) for url, named in self._by_type.items()})
        layer._made_from = weakref.ref(self)
        layer._news = tuple([new for _, new in replaced])
        return layer

    @property
    def made_from(self) -> tuple[Layer, Replaced] | None:
        """The layer that this one was made from by ``replacing``; None when that is gone."""
        base = None if self._made_from is None else self._made_from()
        if base is None:
            return None
        named = base._by_type  # noqa: SLF001  of its own kind
        return base, tuple([(named[new.type_url][new.name], new) for new in self._news])

    def beyond(self, known: Container[Layer]) -> Iterable[Resource]:
        """The resources, but for those that it has from one of these layers, if it was made so."""
        made_from = self.made_from
        if made_from is None or made_from[0] not in known:
            return self
        return self._news

    @property
    def types(self) -> tuple[str, ...]:
        """Type URLs that it has resources of, sorted."""
        return tuple(self._by_type)

    def get(self, type_url: str, name: str) -> Resource | None:
        """The resource, or None."""
        return self._by_type.get(type_url, _EMPTY).get(name)

    def resources(self, type_url: str) -> Mapping[str, Resource]:
        """Resources of one type by name, in name order."""
        return self._by_type.get(type_url, _EMPTY)

    def versions(self, type_url: str) -> Mapping[str, str]:
        """Name to version of resources of one type; made at first use."""
        versions = self._versions.get(type_url)
        if versions is None:
            base, replaced = self.made_from or (EMPTY_LAYER, ())
            known = base._versions.get(type_url)  # noqa: SLF001  of its own kind
            if known is None:
                versions = {one.name: one.version for one in self.resources(type_url).values()}
            else:
                news = {new.name: new.version for _, new in replaced if new.type_url == type_url}
                versions = {**known, **news} if news else known
            self._versions[type_url] = versions
        return versions

    def digest(self, type_url: str) -> int:
        """Sum of the hashes of all resources of one type; computed once.

        A sum, so that the version of a snapshot costs an addition for each layer, and does not
        depend on how its resources are spread over them.
        """
        digest = self._digests.get(type_url)
        if digest is None:
            base, replaced = self.made_from or (EMPTY_LAYER, ())
            digest = base._digests.get(type_url)  # noqa: SLF001  of its own kind
            if digest is None:
                digest = sum(one.digest for one in self.resources(type_url).values())
            else:
                pairs = (pair for pair in replaced if pair[1].type_url == type_url)
                digest += sum(new.digest - old.digest for old, new in pairs)
            self._digests[type_url] = digest
        return digest

    @property
    def origins(self) -> Mapping[keys.ObjectKey, tuple[Resource, ...]]:
        """Resources by the config object that they come from, in key order; made at first use."""
        if self._origins is None:
            found: dict[keys.ObjectKey, list[Resource]] = {}
            for named in self._by_type.values():
                for resource in named.values():
                    for key in resource.origins:
                        found.setdefault(key, []).append(resource)
            self._origins = {key: tuple(found[key]) for key in sorted(found)}
        return self._origins

    def __iter__(self) -> Iterator[Resource]:
        """All resources, by type and name."""
        for named in self._by_type.values():
            yield from named.values()


def _by_name(named: Mapping[str, Resource]) -> Mapping[str, Resource]:
    return {name: named[name] for name in sorted(named)}


EMPTY_LAYER = Layer({})
"""The layer without resources."""


class Snapshot:
    """Everything one client may hold: a tuple of disjoint layers. Compared by identity."""

    __slots__ = ("__weakref__", "_merged", "_versions", "layers")

    EMPTY: ClassVar[Snapshot]

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        """Use ``of``."""
        self.layers = layers
        self._merged: dict[str, Mapping[str, Resource]] = {}
        self._versions: dict[str, str] = {}

    @classmethod
    def of(cls, layers: Iterable[Layer]) -> Snapshot:
        """Make a snapshot.

        Raises:
            ValueError: two layers have a resource of one type and name.
        """
        snapshot = cls(tuple(layers))
        for type_url in snapshot.types:
            parts = [part for layer in snapshot.layers if (part := layer.resources(type_url))]
            # In pairs, because a small layer beside a large one then costs little.
            for one, other in itertools.combinations(parts, 2):
                if not one.keys().isdisjoint(other.keys()):
                    twice = ", ".join(sorted(one.keys() & other.keys()))
                    msg = f"layers share resources of type {type_url}: {twice}"
                    raise ValueError(msg)
        return snapshot

    @property
    def types(self) -> tuple[str, ...]:
        """Type URLs that it has resources of, sorted."""
        return tuple(sorted({url for layer in self.layers for url in layer.types}))

    def get(self, type_url: str, name: str) -> Resource | None:
        """The resource, or None."""
        for layer in self.layers:
            resource = layer.get(type_url, name)
            if resource is not None:
                return resource
        return None

    def resources(self, type_url: str) -> Mapping[str, Resource]:
        """Resources of one type by name, in name order; computed once."""
        merged = self._merged.get(type_url)
        if merged is None:
            parts = [part for layer in self.layers if (part := layer.resources(type_url))]
            if len(parts) == 1:
                merged = parts[0]
            else:
                merged = dict(sorted(item for part in parts for item in part.items()))
            self._merged[type_url] = merged
        return merged

    def version(self, type_url: str) -> str:
        """Content hash of all resources of a type, however they are spread over layers."""
        version = self._versions.get(type_url)
        if version is None:
            version = _set_version(layer.digest(type_url) for layer in self.layers)
            self._versions[type_url] = version
        return version

    def missing_references(self) -> tuple[tuple[Resource, Reference], ...]:
        """References that lead nowhere, in resource order."""
        return tuple(
            (resource, reference)
            for layer in self.layers
            for resource in layer
            for reference in sorted(resource.references)
            if self.get(*reference) is None
        )


Snapshot.EMPTY = Snapshot(())


def _set_version(digests: Iterable[int]) -> str:
    total = sum(digests) % (1 << 256)
    return hashlib.sha256(total.to_bytes(32, "big")).hexdigest()[: single.VERSION_LENGTH]
