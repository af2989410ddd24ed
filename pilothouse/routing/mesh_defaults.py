# SPDX-License-Identifier: Apache-2.0
"""Reads the MeshConfig: what holds where nothing else is said."""

from __future__ import annotations

from typing import cast

from pilothouse.api.config.v1alpha1 import mesh_config_pb2
from pilothouse.config import objects
from pilothouse.routing import http_actions, parsed, plan, policies, readers

_DEFAULT_OTLP_PORT = 4317
_Spec = mesh_config_pb2.MeshConfigSpec


def defaults(config: objects.Config) -> parsed.MeshDefaults:
    """Read all of it but tracing."""
    spec = cast("mesh_config_pb2.MeshConfigSpec", config.spec)
    log = spec.access_log
    return parsed.MeshDefaults(
        allow_any=spec.outbound_policy == _Spec.OUTBOUND_POLICY_ALLOW_ANY,
        retry=http_actions.retry(spec.retry),
        access_log=plan.AccessLog(
            path=log.path,
            json=log.format == mesh_config_pb2.AccessLog.FORMAT_JSON,
            origins=readers.origins(config.meta),
        )
        if spec.HasField("access_log")
        else None,
        connecting=_connecting(spec, readers.origins(config.meta)),
        origins=readers.origins(config.meta),
    )


def _connecting(spec: _Spec, origins: plan.Origins) -> parsed.Connecting:
    timeout, keepalive = spec.HasField("connect_timeout"), spec.HasField("tcp_keepalive")
    return parsed.Connecting(
        timeout_ms=readers.milliseconds(spec.connect_timeout) if timeout else None,
        tcp_keepalive=policies.keepalive(spec.tcp_keepalive) if keepalive else None,
        origins=origins if timeout or keepalive else (),
    )


def tracing(config: objects.Config) -> parsed.MeshTracing | None:
    """Read the tracing section."""
    spec = cast("mesh_config_pb2.MeshConfigSpec", config.spec)
    if not spec.HasField("tracing"):
        return None
    section = spec.tracing
    return parsed.MeshTracing(
        address=section.address,
        port=section.port if section.HasField("port") else _DEFAULT_OTLP_PORT,
        sampling_percent=section.sampling_percent
        if section.HasField("sampling_percent")
        else 100.0,
        origins=readers.origins(config.meta),
    )
