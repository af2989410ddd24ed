# SPDX-License-Identifier: Apache-2.0
"""The access log: a line for each request or connection, in a file.

Whether the requests of a route are logged is said by the route, so it can be changed without a
listener: a route that is not carries a mark, and the log leaves out what carries it.
"""

from __future__ import annotations

from typing import Final

from google.protobuf import struct_pb2

from pilothouse.api.envoy.config.accesslog.v3 import accesslog_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2
from pilothouse.api.envoy.extensions.access_loggers.file.v3 import file_pb2
from pilothouse.api.envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2
from pilothouse.envoy import wire
from pilothouse.routing import plan

_MARK: Final = "pilothouse.unlogged"
_UNMARKED: Final = f"!has(xds.route_metadata) || !('{_MARK}' in xds.route_metadata.filter_metadata)"
"""What no route takes has no metadata at all, and is logged."""
_FIELDS: Final = {
    "start_time": "%START_TIME%",
    "protocol": "%PROTOCOL%",
    "method": "%REQ(:METHOD)%",
    "authority": "%REQ(:AUTHORITY)%",
    "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
    "response_code": "%RESPONSE_CODE%",
    "response_flags": "%RESPONSE_FLAGS%",
    "response_code_details": "%RESPONSE_CODE_DETAILS%",
    "bytes_received": "%BYTES_RECEIVED%",
    "bytes_sent": "%BYTES_SENT%",
    "duration": "%DURATION%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "server_name": "%REQUESTED_SERVER_NAME%",
    "route": "%ROUTE_NAME%",
    "cluster": "%UPSTREAM_CLUSTER_RAW%",
    "endpoint": "%UPSTREAM_HOST%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "user_agent": "%REQ(USER-AGENT)%",
    "forwarded_for": "%REQ(X-FORWARDED-FOR)%",
}
"""Of a line in JSON; what a connection has none of is null there."""


def message(log: plan.AccessLog, *, by_route: bool = False) -> accesslog_pb2.AccessLog:
    """The log; with ``by_route`` without the requests of routes that are not logged."""
    file = file_pb2.FileAccessLog(path=log.path)
    if log.json:
        fields = struct_pb2.Struct()
        fields.update(_FIELDS)
        file.log_format.json_format.CopyFrom(fields)
    made = accesslog_pb2.AccessLog(name="envoy.access_loggers.file", typed_config=wire.packed(file))
    if by_route:
        expression = cel_pb2.ExpressionFilter(expression=_UNMARKED)
        made.filter.extension_filter.name = "envoy.access_loggers.extension_filters.cel"
        made.filter.extension_filter.typed_config.CopyFrom(wire.packed(expression))
    return made


def leave_out(made: route_components_pb2.Route) -> None:
    """Mark a route: its requests are not logged."""
    made.metadata.filter_metadata[_MARK].SetInParent()
