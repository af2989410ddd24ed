# SPDX-License-Identifier: Apache-2.0
"""Endpoints of a cluster: the assignment that EDS serves, or that a cluster holds itself."""

from __future__ import annotations

from collections.abc import Iterable

from pilothouse.api.envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from pilothouse.envoy import names, wire
from pilothouse.routing import plan
from pilothouse.xds import resources, types


def message(endpoints: plan.ClusterEndpoints) -> endpoint_pb2.ClusterLoadAssignment:
    """The assignment of an EDS cluster, under the cluster's name; empty when it has no endpoints.

    It is filled in place, which is several times faster than by keywords. A locality's weight is
    the number of its endpoints unless the plan says it: gRPC clients ignore a locality without one,
    and Envoy does not weigh localities unless told to.
    """
    assignment = endpoint_pb2.ClusterLoadAssignment(cluster_name=names.cluster(endpoints.key))
    for place in endpoints.localities:
        if not place.addresses:  # its weight would be 0, which is refused
            continue
        entry = assignment.endpoints.add()
        entry.locality.SetInParent()  # gRPC clients want a locality said, even if it is empty
        entry.locality.region = place.locality.region
        entry.locality.zone = place.locality.zone
        entry.locality.sub_zone = place.locality.sub_zone
        weight = len(place.addresses) if place.weight is None else place.weight
        entry.load_balancing_weight.value = weight
        if place.priority:
            entry.priority = place.priority
        fill(entry, place.addresses)
    return assignment


def fill(
    entry: endpoint_components_pb2.LocalityLbEndpoints, addresses: Iterable[plan.Address]
) -> None:
    """Add addresses to a locality; the host may be a name where the cluster asks DNS."""
    add = entry.lb_endpoints.add
    for address in addresses:
        socket = add().endpoint.address.socket_address
        socket.address = address.host
        socket.port_value = address.port


def resource(endpoints: plan.ClusterEndpoints) -> resources.Resource:
    """The assignment as a resource for EDS."""
    assignment = message(endpoints)
    return resources.Resource.of(
        types.ENDPOINT.type_url, assignment.cluster_name, wire.encode(assignment)
    )
