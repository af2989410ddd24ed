# SPDX-License-Identifier: Apache-2.0
"""Worlds and requests out of thin air.

The words are few: hosts, paths, headers and names of rules and requests meet each other often.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.support import reference_rules as rules
from tests.support import reference_values as values

World = Sequence[values.Manifest]
EDGE = (("app", "edge"),)
NAMESPACES = ("default", "shop", "team")
CLIENTS = (
    *(values.Client(namespace=namespace) for namespace in NAMESPACES),
    values.Client(
        namespace="default",
        labels=(("app", "reviews"), ("version", "v1")),
        address="10.0.0.1",
    ),
    values.Client(
        namespace="shop", labels=(("app", "cart"), ("version", "v2")), address="10.0.0.4"
    ),
)
API = "pilothouse.dev/v1alpha1"


def service(
    name: str, namespace: str, *ports: tuple[int, str], address: str = "None", **spec: Any
) -> dict[str, Any]:
    """A Service with ports NUMBER, PROTOCOL; it selects app=NAME, its targets are 1000 higher."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"app": name},
            "clusterIP": address,
            "ports": [
                {
                    "name": f"port-{number}",
                    "port": number,
                    "targetPort": number + 1000,
                    "appProtocol": protocol,
                }
                for number, protocol in ports
            ],
            **spec,
        },
    }


def pod(name: str, namespace: str, version: str, address: str) -> dict[str, Any]:
    """A Pod with app=NAME and a version."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{version}",
            "namespace": namespace,
            "labels": {"app": name, "version": version},
        },
        "spec": {"containers": [{"name": "app"}]},
        "status": {"podIP": address},
    }


def _object(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name, **({"namespace": "default"} | metadata)},
        "spec": spec,
    }


def _external(
    name: str, hosts: list[str], address: str, *ports: int, created: str = "", closed: bool = False
) -> dict[str, Any]:
    """An ExternalService at one address; its targets are 1000 higher."""
    spec: dict[str, Any] = {
        "hosts": hosts,
        "ports": [{"number": port, "targetPort": port + 1000} for port in ports],
        "resolution": "STATIC",
        "endpoints": [{"address": address}],
    }
    if closed:
        spec["throughEgressGateway"] = True
    made = {"creationTimestamp": f"{created}T00:00:00Z"} if created else {}
    return _object("ExternalService", name, spec, **made)


ALWAYS: World = (
    service("reviews", "default", (80, "http"), (9080, "http"), address="10.96.0.1"),
    service("reviews", "shop", (80, "http"), address="10.96.0.2"),
    service("ratings", "default", (80, "http"), (8080, "http"), (5432, "tcp")),
    pod("reviews", "default", "v1", "10.0.0.1"),
    pod("reviews", "default", "v2", "10.0.0.2"),
    pod("ratings", "default", "v1", "10.0.0.3"),
)
SOMETIMES: World = (
    service("cart", "shop", (8080, "http"), (5432, "tcp"), address="10.96.0.1"),
    pod("cart", "shop", "v2", "10.0.0.4"),
    service("alias", "default", (80, "http"), type="ExternalName", externalName="a.com"),
    _external("api", ["API.example"], "10.0.0.8", 80),
    _external(
        "rival", ["api.example", "reviews.shop", "cart"], "10.0.0.9", 80, created="2026-01-01"
    ),
    _external("bank", ["bank.example"], "10.0.0.10", 80, 8080, closed=True),
)


def _gateway(name: str, listeners: Sequence[dict[str, Any]], allowed: list[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"selector": dict(EDGE), "listeners": [*listeners]}
    return _object(
        "MeshGateway", name, {**spec, **({"allowedNamespaces": allowed} if allowed else {})}
    )


def _listener(name: str, port: int, *hosts: str) -> dict[str, Any]:
    made = {"name": name, "port": port, "protocol": "HTTP"}
    return {**made, "hosts": [*hosts]} if hosts else made


_OTHER = _listener("other", 8080)
_EDGES = [
    _gateway("edge", [_listener("web", 80, *hosts), _OTHER], allowed)
    for allowed in (["*"], ["*"], [], ["default", "shop"])
    for hosts in ((), ("*.A.com", "c.org"), ("*",))
]
_SECOND = _gateway("second", [_listener("more", 80, "b.a.com")], ["*"])

_MESH_HOSTS = (
    *("reviews.default", "reviews", "reviews.default:9080", "REVIEWS.Default.svc:80"),
    *("reviews.default.svc.cluster.local", "reviews.default.svc.", "10.96.0.1", "10.96.0.1:9080"),
    *("reviews.shop", "reviews.shop:80", "cart.shop:8080", "cart", "ratings.default:8080"),
    *("api.example", "Api.example.:80", "bank.example:8080", "nobody", "ratings.default:5432"),
)
_EDGE_HOSTS = (
    *("a.com", "A.com:80", "b.a.com", "x.b.a.com", "x.a.com:8080", "a.com.", "b.a.com.:1"),
    *("a.com", "c.org", "b.a.com", "xa.com"),
)
_REVIEWS = ({"service": "reviews", "namespace": "default"}, _MESH_HOSTS[:8])
_FOCUS: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    _REVIEWS,
    ({"gateway": "edge", "namespace": "default"}, _EDGE_HOSTS),
    ({"service": "reviews", "namespace": "default", "port": 80}, _MESH_HOSTS[:8]),
    ({"gateway": "edge", "namespace": "default", "listener": "web"}, _EDGE_HOSTS),
    ({"service": "reviews"}, (*_MESH_HOSTS[:4], "reviews.shop")),
    ({"service": "cart", "namespace": "shop"}, ("cart.shop:8080", "cart")),
    ({"externalService": "api", "namespace": "default"}, ("api.example", "Api.example.:80")),
    ({"gateway": "second", "namespace": "default"}, _EDGE_HOSTS),
)
"""Parents of rules, with the hosts to ask for so that these rules are met."""
_TO_PARENT = rules.pool(lambda source: source.http_route(itself=True), 500)
_AT_GATEWAY = rules.pool(lambda source: source.http_route(itself=False), 500)
_CALLS = rules.pool(lambda source: source.grpc_route(), 100)
_HOSTS = (
    (),
    ("*",),
    ("*.a.com", "a.com"),
    ("b.a.com", "*"),
    ("*.b.a.com",),
    ("A.com", "c.org"),
    (),
)
_AGES = ("", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")

Asked = Sequence[tuple[values.Client, values.Request]]
Case = tuple[World, Asked]


class _Bytes:
    """Choices, taken from bytes; as these go to 0, choices go to the first and simplest."""

    def __init__(self, given: bytes) -> None:
        self._given = iter(given)

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of several."""
        high, low = next(self._given), next(self._given)
        return choices[(high << 8 | low) % len(choices)]


