# SPDX-License-Identifier: Apache-2.0
"""What gRPC applications refuse although Envoy would take it.

Only what makes a client refuse the resource is a finding; what it skips in silence is not. Sources,
all in https://github.com/grpc/proposal: A27 and A28 (listeners, routes, clusters, endpoints), A29
(security), A36 (servers), A39 (filters), A42 (ring hash), A50 (outlier detection).
"""

from __future__ import annotations

import collections
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from google.protobuf import message

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.envoy.gate import constraints, findings
from pilothouse.xds import types

_Found = Iterator[findings.Broken]
_Broken = findings.Broken
_Cluster = cluster_pb2.Cluster
_Manager = http_connection_manager_pb2.HttpConnectionManager

_FILTERS: Final = "envoy.extensions.filters.http."
_ROUTER: Final = f"{_FILTERS}router.v3.Router"
_KNOWN_FILTERS: Final = frozenset(
    {
        _ROUTER,
        f"{_FILTERS}fault.v3.HTTPFault",
        f"{_FILTERS}gcp_authn.v3.GcpAuthnFilterConfig",
        f"{_FILTERS}rbac.v3.RBAC",
        f"{_FILTERS}stateful_session.v3.StatefulSession",
    }
)
_BALANCERS: Final = frozenset({_Cluster.ROUND_ROBIN, _Cluster.RING_HASH, _Cluster.LEAST_REQUEST})
_MAX_RING: Final = 8 * 1024 * 1024
_MAX_UINT32: Final = (1 << 32) - 1
_PERCENT: Final = 100
_PERCENTAGES: Final = ("enforcing_", "failure_percentage_threshold", "max_ejection_percent")


def broken(type_url: str, value: message.Message) -> tuple[findings.Broken, ...]:
    """Every rule of the profile that a resource breaks."""
    check = _CHECKS.get(type_url)
    return () if check is None else tuple(check(value))


def _listener(made: Any) -> _Found:
    if made.HasField("api_listener"):
        path = "api_listener.api_listener"
        yield from _manager(made.api_listener.api_listener, path, server=False)
        return
    if made.listener_filters:
        yield _Broken("listener_filters", "must be empty for gRPC servers")
    if made.HasField("use_original_dst"):
        yield _Broken("use_original_dst", "must not be set for gRPC servers")
    chains = [(f"filter_chains[{i}]", chain) for i, chain in enumerate(made.filter_chains)]
    if made.HasField("default_filter_chain"):
        chains.append(("default_filter_chain", made.default_filter_chain))
    if not chains:
        yield _Broken("filter_chains", "must have one at least for gRPC servers")
    for path, chain in chains:
        if len(chain.filters) != 1:
            yield _Broken(f"{path}.filters", "must be one HTTP connection manager")
        for filter_ in chain.filters[:1]:
            yield from _manager(
                filter_.typed_config, f"{path}.filters[0].typed_config", server=True
            )


def _manager(packed: Any, path: str, *, server: bool) -> _Found:
    try:
        manager = constraints.unpack(packed)
    except message.DecodeError:
        return  # has been found already
    if not isinstance(manager, _Manager):
        yield _Broken(path, "must be an HTTP connection manager")
        return
    if manager.xff_num_trusted_hops:
        yield _Broken(f"{path}.xff_num_trusted_hops", "must be 0 for gRPC")
    if manager.original_ip_detection_extensions:
        yield _Broken(f"{path}.original_ip_detection_extensions", "must be empty for gRPC")
    match manager.WhichOneof("route_specifier"):
        case "rds":
            yield from _source(manager.rds.config_source, f"{path}.rds.config_source")
        case "route_config":
            for one in _routes(manager.route_config):
                yield one.below(f"{path}.route_config")
        case _:
            yield _Broken(path, "must have routes, or say where they are")
    yield from _filters(manager.http_filters, f"{path}.http_filters", server=server)


def _filters(listed: Any, path: str, *, server: bool) -> _Found:
    if not listed:
        yield _Broken(path, "must have a router at least")
        return
    names = collections.Counter(one.name for one in listed)
    yield from (
        _Broken(path, f"must not have two filters named {name!r}")
        for name, times in names.items()
        if times > 1
    )
    kinds = [one.typed_config.type_url.rpartition("/")[2] for one in listed]
    for position, (filter_, kind) in enumerate(zip(listed, kinds, strict=True)):
        if kind not in _KNOWN_FILTERS and not filter_.is_optional:
            # Kinds that wrap others are looked through by the client; here they count as unknown
            # only if they are filters of Envoy's own.
            if kind.startswith(_FILTERS):
                yield _Broken(f"{path}[{position}]", "must be a filter that gRPC knows")
        elif kind == _ROUTER and position != len(listed) - 1:
            yield _Broken(f"{path}[{position}]", "must be the last filter, being the router")
    if kinds[-1] in _KNOWN_FILTERS and kinds[-1] != _ROUTER:
        side = "server" if server else "client"
        yield _Broken(path, f"must end with the router on a gRPC {side}")


def _source(source: Any, path: str) -> _Found:
    if source.WhichOneof("config_source_specifier") not in ("ads", "self"):
        yield _Broken(path, "must be ads or self for gRPC")


def _routes(made: Any) -> _Found:
    for i, host in enumerate(made.virtual_hosts):
        for j, route in enumerate(host.routes):
            path = f"virtual_hosts[{i}].routes[{j}]"
            if route.match.query_parameters:
                continue  # skipped by the client, as a whole
            if route.match.WhichOneof("path_specifier") not in ("prefix", "path", "safe_regex"):
                yield _Broken(
                    f"{path}.match", "must be by prefix, path or regular expression for gRPC"
                )
            if route.WhichOneof("action") == "route":
                yield from _shares(route.route, f"{path}.route")


