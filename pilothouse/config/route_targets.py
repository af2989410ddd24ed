# SPDX-License-Identifier: Apache-2.0
"""The rules of where the routes of a RouteRule send."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.config import checks, syntax, treatments

MAX_WEIGHT = 1_000_000
_MAX_WEIGHTS = 2**32 - 1
"""Envoy adds the weights of a route up in 32 bits."""


def destination(where: str, target: route_rule_pb2.Destination) -> checks.Found:
    """Every rule that a destination breaks, in the order of its fields."""
    match target.WhichOneof("target"):
        case "service":
            yield from checks.required(f"{where}.service", target.service, syntax.label)
        case "external_service":
            name = target.external_service
            yield from checks.required(f"{where}.externalService", name, syntax.subdomain)
            if target.labels:
                no_labels = "an external service has no labels to choose by"
                yield from checks.broken(f"{where}.labels", no_labels)
        case None:
            yield from checks.broken(where, "one of `service` or `externalService` is required")
    yield from checks.optional(f"{where}.namespace", target.namespace, syntax.label)
    if target.HasField("port"):
        yield from checks.broken(f"{where}.port", syntax.port(target.port))
    yield from checks.labels(f"{where}.labels", target.labels)
    yield from treatments.both_headers(where, target)
    if target.weight > MAX_WEIGHT:
        most = f"must be at most {MAX_WEIGHT}, is {target.weight}"
        yield from checks.broken(f"{where}.weight", most)


def weights(where: str, targets: Collection[route_rule_pb2.Destination]) -> checks.Found:
    """Every rule that the weights of a route break together."""
    found = [one.weight if one.HasField("weight") else 1 for one in targets]
    if found and not sum(found):
        yield from checks.broken(where, "at least one needs a weight that is not 0")
    elif sum(found) > _MAX_WEIGHTS:
        yield from checks.broken(where, f"the weights must add up to at most {_MAX_WEIGHTS}")


Field = Literal["weight", "request_headers", "response_headers"]
HEADERS: Final[tuple[Field, ...]] = ("request_headers", "response_headers")


def without(
    where: str, target: route_rule_pb2.Destination, *fields: Field, what: str
) -> checks.Found:
    """Fields of a destination that have no meaning where it stands.

    Args:
        where: The destination's path.
        target: The destination.
        fields: Names of the fields.
        what: Where it stands, for people.
    """
    for field in fields:
        if target.HasField(field):
            name = target.DESCRIPTOR.fields_by_name[field].json_name
            yield from checks.broken(f"{where}.{name}", f"is not for {what}")
