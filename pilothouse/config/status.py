# SPDX-License-Identifier: Apache-2.0
"""From what was found out about an object to the status that its author reads."""

from __future__ import annotations

from collections.abc import Iterable

from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import objects, schema
from pilothouse.model import keys

ACCEPTED = "Accepted"
RESOLVED_REFS = "ResolvedRefs"
PROGRAMMED = "Programmed"

_GOOD_WHEN_TRUE = frozenset({ACCEPTED, RESOLVED_REFS, PROGRAMMED})
MAX_MESSAGE = 32_768
"""Longest message of a condition, in characters: Kubernetes' limit."""

_GATEWAY_API = "gateway.networking.k8s.io/v1"
_API_VERSIONS = {
    "ConfigMap": "v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "GRPCRoute": _GATEWAY_API,
    "Gateway": _GATEWAY_API,
    "GatewayClass": _GATEWAY_API,
    "HTTPRoute": _GATEWAY_API,
    "Ingress": "networking.k8s.io/v1",
    "IngressClass": "networking.k8s.io/v1",
    "Namespace": "v1",
    "Pod": "v1",
    "Secret": "v1",
    "Service": "v1",
    **dict.fromkeys(schema.KINDS, schema.API_VERSION),
}
"""By kind. A kind is enough: no two groups that Pilothouse reads have one of the same name."""


def reference(key: keys.ObjectKey) -> status_pb2.ObjectReference:
    """A key as the api writes it; ``api_version`` is empty for a kind that is unknown here."""
    return status_pb2.ObjectReference(
        api_version=_API_VERSIONS.get(key.kind, ""),
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
    )


def key_of(named: status_pb2.ObjectReference) -> keys.ObjectKey:
    """The key that a reference names."""
    return keys.ObjectKey(kind=named.kind, namespace=named.namespace, name=named.name)


def status(
    conditions: Iterable[objects.Condition],
    *,
    generation: int,
    counts: status_pb2.ProxyCounts | None = None,
) -> status_pb2.Status:
    """What to write into an object's status.

    Args:
        conditions: In any order. Several of one type become one: the worse status decides, and
            the messages follow each other.
        generation: ``metadata.generation`` of the object that the conditions speak of.
        counts: How many proxies run it; None before the first build that contains it.
    """
    by_type: dict[str, list[objects.Condition]] = {}
    for condition in conditions:
        by_type.setdefault(condition.type, []).append(condition)
    return status_pb2.Status(
        observed_generation=generation,
        conditions=[
            _condition(merged(by_type[name]), generation=generation) for name in sorted(by_type)
        ],
        proxies=counts,
    )


def object_status(
    key: keys.ObjectKey,
    conditions: Iterable[objects.Condition],
    *,
    generation: int,
    counts: status_pb2.ProxyCounts | None = None,
) -> status_pb2.ObjectStatus:
    """The status of one object as a resource of its own, named ``str(key)``."""
    return status_pb2.ObjectStatus(
        object=reference(key),
        status=status(conditions, generation=generation, counts=counts),
    )


def merged(conditions: Iterable[objects.Condition]) -> objects.Condition:
    """One condition out of several of the same type: the worse ones count, sorted, said once.

    Args:
        conditions: At least one, all of one type.
    """
    found = sorted(set(conditions), key=lambda one: (one.reason, one.message))
    name = found[0].type
    # For a warning such as Conflicted, True is the bad news.
    bad = name not in _GOOD_WHEN_TRUE
    counting = [one for one in found if one.status is bad] or found
    messages = dict.fromkeys(one.message for one in counting if one.message)
    return objects.Condition(
        type=name,
        status=counting[0].status,
        reason=counting[0].reason,
        message="; ".join(messages),
    )


def _condition(condition: objects.Condition, *, generation: int) -> status_pb2.Condition:
    text = condition.message
    return status_pb2.Condition(
        type=condition.type,
        status="True" if condition.status else "False",
        reason=condition.reason,
        message=text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 3] + "...",
        observed_generation=generation,
    )
