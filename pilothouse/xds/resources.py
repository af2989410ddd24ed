# SPDX-License-Identifier: Apache-2.0
"""Resources, the layers that proxies share, and snapshots, as immutable values.

Versions are content hashes, so equal content has an equal version on every replica and after every
restart, and what did not change is never sent again. Comparing two snapshots skips the layers they
share.
"""

from __future__ import annotations

import hashlib
import itertools
import types as stdlib_types
import weakref
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import ClassVar

from pilothouse.model import keys
from pilothouse.xds import framing

Reference = tuple[str, str]
"""Type URL and name of a resource that another one needs."""
_EMPTY: Mapping[str, Resource] = stdlib_types.MappingProxyType({})
_VERSION_LENGTH = 16


class Resource:
    """One named resource, encoded once. Equal when type, name and content are."""

    __slots__ = (
        "__weakref__",
        "_delta",
        "_digest",
        "_sotw",
        "body",
        "metadata",
        "name",
        "origins",
        "parts",
        "references",
        "type_url",
        "version",
    )

    def __init__(
        self,
        type_url: str,
        name: str,
        body: bytes,
        *,
        references: frozenset[Reference],
        origins: tuple[keys.ObjectKey, ...],
        metadata: bytes,
        version: str,
        parts: tuple[bytes, ...] = (),
    ) -> None:
        """Use ``of`` or ``joined``."""
        self.type_url = type_url
        self.name = name
        self.body = body
        self.parts = parts
        self.version = version or hashlib.sha256(body).hexdigest()[:_VERSION_LENGTH]
        self.references = references
        self.origins = origins
        self.metadata = metadata
        self._digest: int | None = None
        self._sotw: bytes | None = None
        self._delta: bytes | None = None

    @classmethod
    def of(
        cls,
        type_url: str,
        name: str,
        body: bytes,
        *,
        references: Iterable[Reference] = (),
        origins: Iterable[keys.ObjectKey] = (),
        metadata: bytes = b"",
        version: str = "",
    ) -> Resource:
        """Make a resource.

        Args: type_url: with the ``type.googleapis.com/`` prefix. name: unique within the type.
        body: the message, serialised deterministically. references: resources that this one cannot
        do without. origins: the config objects that it comes from. metadata: an encoded
        ``envoy.config.core.v3.Metadata`` that travels beside the body in delta, for example a trace
        context. No part of the version: it is sent only when the body changes. version: in place of
        the content's hash, for a publisher with versions of its own; it must change when the body
        does.
        """
        return cls(
            type_url,
            name,
            body,
            references=frozenset(references),
            # Not a set: what comes in order, as thousands often do, is in order at once.
            origins=tuple(sorted(dict.fromkeys(origins))),
            metadata=metadata,
            version=version,
        )

    @classmethod
    def joined(
        cls,
        type_url: str,
        name: str,
        parts: Iterable[bytes],
        *,
        references: Iterable[Reference],
        origins: Iterable[keys.ObjectKey],
    ) -> Resource:
        """Make a resource whose body is joined of parts, each some whole fields of the message.

        Most of them are the very objects that other versions of the resource are joined of, so
        whoever has looked at those knows them again.
        """
        joined = tuple(parts)
        return cls(
            type_url,
            name,
            b"".join(joined),
            references=frozenset(references),
            origins=tuple(sorted(dict.fromkeys(origins))),
            metadata=b"",
            version="",
            parts=joined,
        )

    @property
    def digest(self) -> int:
        """Hash of name and version; made at first use."""
        if self._digest is None:
            text = f"{self.version}:{self.name}".encode()
            self._digest = int.from_bytes(hashlib.sha256(text).digest(), "big")
        return self._digest

    @property
    def sotw_frame(self) -> bytes:
        """The resource as a field of a DiscoveryResponse; made at first use."""
        if self._sotw is None:
            self._sotw = framing.sotw_resource(self.type_url, self.body)
        return self._sotw

    @property
    def delta_frame(self) -> bytes:
        """The resource as a field of a DeltaDiscoveryResponse; made at first use."""
        if self._delta is None:
            self._delta = framing.delta_resource(
                self.name, self.version, self.type_url, self.body, self.metadata
            )
        return self._delta

    def __eq__(self, other: object) -> bool:
        """Compare content; metadata takes no part."""
        if self is other:
            return True
        return (
            isinstance(other, Resource)
            and self.version == other.version
            and self.name == other.name
            and self.type_url == other.type_url
            and self.origins == other.origins
        )

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash((self.type_url, self.name, self.version))

    def __repr__(self) -> str:
        """Without the body, which may be a secret."""
        return f"Resource({self.type_url.rpartition('.')[2]} {self.name!r} {self.version})"


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
    return hashlib.sha256(total.to_bytes(32, "big")).hexdigest()[:_VERSION_LENGTH]
