# SPDX-License-Identifier: Apache-2.0
"""Resources for gRPC applications that need no proxy: what their clients accept, and no more.

Much of what Envoy understands makes them refuse a resource, or skip it in silence
(https://github.com/grpc/proposal, A27 and those that build on it). So this is a profile of its own:

- a listener has the name of what is dialled, and an HTTP connection manager as its API listener;
- its only filters are those that they know, the router last;
- a route is by prefix, path or expression; one that answers by itself fails its requests with the
  status that its answer stands for;
- a cluster is of endpoints by EDS, or of one name by DNS; balancing is by turns or by a ring of
  hashes, whatever else a policy says;
- retries are by status only, and a route's timeout bounds the whole call;
- certificates are those of a provider that the application's bootstrap names, for it refuses any
  other. Where TLS is asked for and it has none, or cannot check what is asked, nobody is called.
"""

from __future__ import annotations

import functools
from typing import Final, assert_never

from google.protobuf import any_pb2

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import (
    api_listener_pb2,
    listener_components_pb2,
    listener_pb2,
)
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.filters.http.fault.v3 import fault_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.envoy import client_tls, endpoints, filters, matches, names, sections, wire
from pilothouse.routing import names as planned
from pilothouse.routing import plan, treatment, upstreams
from pilothouse.xds import resources, types

SERVER_TEMPLATE: Final = "grpc/server?xds.resource.listening_address=%s"
"""`server_listener_resource_name_template` of a bootstrap."""

_Manager = http_connection_manager_pb2.HttpConnectionManager
_MANAGER: Final = "envoy.filters.network.http_connection_manager"
_FILTERS: Final = (
    http_connection_manager_pb2.HttpFilter(
        name=filters.FAULT, typed_config=wire.packed(fault_pb2.HTTPFault())
    ),
    filters.ROUTER,
)
_RETRIED: Final = frozenset(
    {"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"}
)
"""Statuses by which gRPC retries (A44); it ignores other conditions."""
_UNKNOWN: Final = 2
_STATUSES: Final = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}
"""HTTP to gRPC, as https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md says;
UNKNOWN for the rest."""
_MAX_RING: Final = 8 * 1024 * 1024


def cluster(told: plan.Cluster) -> resources.Resource:
    """A cluster, under the name that it has for Envoy too."""
    name = names.cluster(told.key)
    made = cluster_pb2.Cluster(name=name)
    references: tuple[resources.Reference, ...] = ()
    tls = told.settings.tls
    if tls is not None and not client_tls.possible(tls):
        made.type = cluster_pb2.Cluster.EDS
        made.eds_cluster_config.eds_config.CopyFrom(wire.ADS)
        made.eds_cluster_config.service_name = names.UNRESOLVED
        references = ((types.ENDPOINT.type_url, names.UNRESOLVED),)
    elif told.resolution == "eds":
        made.type = cluster_pb2.Cluster.EDS
        made.eds_cluster_config.eds_config.CopyFrom(wire.ADS)
        references = ((types.ENDPOINT.type_url, name),)
    else:
        # Only the first name: gRPC knows DNS clusters of one.
        made.type = cluster_pb2.Cluster.LOGICAL_DNS
        made.load_assignment.cluster_name = name
        endpoints.fill(made.load_assignment.endpoints.add(), told.addresses[:1])
    if tls is not None and client_tls.possible(tls):
        made.transport_socket.CopyFrom(client_tls.transport_socket(tls))
    # Reports go to where this came from: gRPC knows no other server (A27).
    made.lrs_server.self.SetInParent()
    _fill_settings(made, told.settings)
    return resources.Resource.of(
        types.CLUSTER.type_url,
        name,
        wire.encode(made),
        references=references,
        origins=told.origins,
    )


def nowhere() -> tuple[resources.Resource, ...]:
    """The cluster of what cannot be resolved, without endpoints.

    A client keeps all that is new back until each cluster is there, or for 15 seconds.
    """
    made = cluster_pb2.Cluster(name=names.UNRESOLVED, type=cluster_pb2.Cluster.EDS)
    made.eds_cluster_config.eds_config.CopyFrom(wire.ADS)
    assigned = endpoint_pb2.ClusterLoadAssignment(cluster_name=names.UNRESOLVED)
    reference = (types.ENDPOINT.type_url, names.UNRESOLVED)
    return (
        resources.Resource.of(
            types.CLUSTER.type_url, names.UNRESOLVED, wire.encode(made), references=(reference,)
        ),
        resources.Resource.of(*reference, wire.encode(assigned)),
    )


def _fill_settings(made: cluster_pb2.Cluster, settings: upstreams.Settings) -> None:
    balancer = settings.load_balancer
    if balancer.policy in ("ring_hash", "maglev"):
        made.lb_policy = cluster_pb2.Cluster.RING_HASH
        made.ring_hash_lb_config.minimum_ring_size.value = min(balancer.ring_min_size, _MAX_RING)
    else:
        made.lb_policy = cluster_pb2.Cluster.ROUND_ROBIN
    limit = settings.circuit_breaker.max_requests
    # Unset would be 1024 (A32).
    made.circuit_breakers.thresholds.add().max_requests.value = (
        sections.NO_LIMIT if limit is None else limit
    )


