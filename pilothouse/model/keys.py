# SPDX-License-Identifier: Apache-2.0
"""Identities: what names an object, a service, a cluster of endpoints."""

from __future__ import annotations

from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
"""A label set as sorted pairs, so that equal sets are equal values and hash."""


class ObjectKey(NamedTuple):
    """Names a config object or a Kubernetes object; sorts by kind, namespace, name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """``KIND/NAMESPACE/NAME``, the name of the object's status as a resource."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class ServiceKey(NamedTuple):
    """Names a service of the mesh, or an external service; sorts by namespace, name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """``NAMESPACE/NAME``."""
        return f"{self.namespace}/{self.name}"


def labels(mapping: dict[str, str] | None = None, /, **pairs: str) -> Labels:
    """The label set of a mapping, as sorted pairs."""
    return tuple(sorted({**(mapping or {}), **pairs}.items()))


def selects(selector: Labels, candidate: Labels) -> bool:
    """Tell whether ``candidate`` has every label of ``selector``; an empty selector selects all."""
    return not selector or set(selector) <= set(candidate)
