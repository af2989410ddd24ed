# SPDX-License-Identifier: Apache-2.0
"""The rules of an ExternalService that it can break by itself."""

from __future__ import annotations

from pilothouse.api.config.v1alpha1 import external_service_pb2
from pilothouse.config import checks, syntax

_STATIC = external_service_pb2.ExternalServiceSpec.RESOLUTION_STATIC


def check_external_service(spec: external_service_pb2.ExternalServiceSpec) -> checks.Found:
    """Every rule that the spec of an ExternalService breaks, in the order of its fields."""
    if not spec.hosts:
        yield from checks.broken("spec.hosts", "at least one is required")
    yield from checks.hosts("spec.hosts", spec.hosts, _external_host)
    if not spec.ports:
        yield from checks.broken("spec.ports", "at least one is required")
    numbers: dict[object, str] = {}
    for index, port in enumerate(spec.ports):
        where = f"spec.ports[{index}]"
        yield from checks.required_port(f"{where}.number", port.number, numbers)
        if port.HasField("target_port"):
            yield from checks.broken(f"{where}.targetPort", syntax.port(port.target_port))
    if spec.resolution == _STATIC and not spec.endpoints:
        needed = "at least one is required when resolution is STATIC"
        yield from checks.broken("spec.endpoints", needed)
    rule = syntax.ip_address if spec.resolution == _STATIC else syntax.address
    for index, endpoint in enumerate(spec.endpoints):
        yield from checks.required(f"spec.endpoints[{index}].address", endpoint.address, rule)


def _external_host(value: str) -> str | None:
    if value.startswith("*"):
        return f"must be a host name without a wildcard, is {value!r}"
    return syntax.host(value)
