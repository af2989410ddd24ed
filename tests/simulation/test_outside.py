# SPDX-License-Identifier: Apache-2.0
"""Calls to hosts outside the mesh: straight out, or through the egress gateway, or not at all."""

from fractions import Fraction

import pytest

from pilothouse.model import keys
from tests.support import calls, meshes

GATEWAY = meshes.service("egress-gateway.pilothouse-system", 8080)
BANK_KEY = keys.ObjectKey("ExternalService", "default", "bank")
BANK = meshes.external(
    "bank", "{hosts: [bank.example], ports: [{number: 80}], throughEgressGateway: true}"
)
DERIVED = meshes.rule(
    "bank-egress",
    "{parents: [{externalService: bank}], http: [{destinations:"
    " [{service: egress-gateway, namespace: pilothouse-system}]}]}",
    origins=(BANK_KEY,),
)


def straight(name: str, host: str, more: str = "", **meta: object):
    return meshes.external(
        name, f"{{hosts: [{host}], ports: [{{number: 80}}, {{number: 8080}}]{more}}}", **meta
    )


def call(url: str, *known: object, namespace: str = "default") -> calls.Outcome:
    mesh = meshes.mesh(GATEWAY, *known)
    return calls.get(mesh.plan(meshes.sidecar(f"client.{namespace}")), url)


@pytest.mark.parametrize("namespace", ["default", "elsewhere"])
@pytest.mark.parametrize(
    ("authority", "port"), [("api.example", 80), ("API.example:80", 80), ("api.example:8080", 8080)]
)
def test_all_namespaces_reach_an_external_host(authority: str, port: int, namespace: str):
    """By its name, resolved by DNS."""
    outcome = call(f"http://{authority}/", straight("api", "api.example"), namespace=namespace)
    assert outcome.addresses == {f"external api.default:{port}": (f"api.example:{port}",)}


def test_endpoints_and_target_ports():
    """Where the hosts are, when that is said."""
    static = meshes.external(
        "api",
        "{hosts: [api.example, api.test], ports: [{number: 80, targetPort: 8080}],"
        " resolution: STATIC, endpoints: [{address: 192.0.2.2}, {address: 192.0.2.1}]}",
    )
    for host in ("api.example", "api.test"):
        outcome = call(f"http://{host}/", static)
        assert outcome.addresses == {
            "external api.default:80": ("192.0.2.1:8080", "192.0.2.2:8080")
        }


def test_the_older_external_service_keeps_a_host():
    """For all of its ports; the younger is told."""
    young = straight("a", "api.example", created=2)
    old = meshes.external("b", "{hosts: [api.example], ports: [{number: 80}]}", created=1)
    assert call("http://api.example/", young, old).cluster == "external b.default:80"
    assert call("http://api.example:8080/", young, old).status == 404
    lost = meshes.condition(meshes.mesh(young, old), "ExternalService", "a", "Conflicted")
    assert "default/b" in lost.message


@pytest.mark.parametrize(
    "host",
    ["reviews.default", "reviews.default.svc", "reviews.default.svc.cluster.local", "10.96.0.1"],
)
def test_nobody_takes_the_name_of_a_service(host: str):
    """A service of the mesh keeps its names, and its address."""
    reviews = meshes.service("reviews", 80, cluster_ips=("10.96.0.1",))
    thief = straight("thief.evil", host)
    assert call(f"http://{host}/", reviews, thief).cluster == "reviews.default:80"
    told = meshes.condition(
        meshes.mesh(reviews, thief), "ExternalService", "thief.evil", "Conflicted"
    )
    assert "default/reviews" in told.message


def test_a_short_name_is_the_own_namespaces_first():
    """Where the clients' namespace has no such service, the external host may have the name."""
    reviews = meshes.service("reviews", 80)
    legacy = straight("legacy.shop", "reviews")
    ours = call("http://reviews/", reviews, legacy)
    assert ours.cluster == "reviews.default:80"
    assert call("http://reviews:8080/", reviews, legacy).status == 404
    theirs = call("http://reviews/", reviews, legacy, namespace="shop")
    assert theirs.cluster == "external legacy.shop:80"


def test_rules_route_external_hosts():
    """As they do services; one that says how and not where goes to the host itself."""
    reviews = meshes.service("reviews", 80)
    rule = meshes.rule(
        "api",
        """{parents: [{externalService: api}], http: [
          {matches: [{path: {exact: /mine}}], destinations: [{service: reviews}]},
          {timeout: 3s}]}""",
    )
    known = (straight("api", "api.example"), reviews, rule)
    assert call("http://api.example/mine", *known).cluster == "reviews.default:80"
    assert call("http://api.example/", *known).cluster == "external api.default:80"


def test_behind_the_egress_gateway_without_a_rule():
    """Closed: 503, with a body that names the external service."""
    outcome = call("http://bank.example/", BANK)
    assert outcome.status == 503
    assert "default/bank" in outcome.body


