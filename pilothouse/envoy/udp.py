# SPDX-License-Identifier: Apache-2.0
"""Where the datagrams of a UDP listener go.

The plan has no chain to choose here, so Envoy's matcher has nothing to ask: whatever comes goes to
the one cluster.
"""

from __future__ import annotations

from pilothouse.api.envoy.config.listener.v3 import listener_components_pb2
from pilothouse.api.envoy.extensions.filters.udp.udp_proxy.v3 import route_pb2, udp_proxy_pb2
from pilothouse.envoy import access_logs, names, wire
from pilothouse.routing import plan


def proxy(chain: plan.Chain) -> listener_components_pb2.ListenerFilter:
    """The filter of a UDP listener.

    Raises:
        TypeError: the chain serves something else than UDP.
    """
    if not isinstance(chain.serves, plan.Udp):
        raise TypeError(f"chain {chain.name} of a UDP listener serves {chain.serves!r}")
    made = udp_proxy_pb2.UdpProxyConfig(
        stat_prefix=names.stat(chain.name), idle_timeout=wire.duration(chain.serves.idle_timeout_ms)
    )
    action = made.matcher.on_no_match.action
    action.name = "route"
    action.typed_config.CopyFrom(
        wire.packed(route_pb2.Route(cluster=names.cluster_or_none(chain.serves.cluster)))
    )
    # Datagrams of one client go to one endpoint also where the cluster's balancer hashes.
    made.hash_policies.add().source_ip = True
    if chain.serves.access_log is not None:
        made.access_log.append(access_logs.message(chain.serves.access_log))
    return listener_components_pb2.ListenerFilter(
        name="envoy.filters.udp_listener.udp_proxy", typed_config=wire.packed(made)
    )
