# SPDX-License-Identifier: Apache-2.0
"""Where requests go that arrive at a gateway."""

import pytest

from pilothouse.model import keys
from tests.support import calls, meshes

EDGE = "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP}]}"
GATEWAY = meshes.gateway("edge", EDGE)
SHOP, CART, ADMIN = (meshes.service(name, 8080) for name in ("shop", "cart", "admin"))
INGRESS = keys.ObjectKey("Ingress", "default", "shop")


def attached(hosts: str, *http: str, name: str = "shop", **meta: object):
    """A rule at the gateway; each route is MATCH -> SERVICE."""
    routes = []
    for one in http:
        match, _, service = one.partition(" -> ")
        matches = f"matches: [{match}], " if match else ""
        routes.append(f"{{{matches}destinations: [{{service: {service}}}]}}")
    space = "" if "." not in name else ", namespace: default"
    return meshes.rule(
        name,
        f"{{parents: [{{gateway: edge{space}}}], hosts: {hosts}, http: [{', '.join(routes)}]}}",
        **meta,
    )


def visit(url: str, *known: object, port: int = 80) -> calls.Outcome:
    mesh = meshes.mesh(GATEWAY, SHOP, CART, ADMIN, *known)
    return calls.visit(mesh.plan(meshes.edge()), url, port)


