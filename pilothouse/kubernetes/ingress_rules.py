# SPDX-License-Identifier: Apache-2.0
"""One RouteRule out of one host of one Ingress: its name, its matches, its routes.

The arguments are everything a rule depends on, so a rule that is asked for again is the same one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Literal

from pilothouse.api.config.v1alpha1 import matches_pb2, route_rule_pb2
from pilothouse.config import codec, objects
from pilothouse.model import keys

GATEWAY = keys.ObjectKey("MeshGateway", objects.ROOT_NAMESPACE, "ingress")
"""The gateway that all Ingresses share."""
HTTP = "http"
"""Name of its plain listener."""
HTTPS = "https"
"""Name of its listener with TLS."""
UNSERVED = "unserved-backend"
"""A service in the root namespace that does not exist, and that no tenant can make."""

DEFAULT_PRIORITY = -1
"""Of default backends: they take what no path took, whoever has that path."""
_REDIRECT_CODE = 308  # method and body survive
_MAX_LABEL = 63
_MAX_NAME = 200
_PORT = "(:[0-9]+)?"

PathKind = Literal["exact", "prefix", "regex"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests go: a service of the mesh, which may not exist."""

    service: str
    port: int | None = None
    """None for no port in particular."""
    namespace: str = ""
    """Empty for the Ingress's own."""


NOWHERE = Target(service=UNSERVED, namespace=objects.ROOT_NAMESPACE)
"""For what must not be served: its requests are answered 503."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path and where its requests go."""

    kind: PathKind
    path: str
    target: Target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a rule takes from the Ingress that it is derived from."""

    key: keys.ObjectKey
    created: int
    generation: int
    source: str
    """Name of the config source."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which requests a rule is for, before any path is looked at."""

    host: str
    """Empty for every host."""
    below: str = ""
    """A wildcard, for rules of every host: the names below it that it does not cover itself."""
    default: bool = False
    """What no path took."""
    listener: str = ""
    """Empty for both."""


@functools.lru_cache(maxsize=131_072)
def build(
    source: Source, place: Place, routes: tuple[Route, ...], redirect_port: int | None
) -> objects.Config:
    """The rule.

    Args:
        source: The Ingress.
        place: Which requests.
        routes: At least one.
        redirect_port: Port to redirect to over HTTPS; None to serve.
    """
    redirects = redirect_port is not None
    spec = route_rule_pb2.RouteRuleSpec(
        parents=[
            route_rule_pb2.ParentReference(
                gateway=GATEWAY.name, namespace=GATEWAY.namespace, listener=place.listener
            )
        ],
        hosts=[place.below or place.host or "*"],
        priority=DEFAULT_PRIORITY if place.default else 0,
    )
    header = _authority(place)
    for route in sorted(routes, key=_route_order):
        http = spec.http.add()
        match = http.matches.add()
        setattr(match.path, route.kind, route.path)
        if header is not None:
            match.headers.append(header)
        if redirect_port is None:
            _send(http.destinations.add(), route.target)
        else:
            http.redirect.scheme, http.redirect.code = "https", _REDIRECT_CODE
            if redirect_port != 443:  # which is what https means
                http.redirect.port = redirect_port
    key = keys.ObjectKey(
        "RouteRule", source.key.namespace, name(source.key.name, place, redirects=redirects)
    )
    return codec.make(
        key,
        spec,
        source=source.source,
        origins=(source.key,),
        created=source.created,
        generation=source.generation,
    )


def _route_order(route: Route) -> tuple[int, str, str]:
    """Longest first: of ``/foo/`` and ``/foo``, which match the same, the longer one counts."""
    return (-len(route.path), route.kind, route.path)


def _send(destination: route_rule_pb2.Destination, target: Target) -> None:
    destination.service = target.service
    destination.namespace = target.namespace
    if target.port is not None:
        destination.port = target.port


def _authority(place: Place) -> matches_pb2.HeaderMatch | None:
    """The test that a wildcard of Ingress needs: it stands for one label, not for any number."""
    wildcard = place.below or (place.host if place.host.startswith("*.") else "")
    if not wildcard:
        return None
    labels = r"[^.:]+(\.[^.:]+)+" if place.below else "[^.:]+"
    suffix = wildcard.removeprefix("*").replace(".", r"\.")
    return matches_pb2.HeaderMatch(name=":authority", regex=f"(?i){labels}{suffix}{_PORT}")


def name(ingress: str, place: Place, *, redirects: bool) -> str:
    """The name of a rule: ``INGRESS-HOST``, with ``-default`` and ``-redirect`` where they apply.

    It is told apart from the name of every other rule of the namespace by a hash, wherever
    ``INGRESS-HOST`` alone would not: a host that is no plain name, or has a dash, or is too long.
    """
    plain = f"{ingress}-{place.host}"
    if (
        "*" in place.host
        or "-" in place.host
        or "." not in place.host
        or place.below
        or _long(plain)
    ):
        digest = hashlib.sha256(f"{ingress}\n{place.host}\n{place.below}".encode())
        shown = "any" if not place.host else place.host.removeprefix("*.").partition(".")[0]
        plain = f"{ingress[:20]}-{shown[:12]}".strip("-.") + f"-{digest.hexdigest()[:10]}"
        plain = plain.replace(".-", "-")
    role = ("-default" if place.default else "") + ("-redirect" if redirects else "")
    return plain + role


def _long(text: str) -> bool:
    return len(text) > _MAX_NAME or any(
        len(label) > _MAX_LABEL - len("-default-redirect") for label in text.split(".")
    )
