# SPDX-License-Identifier: Apache-2.0
"""What gRPC applications are told that read their configuration themselves.

They see the services, rules and policies that a sidecar of their namespace sees, as far as such
requests go: every one is a POST without a query, and its scheme and authority take no part in
matching. A route that cannot be told apart by what is left is never taken, so it is left out.

What an application understands is in https://github.com/grpc/proposal (A27, A28, A31, A42, A44).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from pilothouse.model import services
from pilothouse.routing import catalogue, endpoints, header_tests, plan, upstreams
from pilothouse.routing import memo as memory

Hashing = tuple[tuple[plan.ClusterKey, tuple[upstreams.HashKey, ...]], ...]
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104  what an application asks about, not what we bind
_MAX_DOUBLED = 3
"""Inverted tests of one match that are told exactly; each doubles the routes."""


def clients(memo: memory.Memo, outward: plan.Layer) -> plan.Proxyless:
    """How an application sends, where the sidecars of its namespace send as ``outward`` says."""
    hashing = {
        one.key: one.settings.load_balancer.hash_by
        for one in outward.clusters
        if one.settings.load_balancer.hash_by
    }
    hosts = [
        host
        for configuration in outward.route_configurations
        for host in configuration.virtual_hosts
        if any(map(_is_name, host.domains)) and not all(map(_is_tunnel, host.routes))
    ]
    return plan.Proxyless(
        clusters=tuple(_by_endpoints(one) for one in outward.clusters if one.resolution != "asked"),
        endpoints=tuple(_own_endpoints(outward.clusters)),
        targets=tuple(
            memo.leaf(_target, host.name, host, _hashing(host, hashing)) for host in hosts
        ),
    )


def servers(address: str, ports: tuple[endpoints.ServedPort, ...]) -> plan.Proxyless:
    """How an application serves that has these ports: it asks by the address that it binds.

    Args:
        address: Its own IP address; it may bind any instead.
        ports: On which it serves.
    """
    hosts = sorted({address, *_ANY_ADDRESS})
    return plan.Proxyless(
        servers=tuple(
            plan.Address(host=host, port=port.number)
            for host in hosts
            for port in ports
            if port.spoken in ("http", "http2")
        )
    )


def _is_tunnel(route: plan.Route) -> bool:
    return route.match.path_kind == "connect"


def _by_endpoints(cluster: plan.Cluster) -> plan.Cluster:
    """A cluster with addresses of its own gets them by EDS: gRPC has no other way."""
    if cluster.resolution != "static":
        return cluster
    return dataclasses.replace(cluster, resolution="eds", addresses=())


def _own_endpoints(clusters: Iterable[plan.Cluster]) -> Iterator[plan.ClusterEndpoints]:
    for one in clusters:
        if one.resolution == "static":
            place = plan.LocalityEndpoints(
                locality=services.Locality(), addresses=tuple(dict.fromkeys(one.addresses))
            )
            yield plan.ClusterEndpoints(key=one.key, localities=(place,) if one.addresses else ())


def _hashing(
    host: plan.VirtualHost, known: Mapping[plan.ClusterKey, tuple[upstreams.HashKey, ...]]
) -> Hashing:
    if not known:
        return ()
    used = {key for route in host.routes for key in _clusters(route) if key in known}
    return tuple((key, known[key]) for key in sorted(used, key=_cluster_order))


def _cluster_order(key: plan.ClusterKey) -> tuple[object, ...]:
    return key.service or (), key.port, key.labels, key.scope


def _clusters(route: plan.Route) -> Iterator[plan.ClusterKey]:
    if isinstance(route.action, plan.Forward):
        for share in route.action.clusters:
            if share.cluster is not None:
                yield share.cluster


def _target(host: plan.VirtualHost, hashing: Hashing) -> plan.Target:
    known = dict(hashing)
    return plan.Target(
        name=host.name,
        authorities=tuple(one for one in host.domains if _is_name(one)),
        routes=tuple(
            plan.ClientRoute(
                route=dataclasses.replace(route, match=match),
                hash_by=next((known[key] for key in _clusters(route) if key in known), ()),
            )
            for planned in host.routes
            for route in _by_fault(planned)
            for match in _matches(route.match)
        ),
        origins=host.origins,
    )


def _by_fault(route: plan.Route) -> tuple[plan.Route, ...]:
    """The route, and before it what a fault is for that is for some requests only.

    gRPC does not look at the headers of a fault (A33), and would do it to all.
    """
    fault = route.treatment.fault
    if fault is None or not fault.headers:
        return (route,)
    headers = tuple(sorted({*route.match.headers, *fault.headers}, key=dataclasses.astuple))
    every = dataclasses.replace(route.treatment, fault=dataclasses.replace(fault, headers=()))
    none = dataclasses.replace(route.treatment, fault=None)
    return (
        dataclasses.replace(
            route, match=dataclasses.replace(route.match, headers=headers), treatment=every
        ),
        dataclasses.replace(route, treatment=none),
    )


def _is_name(domain: str) -> bool:
    host = domain.rpartition(":")[0] if re.search(r":[0-9]+$", domain) else domain
    return "*" not in domain and not catalogue.is_ip(host.strip("[]"))


def _matches(match: plan.RouteMatch) -> tuple[plan.RouteMatch, ...]:
    """The matches that do together what this one says; none where no request of gRPC's fits."""
    pseudo = any(header.name.startswith(":") for header in match.headers)
    queried = any(parameter.kind != "absent" for parameter in match.query)
    tunnel = match.path_kind == "connect"
    if pseudo or queried or tunnel or match.method not in ("", "POST"):
        return ()
    plain = dataclasses.replace(_with_path(match), method="", query=())
    return tuple(dataclasses.replace(plain, headers=headers) for headers in _headers(match.headers))


def _headers(
    headers: tuple[header_tests.HeaderMatch, ...],
) -> Iterator[tuple[header_tests.HeaderMatch, ...]]:
    """Say "not this" as "another value, or none": to gRPC an absent header has no value at all."""
    inverted = [header for header in headers if header.invert and _fails_without(header)]
    if len(inverted) > _MAX_DOUBLED:
        yield headers
        return
    choices = (
        (header, header_tests.HeaderMatch(name=header.name, kind="absent"))
        if header.invert and _fails_without(header)
        else (header,)
        for header in headers
    )
    yield from itertools.product(*choices)


def _fails_without(header: header_tests.HeaderMatch) -> bool:
    """Tell whether a test fails for a header that is absent, as for one without text."""
    try:
        return header.kind != "regex" or re.fullmatch(header.value, "") is None
    except re.error:
        return True  # what only RE2 knows, as classes of characters: seldom is nothing one of them


def _with_path(match: plan.RouteMatch) -> plan.RouteMatch:
    """The match with a path kind that gRPC knows."""
    match match.path_kind:
        case "prefix":
            pattern = f"{re.escape(match.path)}(/.*)?"
        case "template":
            pattern = "/".join(map(_element, match.path.split("/")))
        case "any" | "exact" | "string_prefix" | "regex" | "connect":
            return match
    pattern = f"(?i){pattern}" if match.ignore_case else pattern
    return dataclasses.replace(match, path_kind="regex", path=pattern, ignore_case=False)


def _element(element: str) -> str:
    if element == "**" or element.endswith("=**}"):
        return ".*"
    if element == "*" or element.startswith("{"):
        return "[^/]+"
    return re.escape(element)