@pytest.mark.parametrize(
    ("path", "service"),
    [
        ("/foo", "exact"),
        ("/foo/", "prefix"),
        ("/foo/bar", "prefix"),
        ("/foobar", "all"),
        ("/FOO", "all"),
        ("/", "all"),
        ("/aaa/bbb", "long"),
        ("/aaa/bbb/", "long"),
        ("/aaa/bbb/ccc", "long"),
        ("/aaa/bbbxyz", "short"),
        ("/aaa/ccc", "short"),
        ("/v1/users", "regex"),
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_paths(path: str, service: str, *, backwards: bool):
    """Kubernetes' own table; a catch-all that is declared first takes only the rest."""
    routes = [
        "{path: {prefix: /}} -> all",
        "{path: {regex: '/v[0-9]+/.*'}} -> regex",
        "{path: {prefix: /foo}} -> prefix",
        "{path: {exact: /foo}} -> exact",
        "{path: {prefix: /aaa}} -> short",
        "{path: {prefix: /aaa/bbb/}} -> long",
    ]
    known = [
        meshes.service(name, 8080) for name in ["all", "regex", "prefix", "exact", "short", "long"]
    ]
    rule = attached("[shop.example.com]", *(routes[::-1] if backwards else routes))
    outcome = visit(f"http://shop.example.com{path}", *known, rule)
    assert outcome.cluster == f"{service}.default:8080"


def test_the_longer_of_two_prefixes_that_differ_by_a_slash():
    """Both mean the same elements; the longest written path wins, as in Kubernetes' table."""
    rule = attached("[a.com]", "{path: {prefix: /foo}} -> shop", "{path: {prefix: /foo/}} -> cart")
    for path in ("/foo", "/foo/", "/foo/bar"):
        assert visit(f"http://a.com{path}", rule).cluster == "cart.default:8080"


@pytest.mark.parametrize(
    ("authority", "service"),
    [
        ("shop.example.com", "shop"),
        ("SHOP.example.com:80", "shop"),
        ("cart.example.com", "cart"),
        ("a.b.example.com", "cart"),
        ("a.eu.example.com", "admin"),
        ("example.com", ""),
        ("elsewhere.org", ""),
    ],
)
def test_the_most_specific_host_wins(authority: str, service: str):
    """Exact before the longest wildcard; case and port of the Host header do not count."""
    outcome = visit(
        f"http://{authority}/",
        attached("['*.example.com']", " -> cart", name="wide"),
        attached("[shop.example.com]", " -> shop", name="exact"),
        attached("['*.eu.example.com']", " -> admin", name="longer"),
    )
    assert outcome.status == (0 if service else 404)
    assert [*outcome.shares] == ([f"{service}.default:8080"] if service else [])


def test_no_fall_through_from_a_host_to_its_wildcard():
    """A host that has rules has no others: what they do not match is 404."""
    wide = attached("['*']", " -> cart", name="wide")
    exact = attached("[a.com]", "{path: {prefix: /x}} -> shop", name="exact")
    assert visit("http://a.com/other", wide, exact).status == 404
    assert visit("http://b.com/other", wide, exact).cluster == "cart.default:8080"


def test_wildcards_of_ingress_match_one_label():
    """A derived rule says so by a test of the authority."""
    one_label = "{headers: [{name: ':authority', regex: '[^.]+\\.foo\\.com(:[0-9]+)?'}]}"
    rule = attached("['*.foo.com']", f"{one_label} -> shop", origins=(INGRESS,))
    assert visit("http://bar.foo.com/", rule).cluster == "shop.default:8080"
    assert visit("http://baz.bar.foo.com/", rule).status == 404
    assert visit("http://foo.com/", rule).status == 404


def test_rules_of_many_objects_share_a_host():
    """One host, many rules, one order: the longest path wins, whoever wrote it."""
    rules = [
        attached("[a.com]", " -> shop", name="all"),
        attached("[a.com]", "{path: {prefix: /cart}} -> cart", name="cart.team", created=9),
    ]
    gateway = meshes.gateway("edge", EDGE[:-1] + ", allowedNamespaces: ['*']}")
    cart = meshes.service("cart.team", 8080)
    assert visit("http://a.com/cart", gateway, cart, *rules).cluster == "cart.team:8080"
    assert visit("http://a.com/", gateway, cart, *rules).cluster == "shop.default:8080"


def test_the_older_of_two_equal_matches_wins():
    """Then namespace and name decide; the loser is told who won."""
    young = attached("[a.com]", " -> shop", name="a", created=2)
    old = attached("[a.com]", " -> cart", name="b", created=1)
    assert visit("http://a.com/", young, old).cluster == "cart.default:8080"
    tie = attached("[a.com]", " -> cart", name="b", created=2)
    assert visit("http://a.com/", young, tie).cluster == "shop.default:8080"
    mesh = meshes.mesh(GATEWAY, SHOP, CART, young, old)
    lost = meshes.condition(mesh, "RouteRule", "a", "Conflicted")
    assert lost.status is True
    assert "RouteRule/default/b" in lost.message
    assert "a.com" in lost.message
    assert meshes.condition(mesh, "RouteRule", "b", "Conflicted") is None


def test_priority_goes_before_precedence():
    """A higher priority wins over an exact path."""
    exact = attached("[a.com]", "{path: {exact: /x}} -> shop", name="exact")
    first = meshes.rule(
        "first",
        "{parents: [{gateway: edge}], hosts: [a.com], priority: 1,"
        " http: [{destinations: [{service: cart}]}]}",
    )
    assert visit("http://a.com/x", exact, first).cluster == "cart.default:8080"


def test_methods_and_headers_go_before_none():
    """Among equal paths: a method first, then more headers."""
    rule = attached(
        "[a.com]",
        "{path: {prefix: /x}} -> shop",
        "{path: {prefix: /x}, headers: [{name: a, present: true}]} -> cart",
        "{path: {prefix: /x}, method: GET} -> admin",
    )
    mesh = meshes.mesh(GATEWAY, SHOP, CART, ADMIN, rule)
    found = [
        calls.send(
            mesh.plan(meshes.edge()),
            calls.Call(
                authority="a.com",
                path="/x",
                method=method,
                headers={"a": "1"} if header else {},
                listener="gateway|80",
            ),
        ).cluster
        for method, header in (("GET", True), ("GET", False), ("PUT", True), ("PUT", False))
    ]
    assert found == [f"{name}.default:8080" for name in ("admin", "admin", "cart", "shop")]


def test_a_listener_without_routes_answers_404():
    """It is there, and has nothing to say."""
    assert visit("http://a.com/").status == 404


def test_a_rule_without_hosts_serves_those_of_the_listener():
    """And a rule with hosts only those that both have."""
    gateway = meshes.gateway(
        "edge",
        "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP,"
        " hosts: ['*.example.com', b.org]}]}",
    )
    every = meshes.rule(
        "every", "{parents: [{gateway: edge}], http: [{destinations: [{service: shop}]}]}"
    )
    some = attached("[a.example.com, c.org, '*.org']", " -> cart", name="some", created=1)
    for host, status in {
        "x.example.com": 0,
        "a.example.com": 0,
        "b.org": 0,
        "c.org": 404,
        "x.org": 404,
    }.items():
        assert visit(f"http://{host}/", gateway, every, some).status == status, host
    assert visit("http://a.example.com/", gateway, some).cluster == "cart.default:8080"
    assert visit("http://x.example.com/", gateway, some).status == 404


def test_a_rule_may_pick_a_listener():
    """`listener` of a parent narrows the rule."""
    gateway = meshes.gateway(
        "edge",
        "{selector: {app: edge}, listeners: [{name: one, port: 80, protocol: HTTP},"
        " {name: two, port: 8080, protocol: HTTP}]}",
    )
    rule = meshes.rule(
        "shop",
        "{parents: [{gateway: edge, listener: two}], http: [{destinations: [{service: shop}]}]}",
    )
    assert visit("http://a.com/", gateway, rule).status == 404
    assert visit("http://a.com/", gateway, rule, port=8080).cluster == "shop.default:8080"


@pytest.mark.parametrize(
    ("allowed", "works"), [("", False), ("[team]", True), ("['*']", True), ("[other]", False)]
)
def test_who_may_attach(allowed: str, *, works: bool):
    """Unset means the gateway's own namespace; who is not allowed is told so."""
    gateway = meshes.gateway(
        "edge", EDGE[:-1] + (f", allowedNamespaces: {allowed}}}" if allowed else "}")
    )
    rule = attached("[a.com]", " -> shop", name="shop.team")
    known = (gateway, meshes.service("shop.team", 8080), rule)
    outcome = visit("http://a.com/", *known)
    assert outcome.status == (0 if works else 404)
    told = meshes.condition(meshes.mesh(*known), "RouteRule", "shop.team")
    assert told.status is works
    assert works or told.reason == "NotAllowedByListeners"


def test_only_proxies_that_a_selector_picks_serve_a_gateway():
    """In the gateway's own namespace."""
    mesh = meshes.mesh(GATEWAY)
    assert meshes.planned(mesh, meshes.edge()).layers[0].listeners
    for other in (meshes.edge("other"), meshes.edge("edge.team")):
        assert not meshes.planned(mesh, other).layers[0].listeners


@pytest.mark.parametrize(("origins", "status"), [((), 500), ((INGRESS,), 503)])
def test_a_destination_that_does_not_exist(origins: tuple[keys.ObjectKey, ...], status: int):
    """500 by the Gateway API, 503 for an Ingress; strangers are not told what is missing."""
    outcome = visit("http://a.com/", attached("[a.com]", " -> missing", origins=origins))
    assert (outcome.status, outcome.body) == (status, "")


def test_a_broken_path_does_not_fall_to_a_shorter_one():
    """Its traffic is not given to another backend."""
    rule = attached("[a.com]", "{path: {prefix: /x}} -> missing", " -> shop")
    assert visit("http://a.com/x", rule).status == 500
    assert visit("http://a.com/y", rule).cluster == "shop.default:8080"


def test_a_service_without_protocol_is_reached_over_http():
    """Services behind an Ingress seldom name their ports; the rule says what is spoken."""
    plain = meshes.service("plain", meshes.port(8000, "", meshes.services.AppProtocol.TCP))
    mesh = meshes.mesh(
        GATEWAY,
        plain,
        attached("[a.com]", " -> plain"),
        endpoints={"plain": [meshes.endpoint("10.0.0.5", 8000, "")]},
    )
    outcome = calls.visit(mesh.plan(meshes.edge()), "http://a.com/")
    assert outcome.addresses == {"plain.default:8000": ("10.0.0.5:8000",)}


def test_an_external_service_behind_a_gateway():
    """A gateway sends straight to it, also when sidecars may not."""
    bank = meshes.external(
        "bank",
        "{hosts: [bank.example], ports: [{number: 80, targetPort: 8443}],"
        " throughEgressGateway: true}",
    )
    rule = meshes.rule(
        "bank",
        "{parents: [{gateway: edge}], hosts: [bank.example],"
        " http: [{destinations: [{externalService: bank}]}]}",
    )
    outcome = visit("http://bank.example/", bank, rule)
    assert outcome.addresses == {"external bank.default:80": ("bank.example:8443",)}


def test_a_rule_at_two_gateways_that_share_a_port():
    """Each match is for its gateway; both are for a host that both have."""
    second = meshes.gateway(
        "second",
        "{selector: {app: edge}, listeners: [{name: http, port: 80, protocol: HTTP,"
        " hosts: [b.com]}]}",
    )
    rule = meshes.rule(
        "both",
        """{parents: [{gateway: edge}, {gateway: second}], hosts: [a.com, b.com], http: [
          {matches: [{path: {exact: /one}, gateways: [second]},
            {path: {exact: /two}, gateways: [edge]}], destinations: [{service: shop}]},
          {matches: [{path: {exact: /three}, gateways: [edge]}],
            destinations: [{service: cart}]}]}""",
    )
    found = {
        f"{host}{path}": visit(f"http://{host}{path}", second, rule).status
        for host in ("a.com", "b.com")
        for path in ("/one", "/two", "/three")
    }
    assert found == {
        "a.com/one": 404,
        "a.com/two": 0,
        "a.com/three": 0,
        "b.com/one": 0,
        "b.com/two": 0,
        "b.com/three": 0,
    }


def test_rules_of_services_do_not_apply_at_gateways():
    """A destination is a plain service there."""
    mesh_rule = meshes.rule(
        "inside", "{parents: [{service: shop}], http: [{destinations: [{service: cart}]}]}"
    )
    outcome = visit("http://a.com/", mesh_rule, attached("[a.com]", " -> shop"))
    assert outcome.cluster == "shop.default:8080"


def test_a_policy_of_the_gateways_namespace_is_its_own():
    """A gateway is a client like others."""
    gateway = meshes.gateway("edge.infra", EDGE[:-1] + ", allowedNamespaces: ['*']}")
    policy = meshes.policy("shop.infra", "{service: shop, namespace: default, connectTimeout: 1s}")
    rule = meshes.rule(
        "shop",
        "{parents: [{gateway: edge, namespace: infra}], http: [{destinations: [{service: shop}]}]}",
    )
    mesh = meshes.mesh(SHOP, gateway, policy, rule)
    outcome = calls.visit(mesh.plan(meshes.edge("edge.infra")), "http://a.com/")
    assert outcome.addresses == {"shop.default:8080 as infra": ()}
