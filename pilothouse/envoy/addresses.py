# SPDX-License-Identifier: Apache-2.0
"""The cluster whose address is the host that a request is for.

A filter finds the address first, by DNS where the host is a name; the two share what was found. The
protocol that the client speaks is spoken there, too.
"""

from __future__ import annotations

from typing import Final

from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.core.v3 import protocol_pb2
from pilothouse.api.envoy.extensions.clusters.dynamic_forward_proxy.v3 import (
    cluster_pb2 as forward_proxy_pb2,
)
from pilothouse.api.envoy.extensions.common.dynamic_forward_proxy.v3 import dns_cache_pb2
from pilothouse.api.envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from pilothouse.envoy import wire

CACHE: Final = dns_cache_pb2.DnsCacheConfig(
    name="asked",
    # As for other names: many networks answer with IPv6 addresses that they do not route.
    dns_lookup_family=cluster_pb2.Cluster.V4_PREFERRED,
    max_hosts=wrappers_pb2.UInt32Value(value=4096),
)
"""What was found; one cache for a proxy. Hosts that nobody asks for are forgotten in minutes."""
_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_AS_THE_CLIENT: Final = http_protocol_options_pb2.HttpProtocolOptions.UseDownstreamHttpConfig(
    http2_protocol_options=protocol_pb2.Http2ProtocolOptions(allow_connect=True)
)


def fill(made: cluster_pb2.Cluster) -> None:
    """Make a cluster that one."""
    made.ClearField("load_balancing_policy")
    made.lb_policy = cluster_pb2.Cluster.CLUSTER_PROVIDED
    made.cluster_type.name = "envoy.clusters.dynamic_forward_proxy"
    made.cluster_type.typed_config.CopyFrom(
        wire.packed(forward_proxy_pb2.ClusterConfig(dns_cache_config=CACHE))
    )
    made.typed_extension_protocol_options[_OPTIONS].CopyFrom(
        wire.packed(
            http_protocol_options_pb2.HttpProtocolOptions(
                use_downstream_protocol_config=_AS_THE_CLIENT,
                # Envoy insists on them, for names that it found itself; no TLS is spoken.
                upstream_http_protocol_options=protocol_pb2.UpstreamHttpProtocolOptions(
                    auto_sni=True, auto_san_validation=True
                ),
            )
        )
    )
