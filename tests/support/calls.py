# SPDX-License-Identifier: Apache-2.0
"""What becomes of a call at a proxy: a small evaluator of plans, for tests that state an intent.

It is written from what the plan documents and from how Envoy chooses a virtual host (exact domain,
then the longest `*.` suffix, then `*`; the first matching route), and shares no code with routing.
It fails when a plan is not whole: a cluster that no layer has, endpoints that are missing.
"""

import dataclasses
import re
from collections.abc import Mapping
from fractions import Fraction

from pilothouse.routing import plan
from tests.support import connections

HTTP_PROXY = "http-proxy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """A request as it arrives at a listener."""

    authority: str
    """Host, with port where the client wrote one."""
    path: str = "/"
    method: str = "GET"
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Names in lower case."""
    listener: str = HTTP_PROXY
    server_name: str | None = None
    """That of the connection, where there is TLS."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What becomes of a call."""

    status: int = 0
    """Of an answer that the proxy gives itself; 0 when it sends the request on."""
    route: str = ""
    """Name of the route; empty when none matches."""
    shares: Mapping[str, Fraction] = dataclasses.field(default_factory=dict)
    """By cluster as `label` writes it, the share of such requests; `nowhere` is answered 500."""
    addresses: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """By cluster, where its requests go, HOST:PORT; a cluster without any is answered 503."""
    redirect: plan.Redirect | None = None
    body: str = ""

    @property
    def cluster(self) -> str:
        """The only cluster that such requests reach."""
        (only,) = self.shares
        return only


def label(key: plan.ClusterKey | None) -> str:
    """A cluster for people: `reviews.default:9080 version=v1`, `app:8080`, `external ...`."""
    if key is None:
        return "nowhere"
    if key.service is None:
        return f"app:{key.port}"
    parts = [f"{key.service.name}.{key.service.namespace}:{key.port}"]
    parts += [f"{name}={value}" for name, value in key.labels]
    parts += [f"as {key.scope}"] if key.scope else []
    return " ".join((["external"] if key.external else []) + parts)


def send(whole: plan.ProxyPlan | plan.NotReady, call: Call) -> Outcome:
    """Walk a plan for a call.

    LookupError when the proxy does not listen there, ConnectionError when it closes the connection.
    """
    assert isinstance(whole, plan.ProxyPlan), whole
    listeners = {one.name: one for layer in whole.layers for one in layer.listeners}
    listener = listeners[call.listener]
    configurations = {one.name: one for layer in whole.layers for one in layer.route_configurations}
    named = connections.Connection(server_name=call.server_name)
    chain = connections.chosen(listener, named)
    if chain is None:
        raise ConnectionResetError(f"{call.listener} has no chain for {call.server_name}")
    assert isinstance(chain.serves, plan.Http), chain
    configuration = configurations[chain.serves.route_configuration]
    authority = call.authority.lower()
    if chain.serves.strip_port:
        authority = re.sub(r":\d+$", "", authority)
    host = _virtual_host(configuration, authority)
    for route in host.routes if host else ():
        if _matches(route.match, call):
            return _outcome(whole, route)
    return Outcome(status=404)


def get(whole: plan.ProxyPlan | plan.NotReady, url: str, **headers: str) -> Outcome:
    """Send `GET http://AUTHORITY/PATH` to a sidecar's HTTP proxy; `_` in a header is `-`."""
    authority, slash, path = url.removeprefix("http://").partition("/")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return send(whole, Call(authority=authority, path=slash + path or "/", headers=named))


def visit(whole: plan.ProxyPlan | plan.NotReady, url: str, port: int = 80) -> Outcome:
    """Send `GET http://AUTHORITY/PATH` to a port of a gateway."""
    authority, slash, path = url.removeprefix("http://").partition("/")
    return send(
        whole, Call(authority=authority, path=slash + path or "/", listener=f"gateway|{port}")
    )


