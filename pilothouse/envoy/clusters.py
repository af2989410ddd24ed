# SPDX-License-Identifier: Apache-2.0
"""Clusters: where requests can be sent, and how Envoy talks to it.

What is not written here is Envoy's default, on purpose: panic mode below half of the endpoints,
connections kept for an hour, no outlier detection.
"""

from __future__ import annotations

import functools
from typing import Final, Literal, assert_never

from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from pilothouse.api.envoy.config.core.v3 import protocol_pb2
from pilothouse.api.envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from pilothouse.envoy import endpoints, names, wire
from pilothouse.routing import plan
from pilothouse.xds import resources, types

HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
"""Envoy finds this extension by its name, so it must be this one."""

NO_LIMIT: Final = 2**32 - 1
"""A limit that is never reached. Left unset, Envoy would take 1024 (and 3 for retries)."""

_HTTP2: Final = wire.packed(
    http_protocol_options_pb2.HttpProtocolOptions(
        explicit_http_config=http_protocol_options_pb2.HttpProtocolOptions.ExplicitHttpConfig(
            http2_protocol_options=protocol_pb2.Http2ProtocolOptions()
        )
    )
)
_EDS: Final = cluster_pb2.Cluster.EdsClusterConfig(eds_config=wire.ADS)
_LOAD_BALANCERS: Final = {
    "least_request": cluster_pb2.Cluster.LEAST_REQUEST,
    "round_robin": cluster_pb2.Cluster.ROUND_ROBIN,
    "random": cluster_pb2.Cluster.RANDOM,
}


def message(cluster: plan.Cluster) -> cluster_pb2.Cluster:
    """The cluster, named by its key."""
    made = cluster_pb2.Cluster()
    made.CopyFrom(
        _shape(
            cluster.resolution,
            cluster.http2,
            cluster.connect_timeout_ms,
            cluster.load_balancer,
            cluster.circuit_breaker,
        )
    )
    made.name = names.cluster(cluster.key)
    made.alt_stat_name = names.cluster_stat(made.name)
    if cluster.resolution != "eds":
        made.load_assignment.cluster_name = made.name
        endpoints.fill(made.load_assignment.endpoints.add(), cluster.addresses)
    return made


def resource(cluster: plan.Cluster) -> resources.Resource:
    """The cluster as a resource for CDS; one that uses EDS refers to its endpoints."""
    made = message(cluster)
    references = ((types.ENDPOINT.type_url, made.name),) if cluster.resolution == "eds" else ()
    return resources.Resource.of(
        types.CLUSTER.type_url,
        made.name,
        wire.encode(made),
        references=references,
        origins=cluster.origins,
    )


@functools.lru_cache(maxsize=1024)
def _shape(
    resolution: Literal["eds", "static", "dns"],
    http2: bool,  # noqa: FBT001  positional, so that one shape is one key
    connect_timeout_ms: int,
    load_balancer: str,
    circuit_breaker: plan.CircuitBreaker,
) -> cluster_pb2.Cluster:
    """All of a cluster but its name and addresses: a mesh has many clusters of few shapes."""
    made = cluster_pb2.Cluster(
        connect_timeout=wire.duration(connect_timeout_ms),
        lb_policy=_LOAD_BALANCERS[load_balancer],
        circuit_breakers=_circuit_breakers(circuit_breaker),
    )
    if http2:
        made.typed_extension_protocol_options[HTTP_OPTIONS].CopyFrom(_HTTP2)
    match resolution:
        case "eds":
            made.type = cluster_pb2.Cluster.EDS
            made.eds_cluster_config.CopyFrom(_EDS)
            # The registry says who exists: no health check may hold on to one that is gone.
            made.ignore_health_on_host_removal = True
        case "static":
            made.type = cluster_pb2.Cluster.STATIC
        case "dns":
            made.type = cluster_pb2.Cluster.STRICT_DNS
            # Envoy's default asks for IPv6 first, and many networks answer with addresses that
            # they do not route.
            made.dns_lookup_family = cluster_pb2.Cluster.V4_PREFERRED
        case _:
            assert_never(resolution)
    return made


def _circuit_breakers(limits: plan.CircuitBreaker) -> circuit_breaker_pb2.CircuitBreakers:
    return circuit_breaker_pb2.CircuitBreakers(
        thresholds=(
            circuit_breaker_pb2.CircuitBreakers.Thresholds(
                max_connections=_limit(limits.max_connections),
                max_pending_requests=_limit(limits.max_pending_requests),
                max_requests=_limit(limits.max_requests),
                max_retries=_limit(limits.max_retries),
            ),
        )
    )


def _limit(limit: int | None) -> wrappers_pb2.UInt32Value:
    return wrappers_pb2.UInt32Value(value=NO_LIMIT if limit is None else limit)
