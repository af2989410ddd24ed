# SPDX-License-Identifier: Apache-2.0
"""The rules of a MeshConfig that it can break by itself."""

from __future__ import annotations

import math

from pilothouse.api.config.v1alpha1 import mesh_config_pb2, route_rule_pb2
from pilothouse.config import checks, destination_policies, http_actions, ranges, syntax


def check_config(spec: mesh_config_pb2.MeshConfigSpec) -> checks.Found:
    """Every rule that the spec of a MeshConfig breaks, in the order of its fields."""
    if spec.HasField("tracing"):
        yield from _tracing(spec.tracing)
    if spec.HasField("access_log"):
        yield from checks.required("spec.accessLog.path", spec.access_log.path, _file)
    if spec.HasField("retry"):
        yield from http_actions.retry("spec.retry", route_rule_pb2.HttpRoute(retry=spec.retry))
    yield from ranges.times("spec", spec, "connect_timeout")
    yield from destination_policies.keepalive("spec.tcpKeepalive", spec.tcp_keepalive)


def _file(value: str) -> str | None:
    if not value.startswith("/"):
        return f"must be an absolute path, is {value!r}"
    return syntax.text(value)


def _tracing(tracing: mesh_config_pb2.ProxyTracing) -> checks.Found:
    yield from checks.required("spec.tracing.address", tracing.address, syntax.address)
    if tracing.HasField("port"):
        yield from checks.broken("spec.tracing.port", syntax.port(tracing.port))
    percent = tracing.sampling_percent
    if not math.isfinite(percent) or not 0 <= percent <= 100:
        message = f"must be from 0 to 100, is {percent:g}"
        yield from checks.broken("spec.tracing.samplingPercent", message)
