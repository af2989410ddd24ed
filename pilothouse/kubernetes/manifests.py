# SPDX-License-Identifier: Apache-2.0
"""Which Kubernetes objects we read, and how an object is known before anything else of it is."""

from __future__ import annotations

from pilothouse.config import documents
from pilothouse.kubernetes import fields
from pilothouse.model import keys

_VERSIONS = {
    "Service": "v1",
    "Pod": "v1",
    "Secret": "v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "Ingress": "networking.k8s.io/v1",
    "IngressClass": "networking.k8s.io/v1",
}
CLUSTER_SCOPED = frozenset({"IngressClass"})
"""Kinds that live in no namespace."""


def known_kind(document: documents.RawDocument) -> str | None:
    """The kind, if this is an object of Kubernetes' that we read; None for every other object."""
    kind = document.kind
    return kind if _VERSIONS.get(kind) == document.api_version else None


def key_of(document: documents.RawDocument) -> keys.ObjectKey | None:
    """Kind, namespace and name, as far as they can be read: None when there is no name to tell."""
    metadata = document.manifest.get("metadata")
    if not isinstance(metadata, dict):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not (document.kind and isinstance(name, str) and name):
        return None
    if document.kind in CLUSTER_SCOPED:
        return keys.ObjectKey(document.kind, "", name)
    if namespace is not None and not isinstance(namespace, str):
        return None
    return keys.ObjectKey(document.kind, namespace or fields.DEFAULT_NAMESPACE, name)