def _virtual_host(
    configuration: plan.RouteConfiguration, authority: str
) -> plan.VirtualHost | None:
    owners: dict[str, plan.VirtualHost] = {}
    for host in configuration.virtual_hosts:
        for domain in host.domains:
            assert domain not in owners, f"{domain} is in two virtual hosts"
            owners[domain] = host
    if authority in owners:
        return owners[authority]
    suffixes = [
        domain for domain in owners if domain.startswith("*.") and authority.endswith(domain[1:])
    ]
    return owners[max(suffixes, key=len)] if suffixes else owners.get("*")


def _matches(match: plan.RouteMatch, call: Call) -> bool:
    path, _, query = call.path.partition("?")
    wanted = match.path
    if match.ignore_case:
        path, wanted = path.lower(), wanted.lower()
    paths = {
        "any": True,
        "connect": False,  # no call is a CONNECT
        "exact": path == wanted,
        "prefix": path == wanted or path.startswith(wanted + "/"),
        "string_prefix": path.startswith(wanted),
        "template": match.path_kind == "template" and _template(wanted, path),
        "regex": match.path_kind == "regex" and re.fullmatch(wanted, path) is not None,
    }
    return (
        paths[match.path_kind]
        and match.method in ("", call.method)
        and all(_header(header, call) for header in match.headers)
        and all(_query(parameter, query) for parameter in match.query)
    )


def _template(template: str, path: str) -> bool:
    wanted, given = template.split("/"), path.split("/")
    if wanted[-1] == "**" or wanted[-1].endswith("=**}"):
        wanted, given = wanted[:-1], given[: len(wanted) - 1]
    return len(wanted) == len(given) and all(
        bool(there) if one == "*" or one.startswith("{") else one == there
        for one, there in zip(wanted, given, strict=True)
    )


def _header(header: plan.HeaderMatch, call: Call) -> bool:
    value = call.authority if header.name == ":authority" else call.headers.get(header.name)
    match header.kind:
        case "absent":
            return value is None
        case "present":
            return value is not None
        case "range":
            number = re.fullmatch("-?[0-9]+", value or "")
            holds = number is not None and header.low <= int(number.group()) <= header.high
        case kind:
            holds = value is not None and _text(kind, header.value, value, header.ignore_case)
    return holds is not header.invert


def _query(parameter: plan.QueryMatch, query: str) -> bool:
    pairs = [part.partition("=")[::2] for part in query.split("&")]
    value = next((value for name, value in pairs if name == parameter.name), None)
    if parameter.kind == "absent" or value is None:
        return (value is None) == (parameter.kind == "absent")
    return parameter.kind == "present" or _text(parameter.kind, parameter.value, value)


def _text(kind: str, wanted: str, value: str, ignore_case: bool = False) -> bool:  # noqa: FBT001, FBT002
    if kind == "regex":
        return re.fullmatch(wanted, value) is not None
    if ignore_case:
        wanted, value = wanted.lower(), value.lower()
    return {
        "exact": value == wanted,
        "prefix": value.startswith(wanted),
        "suffix": value.endswith(wanted),
        "contains": wanted in value,
    }[kind]


def _outcome(whole: plan.ProxyPlan, route: plan.Route) -> Outcome:
    match route.action:
        case plan.DirectResponse(status=status, body=body):
            return Outcome(status=status, route=route.name, body=body)
        case plan.Redirect(code=code):
            return Outcome(status=code, route=route.name, redirect=route.action)
        case plan.Forward(clusters=clusters):
            total = sum(share.weight for share in clusters)
            assert total > 0, route
            return Outcome(
                route=route.name,
                shares={label(share.cluster): Fraction(share.weight, total) for share in clusters},
                addresses={
                    label(share.cluster): addresses(whole, share.cluster)
                    for share in clusters
                    if share.cluster is not None
                },
            )


def addresses(whole: plan.ProxyPlan, key: plan.ClusterKey) -> tuple[str, ...]:
    """Where the requests of a cluster go."""
    clusters = {one.key: one for layer in whole.layers for one in layer.clusters}
    cluster = clusters[key]
    if cluster.resolution != "eds":
        return tuple(f"{one.host}:{one.port}" for one in cluster.addresses)
    assigned = {one.key: one for layer in whole.layers for one in layer.endpoints}
    return tuple(
        sorted(
            f"{one.host}:{one.port}"
            for locality in assigned[key].localities
            for one in locality.addresses
        )
    )
