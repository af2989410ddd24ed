# SPDX-License-Identifier: Apache-2.0
"""Is a config object right? By itself (`validate`), and among the others (`cross_check`).

Nothing here looks at services, endpoints or secrets: whether a reference leads anywhere is for
routing to find out, because it changes while the object does not.
"""

from __future__ import annotations

from typing import Any

from pilothouse.config import (
    checks,
    conflicts,
    destination_policies,
    destinations,
    mesh,
    mesh_gateways,
    objects,
    route_rules,
    schema,
    syntax,
    violations,
    writing,
)

Violation = violations.Violation
cross_check = conflicts.cross_check


def validate(config: objects.Config) -> tuple[violations.Violation, ...]:
    """Every rule that an object breaks by itself: metadata first, then in the order of the spec."""
    return (*_metadata(config.meta), *_spec(config))


def _metadata(meta: objects.Meta) -> checks.Found:
    yield from checks.required("metadata.name", meta.key.name, syntax.subdomain)
    yield from checks.required("metadata.namespace", meta.key.namespace, syntax.label)
    yield from checks.labels("metadata.labels", dict(meta.labels))
    for key, _ in meta.annotations:
        yield from checks.broken(f"metadata.annotations[{key}]", syntax.label_key(key))


def _spec(config: objects.Config) -> checks.Found:
    # A value that we have no word for is a newer program's, and must not pass for "unset".
    for unknown in writing.unknown(config.spec, path="spec"):
        field, _, message = unknown.partition(": ")
        yield from checks.broken(field, message)
    spec: Any = config.spec
    match config.key.kind:
        case "DestinationPolicy":
            yield from destination_policies.check(spec)
        case "ExternalService":
            yield from destinations.check_external_service(spec)
        case "MeshConfig":
            yield from mesh.check_config(spec)
        case "MeshGateway":
            yield from mesh_gateways.check(spec, config.meta)
        case "RouteRule":
            yield from route_rules.check(spec, config.key.namespace)
        case kind:  # a programmer's mistake: a kind in the table without rules
            raise LookupError(f"no rules for kind {kind}, only for {', '.join(schema.KINDS)}")
