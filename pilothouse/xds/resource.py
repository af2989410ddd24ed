# SPDX-License-Identifier: Apache-2.0
"""One resource, as an immutable value that is encoded once.

Its version is a hash of its content, so equal content has an equal version on every replica and
after every restart, and what did not change is never sent again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from pilothouse.model import keys
from pilothouse.xds import framing

Reference = tuple[str, str]
"""Type URL and name of a resource that another one needs."""
VERSION_LENGTH = 16
"""Hexadecimal digits of a version."""
_FRAME = 32
"""Bytes that a resource's frame takes at most, beside what it holds."""


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
        "size",
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
        self.version = version or hashlib.sha256(body).hexdigest()[:VERSION_LENGTH]
        self.references = references
        self.origins = origins
        self.metadata = metadata
        self.size = sum(map(len, (body, metadata, type_url, name, self.version))) + _FRAME
        """Bytes that it takes at most in a response, in any variant."""
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
