# SPDX-License-Identifier: Apache-2.0
"""Which rules a request is subject to: whose host it asks for, and who may speak of that host.

For the reference matcher. A world is a list of manifests: Services, Pods and config objects.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.support import reference_values as values

World = Sequence[values.Manifest]

CONSUMER, PRODUCER = 0, 1
_HTTP = ("http", "http2", "grpc")
_MESH = frozenset({"mesh"})


class Rule(NamedTuple):
    """A rule that speaks of a host; those of the clients' own namespace have the lower tier."""

    tier: int
    manifest: values.Manifest
    ways: frozenset[str]
    """How requests come to it here: by `mesh`, or by gateways, NAMESPACE/NAME."""


@dataclasses.dataclass(frozen=True)
class Site:
    """Whose requests these are."""

    port: int
    rules: tuple[Rule, ...]
    place: str
    """As conditions name it: ``NAME.NAMESPACE:PORT`` of a service, ``HOST:PORT`` at a gateway."""
    parent: values.Manifest | None = None
    """The Service or ExternalService; None at a gateway."""


def named(world: World, kind: str, namespace: str, name: str) -> values.Manifest | None:
    """An object; None when there is none."""
    return next((each for each in of(world, kind) if key(each) == (namespace, name)), None)


def of(world: World, kind: str) -> list[values.Manifest]:
    """All objects of a kind."""
    return [each for each in world if each["kind"] == kind]


def key(manifest: values.Manifest) -> tuple[str, str]:
    """Namespace and name."""
    metadata = manifest["metadata"]
    return metadata.get("namespace", "default"), metadata["name"]


def age(manifest: values.Manifest) -> tuple[str, str, str]:
    """Orders objects: the older first; no time is older than any; then namespace and name."""
    return (manifest["metadata"].get("creationTimestamp", ""), *key(manifest))


def ports(service: values.Manifest) -> list[tuple[int, str]]:
    """Number and protocol of the ports of a Service that are not UDP."""
    return [
        (port["port"], port.get("appProtocol", "tcp"))
        for port in service["spec"]["ports"]
        if port.get("protocol", "TCP") != "UDP"
    ]


def http_ports(service: values.Manifest) -> list[int]:
    """Those of its ports over which HTTP is spoken; an alias has none."""
    if service["spec"].get("type") == "ExternalName":
        return []
    return [number for number, protocol in ports(service) if protocol in _HTTP]


def site(world: World, client: values.Client, authority: str) -> Site | None:
    """Whose requests those for an authority are; None when nobody has that host."""
    host, number = _split(authority)
    if client.port is not None:
        return _at_gateway(world, client, host)
    # A URL of http without a port means 80.
    port = 80 if number is None else number
    parent = _service(world, client.namespace, host, port) or _external(world, client, host, port)
    if parent is None:
        return None
    namespace, name = key(parent)
    prefix = "" if parent["kind"] == "Service" else "external:"
    place = f"{prefix}{name}.{namespace}:{port}"
    return Site(port, tuple(_of_parent(world, client.namespace, parent, port)), place, parent)


def _split(authority: str) -> tuple[str, int | None]:
    """Host in lower case and without trailing dot, and the port."""
    found = re.fullmatch(r"(.*?)(?::(\d+))?", values.without_trailing_dot(authority).lower())
    assert found is not None
    return found.group(1), int(found.group(2)) if found.group(2) else None


def _service(world: World, namespace: str, host: str, port: int) -> values.Manifest | None:
    """The service of that name or address; the short form is for its own namespace."""
    for service in sorted(of(world, "Service"), key=key):
        if port in http_ports(service) and host in _names(world, service, namespace):
            return service
    return None


def _names(world: World, service: values.Manifest, client: str | None) -> set[str]:
    """What clients in a namespace may write for a service; None is no namespace at all."""
    namespace, name = key(service)
    found = {f"{name}.{namespace}", f"{name}.{namespace}.svc"}
    found.add(f"{name}.{namespace}.svc.cluster.local")
    if namespace == client:
        found.add(name)
    address = service["spec"].get("clusterIP", "None")
    # Should two services claim one address, the first by namespace and name has it.
    claimants = [each for each in of(world, "Service") if each["spec"].get("clusterIP") == address]
    if address not in ("None", "") and service is min(claimants, key=key):
        found.add(address)
    return found


def _external(world: World, client: values.Client, host: str, port: int) -> values.Manifest | None:
    """The external service that keeps a host: the oldest, if no service of the mesh has it."""
    services = of(world, "Service")
    if any(host in _names(world, each, None) for each in services):
        return None
    if "." not in host and named(world, "Service", client.namespace, host):
        return None
    claimants = [
        each
        for each in of(world, "ExternalService")
        if host in [one.lower().rstrip(".") for one in each["spec"]["hosts"]]
    ]
    owner = min(claimants, key=age, default=None)
    if owner is None or port not in [one["number"] for one in owner["spec"]["ports"]]:
        return None
    return owner


