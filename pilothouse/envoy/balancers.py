# SPDX-License-Identifier: Apache-2.0
"""Load balancing, in Envoy's words.

What a hash is of is said in the cluster and not in the routes to it: so the destinations of one
route each go by their own policy, and a route does not change when a policy does.
"""

from __future__ import annotations

from typing import Final, assert_never

from google.protobuf import message

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2
from pilothouse.api.envoy.extensions.load_balancing_policies.maglev.v3 import maglev_pb2
from pilothouse.api.envoy.extensions.load_balancing_policies.ring_hash.v3 import ring_hash_pb2
from pilothouse.envoy import wire
from pilothouse.routing import upstreams

_DEFAULT_MIN_HEALTHY: Final = upstreams.LoadBalancer().min_healthy_percent


def ignore_zones(made: cluster_pb2.Cluster) -> None:
    """Have a cluster treat all zones alike, unless it says something of them.

    Envoy's own way is to weigh zones wherever it knows its peers, which here is a policy's to say.
    """
    if (
        not made.HasField("load_balancing_policy")
        and made.common_lb_config.WhichOneof("locality_config_specifier") is None
    ):
        made.common_lb_config.zone_aware_lb_config.routing_enabled.SetInParent()


def fill(
    made: cluster_pb2.Cluster,
    section: upstreams.LoadBalancer,
    locality: upstreams.Locality | None,
) -> None:
    """Write the section into a cluster, and whether the weights of places count there."""
    weighted = isinstance(locality, upstreams.Distribution)
    match section.policy:
        case "least_request":
            made.lb_policy = cluster_pb2.Cluster.LEAST_REQUEST
            if section.warmup is not None:
                _fill_warmup(made.least_request_lb_config.slow_start_config, section.warmup)
        case "round_robin":
            made.lb_policy = cluster_pb2.Cluster.ROUND_ROBIN
            if section.warmup is not None:
                _fill_warmup(made.round_robin_lb_config.slow_start_config, section.warmup)
        case "random":
            made.lb_policy = cluster_pb2.Cluster.RANDOM
        case "ring_hash":
            _add(made, "ring_hash", _ring_hash(section, weighted=weighted))
        case "maglev":
            _add(made, "maglev", _maglev(section, weighted=weighted))
            # The first that a client knows counts, and gRPC does not know Maglev.
            _add(made, "ring_hash", _ring_hash(section, weighted=weighted))
        case _:
            assert_never(section.policy)
    if not section.hash_by:
        _fill_places(made.common_lb_config, locality)
    if section.min_healthy_percent != _DEFAULT_MIN_HEALTHY:
        made.common_lb_config.healthy_panic_threshold.value = section.min_healthy_percent


def _fill_places(
    made: cluster_pb2.Cluster.CommonLbConfig, locality: upstreams.Locality | None
) -> None:
    match locality:
        case upstreams.Distribution():
            made.locality_weighted_lb_config.SetInParent()
        case upstreams.ZoneAwareness():
            zones = made.zone_aware_lb_config
            zones.routing_enabled.value = locality.percent
            zones.min_cluster_size.value = locality.min_endpoints
            zones.fail_traffic_on_panic = locality.fail_below_min_healthy
        case None | upstreams.Failover():
            pass
        case _:
            assert_never(locality)


def _fill_warmup(made: cluster_pb2.Cluster.SlowStartConfig, warmup: upstreams.Warmup) -> None:
    made.slow_start_window.CopyFrom(wire.duration(warmup.duration_ms))
    made.min_weight_percent.value = warmup.min_percent
    if warmup.aggression != 1:
        made.aggression.default_value = warmup.aggression
        made.aggression.runtime_key = "pilothouse.warmup.aggression"  # Envoy wants one


def _add(made: cluster_pb2.Cluster, name: str, policy: message.Message) -> None:
    extension = made.load_balancing_policy.policies.add().typed_extension_config
    extension.name = f"envoy.load_balancing_policies.{name}"
    extension.typed_config.CopyFrom(wire.packed(policy))


def _ring_hash(section: upstreams.LoadBalancer, *, weighted: bool) -> ring_hash_pb2.RingHash:
    made = ring_hash_pb2.RingHash()
    if weighted:
        made.locality_weighted_lb_config.SetInParent()
    made.minimum_ring_size.value = section.ring_min_size
    made.consistent_hashing_lb_config.hash_policy.extend(map(_hash_policy, section.hash_by))
    return made


def _maglev(section: upstreams.LoadBalancer, *, weighted: bool) -> maglev_pb2.Maglev:
    made = maglev_pb2.Maglev()
    if weighted:
        made.locality_weighted_lb_config.SetInParent()
    made.table_size.value = section.maglev_table_size
    made.consistent_hashing_lb_config.hash_policy.extend(map(_hash_policy, section.hash_by))
    return made


def _hash_policy(key: upstreams.HashKey) -> route_components_pb2.RouteAction.HashPolicy:
    made = route_components_pb2.RouteAction.HashPolicy(terminal=True)  # the first counts alone
    match key.kind:
        case "header":
            made.header.header_name = key.name
        case "query_parameter":
            made.query_parameter.name = key.name
        case "cookie":
            made.cookie.name = key.name
            made.cookie.path = key.path
            for name, value in key.attributes:
                made.cookie.attributes.add(name=name, value=value)
            if key.ttl_s is not None:
                made.cookie.ttl.CopyFrom(wire.duration(key.ttl_s * 1000))
        case "source_ip":
            made.connection_properties.source_ip = True
        case _:
            assert_never(key.kind)
    return made