def _rule(name: str, source: _Bytes, parents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    chosen = source.pick((parents[:1], parents))
    at_gateway = any("gateway" in parent for parent in chosen)
    spec: dict[str, Any] = {"parents": [*chosen]}
    hosts = source.pick(_HOSTS)
    if at_gateway and hosts:
        spec["hosts"] = [*hosts]
    priority = source.pick((0, 0, 0, 0, 1, -1))
    if priority:
        spec["priority"] = priority
    routes = _AT_GATEWAY if at_gateway else _TO_PARENT
    count = source.pick((1, 2, 3))
    spec["http"] = [dict(source.pick(routes)) for _ in range(count)]
    for number, route in enumerate(spec["http"]):
        if "name" in route:
            route["name"] = f"route-{number}"
    spec |= source.pick(({}, {}, {"grpc": [copy.deepcopy(source.pick(_CALLS))]}))
    for route in (*spec["http"], *spec.get("grpc", ())):
        route.update(source.pick(({}, {}, {"matches": _for_some(route, source, chosen)})))
    age = source.pick(_AGES)
    made = {"creationTimestamp": age} if age else {}
    return _object("RouteRule", name, spec, namespace=source.pick(NAMESPACES), **made)


def _for_some(
    route: dict[str, Any], source: _Bytes, parents: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The matches of a route, for some clients only."""
    gateways = [f"default/{each['gateway']}" for each in parents if "gateway" in each]
    ways: list[dict[str, Any]] = [{"gateways": [each]} for each in gateways]
    if len(gateways) < len(parents):
        ways += [{"gateways": ["mesh"]}]
        ways += [{"source": each, "gateways": ["mesh"]} for each in _SOURCES]
    if not gateways:
        ways += [{"source": each} for each in _SOURCES]
    return [{**match, **source.pick(ways)} for match in route.get("matches") or [{}]]


_SOURCES: tuple[dict[str, Any], ...] = (
    {"namespace": "shop"},
    {"labels": {"version": "v1"}},
    {"service": "reviews"},
    {"service": "reviews", "namespace": "default"},
    {"service": "cart", "namespace": "shop", "labels": {"version": "v2"}},
)
_KNOWN_PATHS = (
    *("/", "/a", "/a/", "/A", "/a/b", "/ab", "/A/b", "/a/b/c", "/b", "//a", "/a/./b", "/b/../a"),
    *("/%61", "/a%2Fb", "/b/%2e%2E/a", "/a//../b", "/a\\b", "/a/.", "/x/y/..", "/a;b", "/a%20"),
)
_QUERIES = ("", "", "", "?p=1", "?p", "?p=12&q=one", "?q=&p=one", "?p=1&p=12", "?P=1")
_COOKIES = ("c=1", "b=2; c=12", "c=12; c=1", "cc=1", "c=one;b=1")
_CALLED = ("/shop.Cart/Add", "/shop.Cart/Get", "/shop/Add", "/a")


def _request(source: rules.Source) -> values.Request:
    """A request for no host yet."""
    found = ("1", "12", "one", "One", "2one", "")
    headers = [("x-a", source.pick(found)) for _ in range(source.pick((0, 1, 1, 2)))]
    headers += [("x-b", source.pick(found)) for _ in range(source.pick((0, 0, 1)))]
    cookie = source.rarely(lambda: source.pick(_COOKIES), one_of=4)
    headers += [("cookie", cookie)] if cookie else []
    method = source.pick(("GET", "GET", "POST", "OPTIONS"))
    path = source.pick(_KNOWN_PATHS) + source.pick(_QUERIES)
    match source.pick(("plain", "plain", "plain", "preflight", "grpc")):
        case "preflight":
            method = "OPTIONS"
            asked = ("access-control-request-method", source.pick(("GET", "POST")))
            headers += [("origin", "https://a.com"), asked]
        case "grpc":
            method, path = "POST", source.pick(_CALLED)
            headers.append(("content-type", "application/grpc"))
    return values.Request(
        authority="",
        path=path,
        method=method,
        scheme=source.pick(("http", "http", "http", "https")),
        headers=tuple(headers),
    )


_REQUESTS = rules.pool(_request, 1000)


def _case(shape: bytes, ruled: Sequence[bytes], asked: Sequence[bytes]) -> Case:
    source = _Bytes(shape)
    left_out = source.pick(range(2 ** len(SOMETIMES)))
    world = [*ALWAYS]
    world += [each for bit, each in enumerate(SOMETIMES) if not left_out >> bit & 1]
    world.append(source.pick(_EDGES))
    world += source.pick(([], [_SECOND]))
    focus = [source.pick(_FOCUS), source.pick(_FOCUS)]
    parents = [parent for parent, _ in focus]
    if parents[0] == parents[1]:
        parents.pop()
    world += [_rule(f"rule-{n}", _Bytes(given), parents) for n, given in enumerate(ruled)]
    hosts = [(parent, host) for parent, some in focus for host in some]
    return world, [_asked(_Bytes(given), hosts) for given in asked]


def _asked(
    source: _Bytes, hosts: Sequence[tuple[dict[str, Any], str]]
) -> tuple[values.Client, values.Request]:
    parent, host = source.pick(hosts)
    host = source.pick((*(host,) * 12, source.pick((*_MESH_HOSTS, *_EDGE_HOSTS))))
    if "gateway" in parent:
        port = source.pick((80, 80, 8080))
        client = values.Client(namespace="default", labels=EDGE, port=port)
    else:
        client = source.pick(CLIENTS)
    return client, dataclasses.replace(source.pick(_REQUESTS), authority=host)


def cases(*, requests: int = 20, most: int = 6) -> st.SearchStrategy[Case]:
    """Worlds of one to `most` rules, which have few parents, and requests that meet them."""
    return st.builds(
        _case,
        st.binary(min_size=10, max_size=10),
        st.lists(st.binary(min_size=64, max_size=64), min_size=1, max_size=most),
        st.lists(st.binary(min_size=10, max_size=10), min_size=requests, max_size=requests),
    )


def case(seed: int, *, requests: int = 20, rules: int = 4) -> Case:
    """One of these, the same for the same seed."""
    source = random.Random(seed)
    return _case(
        source.randbytes(10),
        [source.randbytes(64) for _ in range(rules)],
        [source.randbytes(10) for _ in range(requests)],
    )


def key(manifest: values.Manifest) -> tuple[str, str]:
    """Namespace and name."""
    metadata = manifest["metadata"]
    return metadata.get("namespace", "default"), metadata["name"]


def copied(world: World) -> list[Any]:
    """The same manifests, to be changed."""
    return [copy.deepcopy(each) for each in world]
