# SPDX-License-Identifier: Apache-2.0
"""The rules of what a RouteRule does with requests and answers, whatever becomes of them."""

from __future__ import annotations

from collections.abc import Mapping

from pilothouse.api.config.v1alpha1 import http_actions_pb2, route_rule_pb2
from pilothouse.config import checks, grpc_statuses, http_matches, scalars, syntax

_RESERVED = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_SHORTEST_PERIOD = 50 * scalars.MILLISECOND
"""Envoy's limit."""
MAX_HEADER_VALUE = 16_384
"""Envoy's limit, in bytes."""


def check(where: str, route: route_rule_pb2.HttpRoute) -> checks.Found:
    """Every rule that a route breaks here, in the order of its fields."""
    if route.HasField("request_headers") and answers(route):
        sent_on = "is for requests that are sent on"
        yield from checks.broken(f"{where}.requestHeaders", sent_on)
    yield from both_headers(where, route)
    if route.HasField("fault"):
        yield from _fault(f"{where}.fault", route.fault)
    if route.HasField("cors"):
        yield from _cors(f"{where}.cors", route.cors)
    if route.HasField("rate_limit"):
        yield from _rate_limit(f"{where}.rateLimit", route.rate_limit)
    if route.HasField("max_request_bytes") and not route.max_request_bytes:
        yield from checks.broken(f"{where}.maxRequestBytes", "must be at least 1, is 0")


def answers(route: route_rule_pb2.HttpRoute) -> bool:
    """Whether requests are answered, and not sent on."""
    return route.HasField("redirect") or route.HasField("direct_response")


def both_headers(
    where: str, of: route_rule_pb2.HttpRoute | route_rule_pb2.Destination
) -> checks.Found:
    """Every rule that changes of headers break."""
    if of.HasField("request_headers"):
        yield from _headers(f"{where}.requestHeaders", of.request_headers)
    if of.HasField("response_headers"):
        yield from _headers(f"{where}.responseHeaders", of.response_headers)


def _headers(where: str, changes: http_actions_pb2.HeaderChanges) -> checks.Found:
    if not (changes.set or changes.add or changes.remove):
        yield from checks.broken(where, "one of `set`, `add` or `remove` is required")
    yield from _values(f"{where}.set", changes.set)
    yield from _values(f"{where}.add", changes.add)
    seen: dict[object, str] = {}
    for index, name in enumerate(changes.remove):
        yield from _name(f"{where}.remove[{index}]", name, seen)


def _values(where: str, values: Mapping[str, str]) -> checks.Found:
    seen: dict[object, str] = {}
    for name in sorted(values):
        yield from _name(f"{where}[{name}]", name, seen)
        yield from checks.broken(f"{where}[{name}]", _value(values[name]))


def _name(where: str, name: str, seen: dict[object, str]) -> checks.Found:
    if name.startswith(":") or name.lower() in _RESERVED:
        yield from checks.broken(where, f"the header {name} cannot be changed")
    else:
        yield from checks.required(where, name, syntax.header_name)
        yield from checks.unique(seen, where, name.lower(), what="header")


def _value(value: str) -> str | None:
    if len(value.replace("%", "%%").encode()) > MAX_HEADER_VALUE:
        return f"must be at most {MAX_HEADER_VALUE} bytes in UTF-8, of which a % counts as two"
    return syntax.text(value)


def _fault(where: str, fault: route_rule_pb2.HttpFault) -> checks.Found:
    if not (fault.HasField("delay") or fault.HasField("abort")):
        yield from checks.broken(where, "one of `delay` or `abort` is required")
    if fault.HasField("delay"):
        duration = fault.delay.duration
        yield from checks.duration(f"{where}.delay.duration", duration, positive=True)
        yield from checks.percent(f"{where}.delay.percent", fault.delay.percent)
    if fault.HasField("abort"):
        yield from _abort(f"{where}.abort", fault.abort)
    for index, header in enumerate(fault.headers):
        yield from http_matches.header(f"{where}.headers[{index}]", header)


def _abort(where: str, abort: route_rule_pb2.FaultAbort) -> checks.Found:
    match abort.WhichOneof("error"):
        case "http_status":
            yield from checks.broken(f"{where}.httpStatus", syntax.status(abort.http_status))
        case "grpc_status" if abort.grpc_status not in grpc_statuses.ERRORS:
            known = ", ".join(grpc_statuses.ERRORS)
            wrong = f"must be one of {known}, is {abort.grpc_status!r}"
            yield from checks.broken(f"{where}.grpcStatus", wrong)
        case "grpc_status":
            pass
        case None:
            yield from checks.broken(where, "one of `httpStatus` or `grpcStatus` is required")
    yield from checks.percent(f"{where}.percent", abort.percent)


def _cors(where: str, cors: http_actions_pb2.CorsPolicy) -> checks.Found:
    if not cors.allow_origins:
        yield from checks.broken(f"{where}.allowOrigins", "at least one is required")
    for index, origin in enumerate(cors.allow_origins):
        yield from _origin(f"{where}.allowOrigins[{index}]", origin)
    lists = {
        "allowMethods": (cors.allow_methods, syntax.method),
        "allowHeaders": (cors.allow_headers, _plain_header),
        "exposeHeaders": (cors.expose_headers, _plain_header),
    }
    for name, (values, rule) in lists.items():
        for index, value in enumerate(values):
            if value != "*":
                yield from checks.required(f"{where}.{name}[{index}]", value, rule)
    if cors.HasField("max_age"):
        yield from checks.duration(f"{where}.maxAge", cors.max_age)
        if cors.max_age.nanos:
            yield from checks.broken(f"{where}.maxAge", "must be whole seconds")
    if cors.allow_credentials and any(origin.exact == "*" for origin in cors.allow_origins):
        # Every site there is could act with the user's cookies.
        yield from checks.broken(f"{where}.allowCredentials", "is not for an origin of *")


def _plain_header(value: str) -> str | None:
    if value.startswith(":"):
        return f"must be a header name, is {value!r}"
    return syntax.header_name(value)


def _origin(where: str, origin: http_actions_pb2.OriginMatch) -> checks.Found:
    test = origin.WhichOneof("test")
    match test:
        case "exact" | "prefix" | "suffix":
            yield from checks.required(f"{where}.{test}", getattr(origin, test), syntax.text)
        case "regex":
            yield from checks.regex(f"{where}.regex", origin.regex)
        case None:
            choices = "`exact`, `prefix`, `suffix` or `regex`"
            yield from checks.broken(where, f"one of {choices} is required")


def _rate_limit(where: str, limit: http_actions_pb2.RateLimit) -> checks.Found:
    if not limit.requests:
        yield from checks.broken(f"{where}.requests", "is required: a number greater than 0")
    if limit.HasField("per"):
        yield from checks.duration(f"{where}.per", limit.per)
        if 0 <= checks.in_nanoseconds(limit.per) < _SHORTEST_PERIOD:
            yield from checks.broken(f"{where}.per", "must be at least 50ms")
    if limit.HasField("burst") and limit.burst < limit.requests:
        least = f"must be at least `requests`, {limit.requests}, is {limit.burst}"
        yield from checks.broken(f"{where}.burst", least)
