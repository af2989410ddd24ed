# SPDX-License-Identifier: Apache-2.0
"""The rules of whose requests or connections the matches of a RouteRule take."""

from __future__ import annotations

import dataclasses

from pilothouse.api.config.v1alpha1 import matches_pb2, route_rule_pb2
from pilothouse.config import checks, syntax

MESH = "mesh"
"""What stands for the mesh among names of gateways."""

Match = (
    matches_pb2.HttpMatch
    | matches_pb2.GrpcMatch
    | route_rule_pb2.TlsMatch
    | route_rule_pb2.TcpMatch
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parents:
    """What the matches of a rule need to know of its parents."""

    namespace: str
    """The rule's own."""
    gateways: frozenset[tuple[str, str]]
    """Namespace and name of each gateway."""
    mesh: bool
    """True when a service or external service is one."""

    @classmethod
    def of(cls, spec: route_rule_pb2.RouteRuleSpec, namespace: str) -> Parents:
        """Those of a rule in some namespace."""
        return cls(
            namespace=namespace,
            gateways=frozenset(
                (parent.namespace or namespace, parent.gateway)
                for parent in spec.parents
                if parent.WhichOneof("parent") == "gateway"
            ),
            mesh=any(
                parent.WhichOneof("parent") in ("service", "external_service")
                for parent in spec.parents
            ),
        )


def check(where: str, match: Match, parents: Parents) -> checks.Found:
    """Every rule that a match breaks here."""
    if match.HasField("port"):
        yield from checks.broken(f"{where}.port", syntax.port(match.port))
    if match.HasField("source"):
        yield from _source(f"{where}.source", match.source)
        if any(name != MESH for name in match.gateways or parents.gateways):
            only = "is for clients in the mesh, not for gateway parents; say `gateways: [mesh]`"
            yield from checks.broken(f"{where}.source", only)
    seen: dict[object, str] = {}
    for index, name in enumerate(match.gateways):
        at = f"{where}.gateways[{index}]"
        yield from checks.broken(at, _gateway(name, parents))
        space, _, own = name.rpartition("/")
        spelled = MESH if name == MESH else f"{space or parents.namespace}/{own}"
        yield from checks.unique(seen, at, spelled, what="gateway")


def _source(where: str, source: matches_pb2.SourceMatch) -> checks.Found:
    if not (source.service or source.labels or source.namespace):
        yield from checks.broken(where, "one of `service`, `labels` or `namespace` is required")
    yield from checks.optional(f"{where}.service", source.service, syntax.label)
    yield from checks.labels(f"{where}.labels", source.labels)
    yield from checks.optional(f"{where}.namespace", source.namespace, syntax.label)


def _gateway(name: str, parents: Parents) -> str | None:
    if name == MESH:
        return None if parents.mesh else "`mesh` is for a rule with a parent that is a service"
    namespace, slash, own = name.rpartition("/")
    wrong = syntax.subdomain(own) or (syntax.label(namespace) if slash else None)
    if wrong is not None:
        return f"must be `mesh`, NAME or NAMESPACE/NAME, is {name!r}"
    if (namespace or parents.namespace, own) not in parents.gateways:
        return f"must be a parent of the rule, {name!r} is none"
    return None
