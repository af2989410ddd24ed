# SPDX-License-Identifier: Apache-2.0
"""The rules of a MeshGateway and of a MeshConfig that it can break by itself."""

from __future__ import annotations

import math

from pilothouse.api.config.v1alpha1 import mesh_config_pb2, mesh_gateway_pb2
from pilothouse.config import checks, objects, syntax

_HTTP = mesh_gateway_pb2.Listener.PROTOCOL_HTTP
_HTTPS = mesh_gateway_pb2.Listener.PROTOCOL_HTTPS


def check_gateway(spec: mesh_gateway_pb2.MeshGatewaySpec, meta: objects.Meta) -> checks.Found:
    """Every rule that a MeshGateway breaks, in the order of its fields.

    Its metadata counts: only a derived gateway may name secrets of another namespace.
    """
    if not spec.selector:
        yield from checks.broken("spec.selector", "at least one label is required")
    yield from checks.labels("spec.selector", spec.selector)
    if not spec.listeners:
        yield from checks.broken("spec.listeners", "at least one is required")
    names: dict[object, str] = {}
    ports: dict[object, str] = {}
    for index, listener in enumerate(spec.listeners):
        where = f"spec.listeners[{index}]"
        yield from checks.required(f"{where}.name", listener.name, syntax.label)
        if listener.name:
            yield from checks.unique(names, f"{where}.name", listener.name, what="name")
        # HTTP and HTTPS are one family: both listen on TCP.
        yield from checks.required_port(f"{where}.port", listener.port, ports)
        yield from _listener(where, listener, meta)
    for index, namespace in enumerate(spec.allowed_namespaces):
        if namespace != "*":
            where = f"spec.allowedNamespaces[{index}]"
            yield from checks.required(where, namespace, syntax.label)


def _listener(where: str, listener: mesh_gateway_pb2.Listener, meta: objects.Meta) -> checks.Found:
    if listener.protocol not in (_HTTP, _HTTPS):
        yield from checks.broken(f"{where}.protocol", "is required: HTTP or HTTPS")
    yield from checks.hosts(f"{where}.hosts", listener.hosts, syntax.host_pattern)
    if listener.protocol == _HTTPS and not listener.HasField("tls"):
        yield from checks.broken(f"{where}.tls", "is required when the protocol is HTTPS")
    if listener.protocol == _HTTP and listener.HasField("tls"):
        yield from checks.broken(f"{where}.tls", "must not be set when the protocol is HTTP")
    if listener.HasField("tls"):
        yield from _tls(f"{where}.tls.certificates", listener.tls, meta)


def _tls(where: str, tls: mesh_gateway_pb2.ListenerTls, meta: objects.Meta) -> checks.Found:
    if not tls.certificates:
        yield from checks.broken(where, "at least one is required")
    for index, secret in enumerate(tls.certificates):
        at = f"{where}[{index}]"
        yield from checks.required(f"{at}.secret", secret.secret, syntax.subdomain)
        yield from checks.optional(f"{at}.namespace", secret.namespace, syntax.label)
        own = secret.namespace in ("", meta.key.namespace)
        if not own and not meta.origins:
            message = f"must be the gateway's own, {meta.key.namespace}, is {secret.namespace!r}"
            yield from checks.broken(f"{at}.namespace", message)


def check_config(spec: mesh_config_pb2.MeshConfigSpec) -> checks.Found:
    """Every rule that the spec of a MeshConfig breaks, in the order of its fields."""
    if not spec.HasField("tracing"):
        return
    tracing = spec.tracing
    yield from checks.required("spec.tracing.address", tracing.address, syntax.address)
    if tracing.HasField("port"):
        yield from checks.broken("spec.tracing.port", syntax.port(tracing.port))
    percent = tracing.sampling_percent
    if not math.isfinite(percent) or not 0 <= percent <= 100:
        message = f"must be from 0 to 100, is {percent:g}"
        yield from checks.broken("spec.tracing.samplingPercent", message)
