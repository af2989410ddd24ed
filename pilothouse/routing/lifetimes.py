# SPDX-License-Identifier: Apache-2.0
"""How long connections that are no HTTP may last: policies' word, put where connections are taken.

What takes a connection is planned by rules, and knows of clusters nothing but their keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from pilothouse.routing import catalogue, clusters, parsed, plan, routes


class Limit(NamedTuple):
    """What the policies of a cluster say."""

    milliseconds: int
    origins: plan.Origins


Limits = Mapping[plan.ClusterKey, Limit]


def limits(
    policies: clusters.Policies,
    mesh: catalogue.Catalogue,
    claims: catalogue.Claims,
    uses: clusters.Uses,
    rescoped: Mapping[str, clusters.Scoped],
) -> Limits:
    """The clusters whose connections have a longest time."""
    found: dict[plan.ClusterKey, Limit] = {}

    def look(key: plan.ClusterKey, port: int, applying: tuple[parsed.Policy, ...]) -> None:
        longest = clusters.settings(applying, port).connection_pool.max_duration_ms
        if longest is not None:
            origins = routes.merge_origins((), *(policy.origins for policy in applying))
            found[key] = Limit(longest, origins)

    for target, shared in policies.producers.items():
        if any(policy.has("connection_pool") for policy in shared.values()):
            for key in clusters.keys_of(target, mesh, claims, uses):
                look(key, key.port, clusters.applying(clusters.NO_POLICIES, shared, key.labels))
    for client, changed in rescoped.items():
        for key, scoped in changed.items():
            if key.service is not None:
                target = parsed.Ref(key.external, key.service)
                own = policies.consumers[client][target]
                shared = policies.producers.get(target, clusters.NO_POLICIES)
                look(scoped, key.port, clusters.applying(own, shared, key.labels))
    return found


def limited(layer: plan.Layer, limits: Limits) -> plan.Layer:
    """The layer with the limits; of several clusters the shortest counts. The same one if none."""
    forwards = tuple(_forward(one, limits) for one in layer.tcp_forwards)
    if forwards == layer.tcp_forwards:
        return layer
    return dataclasses.replace(layer, tcp_forwards=forwards)


def _forward(forward: plan.TcpForward, limits: Limits) -> plan.TcpForward:
    found = [
        limits[share.cluster]
        for share in forward.clusters
        if share.weight and share.cluster is not None and share.cluster in limits
    ]
    if not found:
        return forward
    return dataclasses.replace(
        forward,
        max_duration_ms=min(one.milliseconds for one in found),
        origins=routes.merge_origins(forward.origins, *(one.origins for one in found)),
    )
