# SPDX-License-Identifier: Apache-2.0
"""What gRPC applications without a proxy are told, as routing plans it."""

import re

import pytest

from pilothouse.envoy import translate
from pilothouse.model import proxy
from pilothouse.routing import plan
from pilothouse.xds import types
from tests.support import meshes


def _application(name="client", address="10.0.9.9", **parts):
    namespace = name.partition(".")[2] or "default"
    node = proxy.NodeId(
        role=proxy.Role.GRPC, address=address, name=name.partition(".")[0], namespace=namespace
    )
    return proxy.Proxy(id=node, **parts)


def _planned(*known, of=None, **parts):
    return meshes.planned(meshes.mesh(*known, **parts), of or _application())


def _targets(whole):
    return {one.name: one for part in whole.proxyless for one in part.targets}


def _routes(match):
    """The matches that a rule's match becomes, without the default route."""
    route = f"{{matches: [{match}], destinations: [{{service: a}}]}}"
    spec = f"{{parents: [{{service: a}}], http: [{route}]}}"
    whole = _planned(meshes.service("a"), meshes.rule("r", spec))
    routes = _targets(whole)["a.default:9080"].routes
    return [one.route.match for one in routes if one.route.name.startswith("RouteRule/")]


def test_a_service_is_dialled_by_its_names():
    """Those that a sidecar would take; not by its address, and by its short name at home only."""
    service = meshes.service("a.shop", 80, cluster_ips=("10.1.0.1", "fd00::1"))
    there = _targets(_planned(service))["a.shop:80"].authorities
    hosts = ["a.shop", "a.shop.svc", "a.shop.svc.cluster.local"]
    assert there == tuple(sorted([*hosts, *(f"{host}:80" for host in hosts)]))
    home = _targets(_planned(service, of=_application("client.shop")))["a.shop:80"].authorities
    assert set(home) - set(there) == {"a", "a:80"}


@pytest.mark.parametrize(
    ("match", "taken", "not_taken"),
    [
        ("{path: {prefix: /p.S}}", ["/p.S", "/p.S/M"], ["/pXS/M", "/p.Ser/M", "/q/p.S"]),
        ("{path: {prefix: /p.S, ignoreCase: true}}", ["/P.s/M"], ["/P.st/M"]),
        ("{path: {template: '/*/{method}'}}", ["/p.S/M"], ["/p.S", "/p.S/M/x"]),
        ("{path: {template: '/p.S/**'}}", ["/p.S/M", "/p.S/M/x"], ["/pXS/M"]),
    ],
)
def test_paths_become_expressions(match, taken, not_taken):
    """Where gRPC has no word for a kind of path (A28): whole paths must match, as RE2 would."""
    (found,) = _routes(match)
    assert (found.path_kind, found.ignore_case) == ("regex", False)
    assert [path for path in (*taken, *not_taken) if re.fullmatch(found.path, path)] == taken


@pytest.mark.parametrize("kind", ["exact", "stringPrefix", "regex"])
def test_other_paths_stay(kind):
    """gRPC has prefix, path and expression."""
    (found,) = _routes(f"{{path: {{{kind}: /p.S/M}}}}")
    assert found.path == "/p.S/M"


@pytest.mark.parametrize(
    "match",
    [
        "{method: GET}",
        "{queryParameters: [{name: q, exact: x}]}",
        "{scheme: https}",
        "{authority: {exact: a.example}}",
    ],
)
def test_what_no_call_can_match_is_left_out(match):
    """A route that gRPC would misread must not take calls that are not meant for it."""
    assert _routes(match) == []


def test_what_every_call_matches_is_not_said():
    """All calls are POSTs without a query."""
    (found,) = _routes("{method: POST, queryParameters: [{name: q, present: false}]}")
    assert found == plan.RouteMatch()


def test_an_inverted_test_holds_for_an_absent_header():
    """gRPC lets no test of an absent header hold but that for absence, so there are two routes."""
    first, second = _routes("{headers: [{name: h, exact: x, invert: true}]}")
    assert [(one.kind, one.invert) for one in first.headers] == [("exact", True)]
    assert [(one.kind, one.invert) for one in second.headers] == [("absent", False)]


def test_what_is_external_has_endpoints_or_one_name():
    """Addresses come by EDS, which is all that gRPC has for them."""
    whole = _planned(
        meshes.external(
            "fixed",
            "{hosts: [f.example], resolution: STATIC, ports: [{number: 80}],"
            " endpoints: [{address: 10.9.9.9}]}",
        ),
        meshes.external("named", "{hosts: [n.example], ports: [{number: 80}]}"),
    )
    (clients, _) = whole.proxyless
    by_name = {one.key.service.name: one for one in clients.clusters}
    assert by_name["fixed"].resolution == "eds"
    assert by_name["named"].resolution == "dns"
    (assigned,) = clients.endpoints
    assert [one.addresses for one in assigned.localities] == [
        (plan.Address(host="10.9.9.9", port=80),)
    ]


def test_an_application_serves_the_ports_of_its_services():
    """Asked for by its own address, or by any."""
    whole = _planned(
        meshes.service("a"),
        endpoints={"a": [meshes.endpoint("10.0.9.9", 50051)]},
    )
    (_, servers) = whole.proxyless
    assert [(one.host, one.port) for one in servers.servers] == [
        ("0.0.0.0", 50051),
        ("10.0.9.9", 50051),
        ("::", 50051),
    ]


def test_applications_of_one_namespace_share_what_they_send():
    """The very same objects, resources and all."""
    mesh = meshes.mesh(meshes.service("a"), endpoints={"a": [meshes.endpoint("10.0.9.9", 50051)]})
    one, other = (
        meshes.planned(mesh, _application(address=address)) for address in ("10.0.9.8", "10.0.9.9")
    )
    assert one.proxyless[0] is other.proxyless[0]
    translator = translate.Translator()
    first, second = (translator.snapshot(each, {}) for each in (one, other))
    assert first.layers[:2] == second.layers[:2]
    assert first.missing_references() == second.missing_references() == ()
    assert "a.default:9080" in first.resources(types.LISTENER.type_url)
