# SPDX-License-Identifier: Apache-2.0
"""Where proxies send their spans, and the name under which they do."""

from __future__ import annotations

import re

from pilothouse.model import keys
from pilothouse.routing import catalogue, parsed, plan

# Kubernetes names pods after what made them: NAME-HASH-SUFFIX (Deployment), NAME-SUFFIX (DaemonSet,
# Job) or NAME-ORDINAL (StatefulSet); hashes and suffixes are of an alphabet without vowels and
# look-alikes.
_REPLICA = re.compile(
    r"(?:-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}$|-\d+$"
)


def service_name(labels: keys.Labels, *, name: str, namespace: str) -> str:
    """The name that replicas of one workload share in traces.

    Args:
        labels: The workload's labels; ``app`` is the name where it is set.
        name: Name of the proxy or its pod; what tells replicas apart is cut off.
        namespace: Its namespace.
    """
    workload = dict(labels).get("app") or _REPLICA.sub("", name) or name
    return f"{workload}.{namespace}"


def collector_key(tracing: parsed.MeshTracing) -> plan.ClusterKey:
    """The cluster of the collector."""
    return catalogue.external_cluster_key(catalogue.COLLECTOR, tracing.port)


def layer(tracing: parsed.MeshTracing) -> plan.Layer:
    """The collector's cluster, which every proxy has."""
    collector = plan.Cluster(
        key=collector_key(tracing),
        resolution="static" if catalogue.is_ip(tracing.address) else "dns",
        addresses=(plan.Address(host=tracing.address, port=tracing.port),),
        http2=True,
        origins=tracing.origins,
    )
    return plan.Layer(clusters=(collector,))


def listener_tracing(tracing: parsed.MeshTracing | None, service: str) -> plan.Tracing | None:
    """What a listener is told; None when proxies do not trace."""
    if tracing is None:
        return None
    return plan.Tracing(
        collector=collector_key(tracing),
        sampling_percent=tracing.sampling_percent,
        service_name=service,
        origins=tracing.origins,
    )
