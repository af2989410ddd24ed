# SPDX-License-Identifier: Apache-2.0
"""Clusters: where requests can be sent. How Envoy talks to them is written in `sections`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Final, Literal, assert_never

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.envoy import addresses, balancers, endpoints, names, sections, tunnels, wire
from pilothouse.routing import credentials, plan, upstreams
from pilothouse.xds import resources, types

_EDS: Final = cluster_pb2.Cluster.EdsClusterConfig(eds_config=wire.ADS)


def message(cluster: plan.Cluster) -> cluster_pb2.Cluster:
    """The cluster, named by its key."""
    made = cluster_pb2.Cluster()
    made.CopyFrom(_shape(cluster.resolution, cluster.http2, cluster.settings))
    made.name = names.cluster(cluster.key)
    made.alt_stat_name = names.stat(made.name)
    for check in made.health_checks:
        if check.HasField("http_health_check") and not check.http_health_check.host:
            check.http_health_check.host = _host(cluster.key)
    if cluster.resolution not in ("eds", "asked"):
        made.load_assignment.cluster_name = made.name
        entry = made.load_assignment.endpoints.add()
        endpoints.fill(entry, cluster.addresses)
        tls = cluster.settings.tls
        if tls is not None and tls.tunnel is not None:
            tunnels.fill(entry, tls.tunnel)
    return made


def _host(key: plan.ClusterKey) -> str:
    """What a client of the service would write."""
    return "" if key.service is None else f"{key.service.name}.{key.service.namespace}"


def closed(cluster: plan.Cluster) -> plan.Cluster:
    """The cluster without endpoints: a secret that it needs is not there, so nobody is asked."""
    settings = dataclasses.replace(cluster.settings, tls=None, health_check=None)
    return dataclasses.replace(cluster, resolution="static", addresses=(), settings=settings)


def resource(cluster: plan.Cluster) -> resources.Resource:
    """The cluster as a resource for CDS; one that uses EDS refers to its endpoints."""
    made = message(cluster)
    references = [(types.ENDPOINT.type_url, made.name)] if cluster.resolution == "eds" else []
    needed = sorted(map(names.usable, credentials.of_cluster(cluster)))
    references += [(types.SECRET.type_url, name) for name in needed]
    return resources.Resource.of(
        types.CLUSTER.type_url,
        made.name,
        wire.encode(made),
        references=tuple(references),
        origins=cluster.origins,
    )


@functools.lru_cache(maxsize=1024)
def _shape(
    resolution: Literal["eds", "static", "dns", "asked"],
    http2: bool,  # noqa: FBT001  positional, so that one shape is one key
    settings: upstreams.Settings,
) -> cluster_pb2.Cluster:
    """All of a cluster but its name and addresses: a mesh has many clusters of few shapes."""
    made = cluster_pb2.Cluster()
    sections.fill(made, settings, http2=http2)
    match resolution:
        case "eds":
            made.type = cluster_pb2.Cluster.EDS
            made.eds_cluster_config.CopyFrom(_EDS)
            balancers.ignore_zones(made)
            # The registry says who exists: no health check may hold on to one that is gone.
            made.ignore_health_on_host_removal = True
        case "static":
            made.type = cluster_pb2.Cluster.STATIC
        case "dns":
            made.type = cluster_pb2.Cluster.STRICT_DNS
            # Envoy's default asks for IPv6 first, and many networks answer with addresses that
            # they do not route.
            made.dns_lookup_family = cluster_pb2.Cluster.V4_PREFERRED
        case "asked":
            addresses.fill(made)
        case _:
            assert_never(resolution)
    return made