def _shares(action: Any, path: str) -> _Found:
    if action.WhichOneof("cluster_specifier") != "weighted_clusters":
        return
    total = sum(one.weight.value for one in action.weighted_clusters.clusters)
    if not 0 < total <= _MAX_UINT32:
        yield _Broken(
            f"{path}.weighted_clusters", f"must have weights of 1 to {_MAX_UINT32} in all"
        )


def _cluster(made: Any) -> _Found:
    match made.WhichOneof("cluster_discovery_type"):
        case "type" if made.type == _Cluster.EDS:
            yield from _source(made.eds_cluster_config.eds_config, "eds_cluster_config.eds_config")
        case "type" if made.type == _Cluster.LOGICAL_DNS:
            groups = made.load_assignment.endpoints
            if len(groups) != 1 or len(groups[0].lb_endpoints) != 1:
                yield _Broken("load_assignment", "must have exactly one endpoint for gRPC")
        case "cluster_type":
            pass
        case _:
            yield _Broken("type", "must be EDS, LOGICAL_DNS or an aggregate for gRPC")
    yield from _balancer(made)
    if made.HasField("lrs_server") and not made.lrs_server.HasField("self"):
        yield _Broken("lrs_server", "must be self for gRPC")
    if made.HasField("outlier_detection"):
        yield from _outliers(made.outlier_detection)
    if made.HasField("transport_socket"):
        yield from _security(made.transport_socket.typed_config)


def _balancer(made: Any) -> _Found:
    if made.HasField("load_balancing_policy"):
        return
    if made.lb_policy not in _BALANCERS:
        yield _Broken("lb_policy", "must be ROUND_ROBIN, RING_HASH or LEAST_REQUEST for gRPC")
    if made.lb_policy == _Cluster.RING_HASH:
        ring = made.ring_hash_lb_config
        if ring.hash_function != _Cluster.RingHashLbConfig.XX_HASH:
            yield _Broken("ring_hash_lb_config.hash_function", "must be XX_HASH for gRPC")
        for name in ("minimum_ring_size", "maximum_ring_size"):
            if getattr(ring, name).value > _MAX_RING:
                yield _Broken(f"ring_hash_lb_config.{name}", f"must be at most {_MAX_RING}")


def _outliers(made: Any) -> _Found:
    for field, value in made.ListFields():
        if field.message_type is None:
            continue
        if field.name.startswith(_PERCENTAGES) and value.DESCRIPTOR.name == "UInt32Value":
            yield from _percentage(value.value, f"outlier_detection.{field.name}")
        elif field.message_type.full_name == "google.protobuf.Duration" and (
            value.seconds < 0 or value.nanos < 0
        ):
            yield _Broken(f"outlier_detection.{field.name}", "must not be negative")


def _percentage(value: int, path: str) -> _Found:
    if value > _PERCENT:
        yield _Broken(path, f"must be at most {_PERCENT}")


def _security(packed: Any) -> _Found:
    path = "transport_socket.typed_config.common_tls_context"
    try:
        context: Any = constraints.unpack(packed)
    except message.DecodeError:
        return
    if context is None or "common_tls_context" not in context.DESCRIPTOR.fields_by_name:
        return
    common = context.common_tls_context
    names = common.DESCRIPTOR.fields_by_name
    for name in (
        "tls_certificate_sds_secret_configs",
        "validation_context_sds_secret_config",
        "tls_params",
    ):
        field = names.get(name)
        if field is not None and any(one.name == name for one, _ in common.ListFields()):
            yield _Broken(f"{path}.{name}", "must not be set for gRPC")


def _assignment(made: Any) -> _Found:
    by_priority: dict[int, list[tuple[str, Any]]] = {}
    for i, group in enumerate(made.endpoints):
        if group.load_balancing_weight.value:  # without a weight it is skipped
            by_priority.setdefault(group.priority, []).append((f"endpoints[{i}]", group))
    if by_priority and max(by_priority) != len(by_priority) - 1:
        yield _Broken("endpoints", "must leave no priority out for gRPC")
    for priority, groups in sorted(by_priority.items()):
        places = collections.Counter(
            (one.locality.region, one.locality.zone, one.locality.sub_zone) for _, one in groups
        )
        if max(places.values()) > 1:
            yield _Broken("endpoints", f"must not name a locality twice in priority {priority}")
        if sum(one.load_balancing_weight.value for _, one in groups) > _MAX_UINT32:
            yield _Broken("endpoints", f"must have weights of at most {_MAX_UINT32} in all")
    yield from _addresses(group for groups in by_priority.values() for group in groups)


def _addresses(groups: Iterable[tuple[str, Any]]) -> _Found:
    seen: set[tuple[str, int]] = set()
    for path, group in groups:
        for i, one in enumerate(group.lb_endpoints):
            where = f"{path}.lb_endpoints[{i}].endpoint.address"
            socket = one.endpoint.address.socket_address
            try:
                ipaddress.ip_address(socket.address)
            except ValueError:
                yield _Broken(where, "must be an IP address for gRPC")
                continue
            if (socket.address, socket.port_value) in seen:
                yield _Broken(where, "must not be there twice for gRPC")
            seen.add((socket.address, socket.port_value))


_CHECKS: Final[Mapping[str, Callable[[Any], _Found]]] = {
    types.CLUSTER.type_url: _cluster,
    types.ENDPOINT.type_url: _assignment,
    types.LISTENER.type_url: _listener,
    types.ROUTE.type_url: _routes,
}
