# SPDX-License-Identifier: Apache-2.0
"""What becomes of calls of gRPC applications without a proxy: by what is documented, and as told.

The first is docs/reference/grpc.md, with the reference matcher; the second reads the resources that
an application gets, as https://github.com/grpc/proposal (A27, A28, A31, A44) says.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from google.protobuf import message

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.filters.http.fault.v3 import fault_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.model import keys, proxy
from pilothouse.xds import types
from tests.support import reference_matcher as matcher
from tests.support import reference_planned as planned
from tests.support import reference_values as values
from tests.support import reference_walker as walker
from tests.support import reference_walker_matches as matches
from tests.support import reference_worlds as worlds

M = TypeVar("M", bound=message.Message)

_RETRIED = {"cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"}
_STATUSES = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}
"""https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md; the rest is 2."""
_PATHS = ("/shop.Cart/Add", "/shop.Cart/Get", "/shop/Add", "/a", "/a/b", "/ab", "/A/b", "/a/b/c")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fate:
    """What becomes of a call."""

    route: str = ""
    status: int = 0
    """With which it always fails; 0 when it is sent on."""
    shares: Mapping[tuple[str, tuple[str, ...]], Fraction] = dataclasses.field(default_factory=dict)
    """By target and endpoints."""
    timeout_ms: int = 0
    retry: tuple[int, frozenset[str]] | None = None
    delay: tuple[int, Fraction] = (0, Fraction(0))
    abort: tuple[int, Fraction] = (0, Fraction(0))


def call(request: values.Request, number: int) -> values.Request:
    """A request as a call; its path is one of a few, its host as it would be dialled."""
    kept = [pair for pair in request.headers if pair[0] in ("x-a", "x-b", "cookie")]
    return values.Request(
        authority=request.authority.lower(),
        path=_PATHS[number % len(_PATHS)],
        method="POST",
        headers=(("content-type", "application/grpc"), *kept),
    )


def documented(world: worlds.World, client: values.Client, request: values.Request) -> Fate | None:
    """What the objects say of a call; None when its name is told to be missing."""
    if re.fullmatch(r"[0-9.]+(:\d+)?|.*\.(:\d+)?", request.authority):
        return None  # addresses are not dialled so, and a name is as services have it
    without = [_for_calls(each) for each in world]
    joined: dict[str, str] = {}
    for name, value in request.headers:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    seen = dataclasses.replace(request, headers=tuple(joined.items()))
    said = matcher.verdict(without, client, seen)
    if not said.route:
        return None
    abort = (_STATUSES.get(said.fault.status, 2), said.fault.aborted)
    faults: dict[str, Any] = {
        "delay": (said.fault.delay_ms, said.fault.delayed),
        "abort": abort if said.fault.aborted else (0, Fraction(0)),
    }
    if said.status:
        return Fate(route=said.route, status=_STATUSES.get(said.status, 2))
    shares: dict[tuple[str, tuple[str, ...]], Fraction] = {}
    for share, part in said.shares.items():
        place = (share.target, share.endpoints or ())
        shares[place] = shares.get(place, Fraction(0)) + part
    return Fate(
        route=said.route,
        shares=shares,
        timeout_ms=said.timeout_ms,
        retry=_retry(said.retry),
        **faults,
    )


def _retry(retry: values.Retry | None) -> tuple[int, frozenset[str]] | None:
    conditions = retry.retry_on & _RETRIED if retry else frozenset[str]()
    return (retry.attempts, frozenset(conditions)) if retry and conditions else None


def _for_calls(manifest: values.Manifest) -> values.Manifest:
    """A rule without the matches that no call is taken by."""
    if manifest["kind"] != "RouteRule":
        return manifest
    spec = dict(manifest["spec"])
    for family in ("http", "grpc"):
        # Positions count, so a route stays where it is, with a match that takes nothing.
        spec[family] = [
            {
                **route,
                "matches": [each if _possible(each, family) else _NEVER for each in _all(route)],
            }
            for route in spec.get(family, ())
        ]
    return {**manifest, "spec": spec}


_NEVER = {"headers": [{"name": "x-none", "exact": "none"}]}


def _all(route: values.Manifest) -> list[Any]:
    return route.get("matches") or [{}]


def _possible(match: values.Manifest, family: str) -> bool:
    return not (
        (family == "http" and match.get("method", "POST") != "POST")
        or "scheme" in match
        or "authority" in match
        or any(each["name"].startswith(":") for each in match.get("headers", ()))
        or any(each.get("present") is not False for each in match.get("queryParameters", ()))
    )


class Application:
    """What a gRPC application is told, and what it makes of it."""

    def __init__(self, world: planned.Planned, client: values.Client) -> None:
        node = proxy.NodeId(
            role=proxy.Role.GRPC,
            address=client.address,
            name="client",
            namespace=client.namespace,
        )
        of = proxy.Proxy(id=node, labels=keys.labels(dict(client.labels)))
        self._told = world.told(of)

    def fate(self, request: values.Request) -> Fate | None:
        """What becomes of a call; None when there is no listener of that name."""
        found = self._told.get(types.LISTENER.type_url, request.authority)
        if found is None:
            return None
        listener = listener_pb2.Listener.FromString(found.body)
        manager = http_connection_manager_pb2.HttpConnectionManager()
        assert listener.api_listener.api_listener.Unpack(manager)
        name = manager.rds.route_config_name
        routes = self._read(types.ROUTE, name, route_pb2.RouteConfiguration)
        (host,) = routes.virtual_hosts
        assert list(host.domains) == ["*"]
        for route in host.routes:
            if takes(route.match, request):
                return self._sent(route, request)
        return Fate()

    def _read(self, kind: types.ResourceType, name: str, made: type[M]) -> M:
        found = self._told.get(kind.type_url, name)
        assert found is not None, name
        return made.FromString(found.body)

    def _sent(self, route: route_components_pb2.Route, request: values.Request) -> Fate:
        action = route.route
        fault = fault_pb2.HTTPFault()
        for config in route.typed_per_filter_config.values():
            assert config.Unpack(fault)
        # A33: headers of a fault are not looked at, so there is none but that of gRPC itself.
        assert all(each.name == "content-type" for each in fault.headers)
        whole = fault.abort.percentage.numerator == 100 and not fault.abort.percentage.denominator
        if whole and action.cluster == "unresolved" and fault.abort.grpc_status:
            return Fate(route=route.name, status=fault.abort.grpc_status)
        limit = action.max_stream_duration.max_stream_duration
        return Fate(
            route=route.name,
            shares=self._shares(action),
            timeout_ms=limit.seconds * 1000 + limit.nanos // 1_000_000,
            retry=(
                (
                    action.retry_policy.num_retries.value,
                    frozenset(action.retry_policy.retry_on.split(",")),
                )
                if action.HasField("retry_policy")
                else None
            ),
            **_faults(fault),
        )

    def _shares(
        self, action: route_components_pb2.RouteAction
    ) -> dict[tuple[str, tuple[str, ...]], Fraction]:
        weighted = {one.name: one.weight.value for one in action.weighted_clusters.clusters}
        assert len(weighted) == len(action.weighted_clusters.clusters)
        found: dict[tuple[str, tuple[str, ...]], Fraction] = {}
        for name, weight in (weighted or {action.cluster: 1}).items():
            part = Fraction(weight, sum(weighted.values()) or 1)
            place = self._place(name)
            found[place] = found.get(place, Fraction(0)) + part
        return found

    def _place(self, name: str) -> tuple[str, tuple[str, ...]]:
        cluster = self._read(types.CLUSTER, name, cluster_pb2.Cluster)
        # Only a host that DNS knows is in the cluster itself (A37).
        assigned = (
            cluster.load_assignment
            if cluster.type == cluster_pb2.Cluster.LOGICAL_DNS
            else self._read(types.ENDPOINT, name, endpoint_pb2.ClusterLoadAssignment)
        )
        places = [
            each.endpoint.address.socket_address
            for locality in assigned.endpoints
            for each in locality.lb_endpoints
        ]
        addresses = tuple(sorted(f"{each.address}:{each.port_value}" for each in places))
        if name == "unresolved":
            return values.NOWHERE, addresses
        return walker.target(name), addresses


def _faults(fault: fault_pb2.HTTPFault) -> dict[str, Any]:
    delay, abort = fault.delay, fault.abort
    status = _STATUSES.get(abort.http_status, 2) if abort.http_status else abort.grpc_status
    return {
        "delay": (
            delay.fixed_delay.seconds * 1000 + delay.fixed_delay.nanos // 1_000_000,
            walker.fraction(delay.percentage) if fault.HasField("delay") else Fraction(0),
        ),
        "abort": (
            (status, walker.fraction(abort.percentage))
            if fault.HasField("abort")
            else (0, Fraction(0))
        ),
    }


def takes(match: route_components_pb2.RouteMatch, request: values.Request) -> bool:
    """Whether a client takes a route by its match."""
    if match.query_parameters or match.path_separated_prefix or match.HasField("path_match_policy"):
        raise ValueError("a match that gRPC does not know")
    sensitive = not match.HasField("case_sensitive") or match.case_sensitive.value
    fold: Callable[[str], str] = str if sensitive else str.lower
    match match.WhichOneof("path_specifier"):
        case "prefix":
            holds = fold(request.path).startswith(fold(match.prefix))
        case "path":
            holds = fold(request.path) == fold(match.path)
        case "safe_regex":
            holds = re.fullmatch(match.safe_regex.regex, request.path) is not None
        case other:
            raise ValueError(f"a path of kind {other}")
    return holds and all(_header(each, request) for each in match.headers)


def _header(matcher_: route_components_pb2.HeaderMatcher, request: values.Request) -> bool:
    """A28: values are joined, and a test of a header that is absent never holds."""
    found = [value for name, value in request.headers if name == matcher_.name.lower()]
    kind = matcher_.WhichOneof("header_match_specifier")
    if kind == "present_match":
        return (bool(found) is matcher_.present_match) is not matcher_.invert_match
    if not found:
        return False
    value = ",".join(found)
    if kind == "range_match":
        number = re.fullmatch(r"-?\d+", value)
        limits = matcher_.range_match
        holds = number is not None and limits.start <= int(value) < limits.end
    else:
        holds = matches.string(matcher_.string_match, value)
    return holds is not matcher_.invert_match
