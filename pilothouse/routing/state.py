# SPDX-License-Identifier: Apache-2.0
"""MeshState: everything that configuration is computed from, as one immutable value.

It is built from what is in force (admitted config objects) and what the registries know, merged; so
every replica that sees the same sources computes the same plans, in whatever order the news
arrived.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pilothouse.config import objects
from pilothouse.model import keys, secrets
from pilothouse.model import services as registry


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeshState:
    """The world at one moment."""

    services: Mapping[keys.ServiceKey, registry.Service] = dataclasses.field(default_factory=dict)
    """In key order."""
    endpoints: Mapping[keys.ServiceKey, tuple[registry.Endpoint, ...]] = dataclasses.field(
        default_factory=dict
    )
    """In key order; the endpoints of each service are sorted."""
    workloads: tuple[registry.Workload, ...] = ()
    """Sorted by namespace, name."""
    configs: Mapping[keys.ObjectKey, objects.Config] = dataclasses.field(default_factory=dict)
    """What is in force, of every kind, in key order."""
    unsynced: frozenset[str] = frozenset()
    """Names of the sources (``ingress``, ``egress``, stores, registries) that have not been read
    whole yet."""
    secrets: secrets.Uses | None = dataclasses.field(default=None, repr=False)
    """What the secrets may be used for that there are, and nothing else of them; None while that is
    not known."""
    domain: str = "cluster.local"
    """DNS domain of the mesh."""
