# SPDX-License-Identifier: Apache-2.0
"""Config objects inside Pilothouse, and the port through which stores deliver them.

A `Config` is an object's identity, its spec as the api message it was written in, and a digest of
that spec. Specs are shared and never mutated; two specs are equal when their digests are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol

from google.protobuf import message

from pilothouse.model import changes, keys

ROOT_NAMESPACE = "pilothouse-system"
"""Where mesh-wide objects and the gateways of Pilothouse's own live."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One aspect of an object's state; the terms are those of Kubernetes' ``metav1.Condition``."""

    type: str
    """``Accepted``, ``ResolvedRefs``, ``Programmed``, or a warning such as ``Conflicted``."""
    status: bool
    reason: str
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What Pilothouse reads of an object's metadata."""

    key: keys.ObjectKey
    generation: int = 1
    created: int = 0
    """creationTimestamp in nanoseconds since 1970; 0 when absent, so older than any time."""
    labels: keys.Labels = ()
    annotations: keys.Labels = ()
    origins: tuple[keys.ObjectKey, ...] = ()
    """The objects it was derived from, sorted; empty for an authored object."""
    resource_version: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Config:
    """One config object.

    Equal when key, generation, age, origins, spec and source are: what may reach a proxy or a
    status.
    """

    meta: Meta
    spec: message.Message
    """``RouteRuleSpec`` and so on, by ``meta.key.kind``; never mutated."""
    digest: bytes
    """SHA-256 of the spec's deterministic serialisation."""
    source: str = ""
    """Name of the store or config source that holds it."""
    location: str = ""
    """Where it was read, for people: ``FILE:DOCUMENT``; empty when not from a file.

    No part of equality.
    """

    @property
    def key(self) -> keys.ObjectKey:
        """Kind, namespace, name."""
        return self.meta.key

    def _identity(self) -> tuple[object, ...]:
        meta = self.meta
        return (meta.key, meta.generation, meta.created, meta.origins, self.digest, self.source)

    def __eq__(self, other: object) -> bool:
        """Compare by identity fields and digest, never by walking the spec."""
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash(self._identity())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in a source that is no object: a file or document that cannot be understood."""

    location: str
    """``FILE`` or ``FILE:DOCUMENT`` (documents count from 1)."""
    message: str
    key: keys.ObjectKey | None = None
    """The object, where kind and name could be read."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """Everything one store holds; equal states are equal values."""

    configs: Mapping[keys.ObjectKey, Config] = dataclasses.field(default_factory=dict)
    """In key order."""
    problems: tuple[Problem, ...] = ()
    """Sorted by location."""
    synced: bool = False
    """False until the store has been read whole once; then True for ever."""


class ConfigStore(Protocol):
    """Where config objects come from.

    ``current`` is AT LEAST as fresh as the change last notified and MAY be fresher. Once synced, a
    store that loses its source keeps the last good state. Change handlers are called in order, on
    the event loop of the store.
    """

    name: str

    def current(self) -> StoreState:
        """The present state; cheap, never blocks."""

    def subscribe(self, notify: Callable[[changes.Change], None]) -> Callable[[], None]:
        """Call ``notify`` after each change; the answer ends the subscription."""
