# SPDX-License-Identifier: Apache-2.0
"""Reads an admitted DestinationPolicy."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from google.protobuf import message

from pilothouse.api.config.v1alpha1 import destination_policy_pb2
from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.routing import parsed, readers, upstreams

_BALANCERS: dict[int, upstreams.Balancing] = {
    destination_policy_pb2.LoadBalancer.POLICY_UNSPECIFIED: "least_request",
    destination_policy_pb2.LoadBalancer.POLICY_LEAST_REQUEST: "least_request",
    destination_policy_pb2.LoadBalancer.POLICY_ROUND_ROBIN: "round_robin",
    destination_policy_pb2.LoadBalancer.POLICY_RANDOM: "random",
}


def policy(config: objects.Config) -> parsed.Policy:
    """Read a DestinationPolicy."""
    spec = cast("destination_policy_pb2.DestinationPolicySpec", config.spec)
    return parsed.Policy(
        key=config.key,
        origins=readers.origins(config.meta),
        created=config.meta.created,
        service=keys.ServiceKey(spec.namespace or config.key.namespace, spec.service),
        labels=keys.labels(dict(spec.labels)),
        sections=_sections(spec),
    )


def _sections(spec: destination_policy_pb2.DestinationPolicySpec) -> upstreams.Sections:
    found = upstreams.Sections()
    if spec.HasField("connect_timeout"):
        found["connect_timeout_ms"] = readers.milliseconds(spec.connect_timeout)
    if spec.HasField("load_balancer"):
        found["load_balancer"] = _load_balancer(spec.load_balancer)
    if spec.HasField("circuit_breaker"):
        found["circuit_breaker"] = upstreams.CircuitBreaker(**_given(spec.circuit_breaker))
    if spec.HasField("outlier_detection"):
        found["outlier_detection"] = _outlier_detection(spec.outlier_detection)
    return found


def _load_balancer(section: destination_policy_pb2.LoadBalancer) -> upstreams.LoadBalancer:
    given = _given(section) | {"policy": _BALANCERS[section.policy]}
    return upstreams.LoadBalancer(**given)


def _outlier_detection(
    section: destination_policy_pb2.OutlierDetection,
) -> upstreams.OutlierDetection:
    given = _given(section)
    for field in ("interval", "base_ejection", "max_ejection"):
        name = field if field == "interval" else f"{field}_time"
        if name in given:
            given[f"{field}_ms"] = readers.milliseconds(given.pop(name))
    found = upstreams.OutlierDetection(**given)
    if found.max_ejection_ms < found.base_ejection_ms:  # only where it is not said
        found = dataclasses.replace(found, max_ejection_ms=found.base_ejection_ms)
    return found


def _given(section: message.Message) -> dict[str, Any]:
    """The fields of a section that are set, by name: a plan's value has the same names."""
    return {field.name: value for field, value in section.ListFields()}
