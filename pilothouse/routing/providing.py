# SPDX-License-Identifier: Apache-2.0
"""Where a gRPC application has certificates from: its own bootstrap, and nowhere else.

Source: https://github.com/grpc/proposal/blob/master/A29-xds-tls-security.md.
"""

from __future__ import annotations

import dataclasses

from pilothouse.routing import plan


def by(provider: str, told: plan.Proxyless) -> plan.Proxyless:
    """What an application is told that has this provider of certificates; empty for none."""
    if not provider or all(one.settings.tls is None for one in told.clusters):
        return told
    return dataclasses.replace(
        told, clusters=tuple(_provided(one, provider) for one in told.clusters)
    )


def _provided(cluster: plan.Cluster, provider: str) -> plan.Cluster:
    if cluster.settings.tls is None:
        return cluster
    tls = dataclasses.replace(cluster.settings.tls, provider=provider)
    return dataclasses.replace(cluster, settings=dataclasses.replace(cluster.settings, tls=tls))
