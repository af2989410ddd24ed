# SPDX-License-Identifier: Apache-2.0
"""gRPC routes as the HTTP routes that they are.

A call is a POST to ``/SERVICE/METHOD`` whose content type begins with ``application/grpc``:
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

from typing import Final

from pilothouse.api.config.v1alpha1 import matches_pb2, route_rule_pb2

_CONTENT_TYPE: Final = matches_pb2.HeaderMatch(
    name="content-type", regex=r"application/grpc(?:[+;].*)?"
)


def as_http(route: route_rule_pb2.GrpcRoute) -> route_rule_pb2.HttpRoute:
    """The HTTP route that does what a gRPC route says."""
    made = route_rule_pb2.HttpRoute(
        name=route.name,
        matches=[_match(match) for match in route.matches or (matches_pb2.GrpcMatch(),)],
        destinations=route.destinations,
        mirrors=route.mirrors,
        stat_prefix=route.stat_prefix,
    )
    if route.HasField("access_log"):
        made.access_log = route.access_log
    for field in _SAME:
        if route.HasField(field):
            getattr(made, field).CopyFrom(getattr(route, field))
    return made


_SAME: Final = (
    "timeout",
    "retry",
    "request_headers",
    "response_headers",
    "fault",
    "rate_limit",
)


def _match(match: matches_pb2.GrpcMatch) -> matches_pb2.HttpMatch:
    made = matches_pb2.HttpMatch(headers=[_CONTENT_TYPE, *match.headers])
    if match.service and match.method:
        made.path.exact = f"/{match.service}/{match.method}"
    elif match.service:
        made.path.prefix = f"/{match.service}"
    elif match.method:
        made.path.regex = f"/[^/]+/{match.method}"
    if match.HasField("authority"):
        made.authority.CopyFrom(match.authority)
    if match.HasField("port"):
        made.port = match.port
    if match.HasField("source"):
        made.source.CopyFrom(match.source)
    made.gateways.extend(match.gateways)
    return made