def test_behind_the_egress_gateway_with_its_rule():
    """Requests go to the gateway; no sidecar has a cluster of its own."""
    known = (BANK, DERIVED)
    assert call("http://bank.example/", *known).cluster == "egress-gateway.pilothouse-system:8080"
    plan = meshes.planned(meshes.mesh(GATEWAY, *known), meshes.sidecar())
    assert not [one for layer in plan.layers for one in layer.clusters if one.key.external]


@pytest.mark.parametrize(
    ("parent", "url"),
    [("externalService: bank", "http://bank.example/"), ("service: front", "http://front/")],
)
def test_no_rule_opens_a_way_past_the_egress_gateway(parent: str, url: str):
    """Whoever writes it, for whatever parent: 503, and a condition."""
    rule = meshes.rule(
        "bypass",
        f"{{parents: [{{{parent}}}], http: [{{destinations: [{{externalService: bank}}]}}]}}",
    )
    known = (BANK, meshes.service("front", 80), rule)
    assert call(url, *known).status == 503
    told = meshes.condition(meshes.mesh(GATEWAY, *known), "RouteRule", "bypass")
    assert (told.status, told.reason) == (False, "RefNotPermitted")


def test_another_external_service_is_no_way_round():
    """The requests of a host behind the gateway do not go straight out elsewhere."""
    rule = meshes.rule(
        "bypass",
        "{parents: [{externalService: bank}], http: [{destinations: [{externalService: api}]}]}",
    )
    assert call("http://bank.example/", BANK, straight("api", "api.example"), rule).status == 503


def test_an_alias_is_no_way_round():
    """Neither one of a host behind the gateway, nor, for its requests, one of any host outside."""
    aliases = (
        meshes.service("safe", 80, external_name="bank.example"),
        meshes.service("far", 80, external_name="far.example"),
        meshes.service("front", 80),
    )
    for parent, url, alias in (
        ("externalService: bank", "http://bank.example/", "far"),
        ("externalService: bank", "http://bank.example/", "safe"),
        ("service: front", "http://front/", "safe"),
    ):
        rule = meshes.rule(
            "bypass",
            f"{{parents: [{{{parent}}}], http: [{{destinations: [{{service: {alias}}}]}}]}}",
        )
        assert call(url, BANK, *aliases, rule).status == 503
        told = meshes.condition(meshes.mesh(GATEWAY, BANK, *aliases, rule), "RouteRule", "bypass")
        assert (told.status, told.reason) == (False, "RefNotPermitted")


def test_a_part_that_would_go_past_the_gateway_fails_alone():
    """Its share leads nowhere, the other goes through the gateway."""
    rule = meshes.rule(
        "half",
        "{parents: [{externalService: bank}], http: [{destinations: [{externalService: bank},"
        " {service: egress-gateway, namespace: pilothouse-system}]}]}",
    )
    assert call("http://bank.example/", BANK, rule).shares == {
        "egress-gateway.pilothouse-system:8080": Fraction(1, 2),
        "nowhere": Fraction(1, 2),
    }


def test_a_rule_about_time_goes_where_the_derived_rule_goes():
    """So that nobody has to know the way out to set a timeout."""
    rule = meshes.rule(
        "slow",
        "{parents: [{externalService: bank}], http:"
        " [{matches: [{path: {prefix: /slow}}], timeout: 9s}]}",
    )
    outcome = call("http://bank.example/slow", BANK, DERIVED, rule)
    assert outcome.cluster == "egress-gateway.pilothouse-system:8080"
    mesh = meshes.mesh(GATEWAY, BANK, DERIVED, rule)
    assert meshes.condition(mesh, "RouteRule", "slow").status is True
    closed = meshes.mesh(GATEWAY, BANK, rule)
    assert calls.get(closed.plan(meshes.sidecar()), "http://bank.example/slow").status == 503
    assert meshes.condition(closed, "RouteRule", "slow").status is False


def test_the_egress_gateway_sends_out():
    """At the gateway the external service is what it says."""
    gateway = meshes.gateway(
        "egress.pilothouse-system",
        "{selector: {app: egress}, allowedNamespaces: ['*'],"
        " listeners: [{name: http, port: 8080, protocol: HTTP}]}",
    )
    rule = meshes.rule(
        "out",
        "{parents: [{gateway: egress, namespace: pilothouse-system}], hosts: [bank.example],"
        " http: [{destinations: [{externalService: bank}]}]}",
    )
    mesh = meshes.mesh(BANK, gateway, rule)
    plan = mesh.plan(meshes.edge("egress.pilothouse-system"))
    outcome = calls.visit(plan, "http://bank.example/", port=8080)
    assert outcome.addresses == {"external bank.default:80": ("bank.example:80",)}
    assert meshes.condition(mesh, "RouteRule", "out").status is True
