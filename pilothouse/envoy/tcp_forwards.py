# SPDX-License-Identifier: Apache-2.0
"""Where TCP connections go: a filter that listeners refer to by name (ECDS).

So a change of clusters or weights is a change of this resource alone. Envoy uses it for connections
that begin afterwards; those that are open keep what they have, for no listener and no filter chain
is touched (docs/adr/0080).
"""

from __future__ import annotations

from typing import Final

from pilothouse.api.envoy.config.core.v3 import config_source_pb2, extension_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_components_pb2
from pilothouse.api.envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from pilothouse.envoy import access_logs, names, wire
from pilothouse.routing import plan
from pilothouse.xds import resources, types

FILTER: Final = "envoy.filters.network.tcp_proxy"
_TYPE_URL: Final = f"type.googleapis.com/{tcp_proxy_pb2.TcpProxy.DESCRIPTOR.full_name}"


def reference(forward: str) -> listener_components_pb2.Filter:
    """The filter of a chain whose connections go where that forward says."""
    return listener_components_pb2.Filter(
        name=forward,
        config_discovery=config_source_pb2.ExtensionConfigSource(
            config_source=wire.ADS, type_urls=(_TYPE_URL,)
        ),
    )


def message(forward: plan.TcpForward) -> extension_pb2.TypedExtensionConfig:
    """The filter, under the forward's name."""
    proxy = tcp_proxy_pb2.TcpProxy(
        stat_prefix=names.stat(forward.name), idle_timeout=wire.duration(forward.idle_timeout_ms)
    )
    # All that is known of a connection; it counts where a cluster's balancer asks for a hash.
    proxy.hash_policy.add().source_ip.SetInParent()
    if forward.max_duration_ms is not None:
        longest = wire.duration(forward.max_duration_ms)
        proxy.max_downstream_connection_duration.CopyFrom(longest)
    if forward.access_log is not None:
        proxy.access_log.append(access_logs.message(forward.access_log))
    shares = [(names.cluster_or_none(one.cluster), one.weight) for one in forward.clusters]
    if len(shares) == 1:
        proxy.cluster = shares[0][0]
    else:
        for name, weight in shares:
            if weight:
                proxy.weighted_clusters.clusters.add(name=name, weight=weight)
    return extension_pb2.TypedExtensionConfig(name=forward.name, typed_config=wire.packed(proxy))


def resource(forward: plan.TcpForward) -> resources.Resource:
    """The filter as a resource for ECDS; it refers to its clusters."""
    used = {names.cluster(one.cluster) for one in forward.clusters if one.cluster is not None}
    return resources.Resource.of(
        types.EXTENSION.type_url,
        forward.name,
        wire.encode(message(forward)),
        references=tuple((types.CLUSTER.type_url, name) for name in sorted(used)),
        origins=forward.origins,
    )