def target(told: plan.Target) -> tuple[resources.Resource, ...]:
    """The routes to a target, and a listener for each name that it may be dialled by."""
    name = planned.proxyless(told.name)
    made = route_pb2.RouteConfiguration(name=name)
    host = made.virtual_hosts.add(name=told.name, domains=["*"])
    used: set[str] = set()
    origins = set(told.origins)
    for each in told.routes:
        used.update(_fill_route(host.routes.add(), each))
        origins.update(each.route.origins)
    return (
        resources.Resource.of(
            types.ROUTE.type_url,
            name,
            wire.encode(made),
            references=tuple((types.CLUSTER.type_url, each) for each in sorted(used)),
            origins=tuple(sorted(origins)),
        ),
        *(_listener(authority, name, told.origins) for authority in told.authorities),
    )


def _listener(authority: str, routes: str, origins: plan.Origins) -> resources.Resource:
    made = listener_pb2.Listener(
        name=authority, api_listener=api_listener_pb2.ApiListener(api_listener=_manager(routes))
    )
    return resources.Resource.of(
        types.LISTENER.type_url,
        authority,
        wire.encode(made),
        references=((types.ROUTE.type_url, routes),),
        origins=origins,
    )


@functools.lru_cache(maxsize=16)
def _manager(routes: str) -> any_pb2.Any:
    """The connection manager of all names of one target."""
    return wire.packed(
        _Manager(
            http_filters=_FILTERS,
            rds=http_connection_manager_pb2.Rds(config_source=wire.ADS, route_config_name=routes),
        )
    )


def _fill_route(made: route_components_pb2.Route, told: plan.ClientRoute) -> list[str]:
    """A route; gives the names of the clusters that it sends to."""
    route = told.route
    made.name = route.name
    matches.fill(made.match, route.match)
    match route.action:
        case plan.Forward() as forward:
            if route.treatment.fault is not None:
                filters.fill(made, treatment.Treatment(fault=route.treatment.fault))
            return _fill_forward(made.route, forward, told.hash_by)
        case plan.DirectResponse(status=status):
            _fill_failure(made, status)
        case plan.Redirect(code=code):
            _fill_failure(made, code)
        case _:
            assert_never(route.action)
    return []


def _fill_failure(made: route_components_pb2.Route, status: int) -> None:
    """Fail with the status that a client gets behind a sidecar: gRPC has no use for an answer.

    By a fault, since some clients cannot bear a route that sends nothing on.
    """
    fault = fault_pb2.HTTPFault()
    fault.abort.grpc_status = _STATUSES.get(status, _UNKNOWN)
    fault.abort.percentage.numerator = 100
    made.typed_per_filter_config[filters.FAULT].CopyFrom(wire.packed(fault))
    made.route.cluster = names.UNRESOLVED


def _fill_forward(
    made: route_components_pb2.RouteAction,
    forward: plan.Forward,
    hash_by: tuple[upstreams.HashKey, ...],
) -> list[str]:
    if forward.timeout_ms:
        limit = made.max_stream_duration.max_stream_duration
        limit.CopyFrom(wire.duration(forward.timeout_ms))
    retried = [each for each in forward.retry.retry_on if each in _RETRIED] if forward.retry else []
    if forward.retry and retried and forward.retry.attempts:
        made.retry_policy.retry_on = ",".join(retried)
        made.retry_policy.num_retries.value = forward.retry.attempts
    for key in hash_by:
        if key.kind == "header":  # gRPC knows no other (A42)
            policy = made.hash_policy.add(terminal=True)
            policy.header.header_name = key.name
    # Each cluster once: what differs for two shares of one is not for gRPC, and some clients would
    # count only the last.
    shares: dict[str, int] = {}
    for one in forward.clusters:
        name = names.UNRESOLVED if one.cluster is None else names.cluster(one.cluster)
        shares[name] = shares.get(name, 0) + one.weight
    if len(shares) == 1:
        (made.cluster,) = shares
    else:
        for name, weight in shares.items():
            made.weighted_clusters.clusters.add(name=name).weight.value = weight
    return [name for name in shares if name != names.UNRESOLVED]


def server(told: plan.Address) -> resources.Resource:
    """How to serve on an address: everything that arrives there is for the application (A36)."""
    host = f"[{told.host}]" if ":" in told.host else told.host
    name = SERVER_TEMPLATE % f"{host}:{told.port}"
    manager = _Manager(http_filters=[filters.ROUTER])
    virtual_host = manager.route_config.virtual_hosts.add(name="inbound", domains=["*"])
    route = virtual_host.routes.add()
    route.match.prefix = ""
    route.non_forwarding_action.SetInParent()
    chain = listener_components_pb2.FilterChain(
        filters=[listener_components_pb2.Filter(name=_MANAGER, typed_config=wire.packed(manager))]
    )
    made = listener_pb2.Listener(
        name=name, address=wire.address(told.host, told.port), filter_chains=[chain]
    )
    return resources.Resource.of(types.LISTENER.type_url, name, wire.encode(made))