def _of_parent(world: World, client: str, parent: values.Manifest, port: int) -> Iterable[Rule]:
    """The rules of a service: its own namespace's for all, others' for their own clients."""
    field = "service" if parent["kind"] == "Service" else "externalService"
    for rule in of(world, "RouteRule"):
        space = key(rule)[0]
        speaks = any(
            (each.get("namespace", space), each.get(field)) == key(parent)
            and each.get("port") in (None, port)
            for each in rule["spec"]["parents"]
        )
        if speaks and space == key(parent)[0]:
            yield Rule(PRODUCER, rule, _MESH)
        elif speaks and space == client:
            yield Rule(CONSUMER, rule, _MESH)


def _at_gateway(world: World, client: values.Client, host: str) -> Site | None:
    """The rules whose hosts are the most specific that the host has, at all listeners of a port."""
    assert client.port is not None
    by_host: dict[str, dict[tuple[str, str], set[str]]] = {}
    for gateway in of(world, "MeshGateway"):
        if key(gateway)[0] == client.namespace and _selects(gateway, client):
            for listener in gateway["spec"]["listeners"]:
                if listener["port"] == client.port:
                    for rule in _admitted(world, gateway, listener["name"]):
                        for one in _hosts(listener, rule):
                            ways = by_host.setdefault(one, {}).setdefault(key(rule), set())
                            ways.add(_way(gateway))
    domain = _most_specific(by_host, host)
    if domain is None:
        return None
    rules = [
        Rule(PRODUCER, rule, frozenset(by_host[domain][key(rule)]))
        for rule in of(world, "RouteRule")
        if key(rule) in by_host[domain]
    ]
    return Site(client.port, tuple(rules), f"{domain}:{client.port}")


def is_for(world: World, client: values.Client, rule: Rule, match: values.Manifest) -> bool:
    """Whether a match of a rule is for the requests of a client."""
    space = key(rule.manifest)[0]
    ways = _ways(rule.manifest, match)
    if ways and not ways & rule.ways:
        return False
    source = match.get("source", {})
    return (
        source.get("namespace") in (None, client.namespace)
        and set(source.get("labels", {}).items()) <= set(client.labels)
        and (
            "service" not in source
            or client.address in _members(world, source.get("namespace", space), source["service"])
        )
    )


def _members(world: World, namespace: str, name: str) -> set[str]:
    """Addresses of the endpoints of a service."""
    service = named(world, "Service", namespace, name)
    if service is None or not service["spec"].get("selector"):
        return set()
    wanted = set(service["spec"]["selector"].items())
    return {
        pod["status"]["podIP"]
        for pod in of(world, "Pod")
        if key(pod)[0] == namespace and wanted <= set(pod["metadata"]["labels"].items())
    }


def _way(gateway: values.Manifest) -> str:
    return "/".join(key(gateway))


def _selects(gateway: values.Manifest, client: values.Client) -> bool:
    return set(gateway["spec"]["selector"].items()) <= set(client.labels)


def _admitted(world: World, gateway: values.Manifest, listener: str) -> Iterable[values.Manifest]:
    allowed = gateway["spec"].get("allowedNamespaces") or [key(gateway)[0]]
    for rule in of(world, "RouteRule"):
        space = key(rule)[0]
        attached = any(
            (each.get("namespace", space), each.get("gateway")) == key(gateway)
            and each.get("listener") in (None, listener)
            for each in rule["spec"]["parents"]
        )
        # A rule that has no match for a gateway has no hosts there.
        if attached and ("*" in allowed or space in allowed) and _speaks_at(rule, _way(gateway)):
            yield rule


def _speaks_at(rule: values.Manifest, way: str) -> bool:
    routes = [*rule["spec"].get("http", ()), *rule["spec"].get("grpc", ())]
    matches = [match for route in routes for match in route.get("matches") or [{}]]
    return any(way in _ways(rule, match) or not match.get("gateways") for match in matches)


def _ways(rule: values.Manifest, match: values.Manifest) -> set[str]:
    """By which ways requests must come for a match; empty for any."""
    space = key(rule)[0]
    return {
        name if "/" in name or name == "mesh" else f"{space}/{name}"
        for name in match.get("gateways", ())
    }


def _hosts(listener: Any, rule: values.Manifest) -> set[str]:
    """The hosts of a rule at a listener: where both name some, what is common to them."""
    theirs = [host.lower() for host in listener.get("hosts", ("*",))]
    ours = [host.lower() for host in rule["spec"].get("hosts", theirs)]
    return {
        one if _covers(other, one) else other
        for one in ours
        for other in theirs
        if _covers(other, one) or _covers(one, other)
    }


def _covers(pattern: str, host: str) -> bool:
    """Whether every host of the second is one of the first; `*.` is one label or more."""
    return pattern in ("*", host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def _most_specific(patterns: Iterable[str], host: str) -> str | None:
    """Exact before wildcards, and the longest of these."""
    fitting = [each for each in patterns if each == host or _covers(each, host)]
    return max(fitting, key=lambda each: (each == host, len(each)), default=None)
