# SPDX-License-Identifier: Apache-2.0
"""Where calls of applications go that use their sidecar as HTTP proxy."""

from fractions import Fraction

import pytest

from pilothouse.model import services
from tests.support import calls, meshes

REVIEWS = meshes.service("reviews", 9080, cluster_ips=("10.96.0.7", "fd00::7"))
RATINGS = meshes.service("ratings", 80, 9080)


@pytest.mark.parametrize(
    ("authority", "namespace", "cluster"),
    [
        ("reviews:9080", "default", "reviews.default:9080"),
        ("reviews.default:9080", "default", "reviews.default:9080"),
        ("reviews.default.svc:9080", "shop", "reviews.default:9080"),
        ("reviews.default.svc.cluster.local:9080", "shop", "reviews.default:9080"),
        ("REVIEWS.Default:9080", "shop", "reviews.default:9080"),
        ("10.96.0.7:9080", "shop", "reviews.default:9080"),
        ("[fd00::7]:9080", "shop", "reviews.default:9080"),
        ("ratings", "default", "ratings.default:80"),
        ("ratings:80", "default", "ratings.default:80"),
        ("ratings.default", "shop", "ratings.default:80"),
        ("ratings.default:9080", "shop", "ratings.default:9080"),
    ],
)
def test_every_form_of_a_name_reaches_the_service(authority: str, namespace: str, cluster: str):
    """Short, namespaced, full and virtual address, with port, and without for port 80."""
    client = meshes.sidecar(f"client.{namespace}")
    plan = meshes.mesh(REVIEWS, RATINGS).plan(client)
    assert calls.get(plan, f"http://{authority}/").cluster == cluster


@pytest.mark.parametrize("authority", ["reviews:9080", "reviews", "reviews.default", "elsewhere"])
def test_a_name_that_is_no_form_is_not_found(authority: str):
    """The short form is for the own namespace, the form without port for port 80."""
    plan = meshes.mesh(REVIEWS).plan(meshes.sidecar("client.shop"))
    assert calls.get(plan, f"http://{authority}/").status == 404


def test_a_short_name_means_the_service_of_the_own_namespace():
    """Each namespace's `reviews` is its own."""
    mesh = meshes.mesh(REVIEWS, meshes.service("reviews.shop", 9080))
    for namespace in ("default", "shop"):
        plan = mesh.plan(meshes.sidecar(f"client.{namespace}"))
        assert calls.get(plan, "http://reviews:9080/").cluster == f"reviews.{namespace}:9080"


def test_another_domain_of_the_mesh():
    """The full form ends in the DNS domain of the mesh."""
    plan = meshes.mesh(REVIEWS, domain="mesh.test").plan(meshes.sidecar())
    full = "reviews.default.svc.mesh.test:9080"
    assert calls.get(plan, f"http://{full}/").cluster == "reviews.default:9080"
    assert calls.get(plan, "http://reviews.default.svc.cluster.local:9080/").status == 404


def test_calls_go_to_ready_endpoints_of_the_port():
    """Endpoints that are not ready, or serve another port, get nothing."""
    mesh = meshes.mesh(
        REVIEWS,
        endpoints={
            "reviews": [
                meshes.endpoint("10.0.0.1", name="http-9080"),
                meshes.endpoint("10.0.0.2", name="http-9080", ready=False),
                meshes.endpoint("10.0.0.3", name="metrics"),
            ]
        },
    )
    outcome = calls.get(mesh.plan(meshes.sidecar()), "http://reviews:9080/")
    assert outcome.addresses == {"reviews.default:9080": ("10.0.0.1:9080",)}


SPLIT = meshes.rule(
    "reviews",
    """
    parents: [{service: reviews}]
    http:
    - name: testers
      matches: [{headers: [{name: X-User, exact: jason}]}]
      destinations: [{service: reviews, labels: {version: v2}}]
    - name: everyone
      destinations:
      - {service: reviews, labels: {version: v1}, weight: 75}
      - {service: reviews, labels: {version: v3}, weight: 25}
    """.replace("\n    ", "\n  "),
)
PODS = {
    "reviews": [
        meshes.endpoint(f"10.0.0.{n}", name="http-9080", version=f"v{n}") for n in (1, 2, 3)
    ]
}


def test_a_rule_splits_by_weight_and_sends_testers_to_their_version():
    """The worked example of the documentation."""
    plan = meshes.mesh(REVIEWS, SPLIT, endpoints=PODS).plan(meshes.sidecar())
    everyone = calls.get(plan, "http://reviews:9080/reviews/0")
    assert everyone.shares == {
        "reviews.default:9080 version=v1": Fraction(3, 4),
        "reviews.default:9080 version=v3": Fraction(1, 4),
    }
    assert everyone.addresses["reviews.default:9080 version=v3"] == ("10.0.0.3:9080",)
    jason = calls.get(plan, "http://reviews:9080/reviews/0", x_user="jason")
    assert jason.cluster == "reviews.default:9080 version=v2"
    assert jason.route == "RouteRule/default/reviews/0/testers"


def test_a_rule_before_its_pods_exist_has_a_cluster_without_endpoints():
    """So the proxy answers 503 at once, and serves as soon as the pods are ready."""
    plan = meshes.mesh(REVIEWS, SPLIT).plan(meshes.sidecar())
    outcome = calls.get(plan, "http://reviews:9080/", x_user="jason")
    assert outcome.addresses == {"reviews.default:9080 version=v2": ()}


def test_what_no_rule_matches_goes_to_the_whole_service():
    """After all rules there is the service's own route."""
    only = meshes.rule(
        "reviews",
        "{parents: [{service: reviews}], http: [{matches: [{path: {exact: /new}}],"
        " destinations: [{service: ratings}]}]}",
    )
    plan = meshes.mesh(REVIEWS, RATINGS, only).plan(meshes.sidecar())
    assert calls.get(plan, "http://reviews:9080/new").cluster == "ratings.default:9080"
    old = calls.get(plan, "http://reviews:9080/old")
    assert (old.route, old.cluster) == ("default", "reviews.default:9080")


def test_a_rule_routes_the_service_and_not_its_destinations():
    """Requests for v2's own service are no business of the rule."""
    away = meshes.rule(
        "reviews",
        "{parents: [{service: reviews}], http: [{destinations: [{service: ratings, port: 80}]}]}",
    )
    plan = meshes.mesh(REVIEWS, RATINGS, away).plan(meshes.sidecar())
    assert calls.get(plan, "http://reviews:9080/").cluster == "ratings.default:80"
    assert calls.get(plan, "http://ratings:9080/").cluster == "ratings.default:9080"


def test_a_rule_for_one_port_leaves_the_others_alone():
    """`port` of a parent narrows the rule."""
    one = meshes.rule(
        "ratings",
        "{parents: [{service: ratings, port: 80}], http: [{redirect: {path: /away}}]}",
    )
    plan = meshes.mesh(RATINGS, one).plan(meshes.sidecar())
    assert calls.get(plan, "http://ratings/").status == 302
    assert calls.get(plan, "http://ratings:9080/").cluster == "ratings.default:9080"


def test_a_route_without_destinations_goes_to_its_parent():
    """Such a route says how, not where."""
    how = meshes.rule("reviews", "{parents: [{service: reviews}], http: [{timeout: 2s}]}")
    plan = meshes.mesh(REVIEWS, how).plan(meshes.sidecar())
    outcome = calls.get(plan, "http://reviews:9080/")
    assert outcome.cluster == "reviews.default:9080"
    assert outcome.route == "RouteRule/default/reviews/0"


def to(destination: str, *, rule: str, parent: str = "reviews", **meta: object):
    space = "" if "." not in parent else f", namespace: {parent.partition('.')[2]}"
    name = parent.partition(".")[0]
    return meshes.rule(
        rule,
        f"{{parents: [{{service: {name}{space}}}], http: [{{destinations: [{destination}]}}]}}",
        **meta,
    )


def test_a_producer_rule_speaks_to_all_clients_a_consumer_rule_to_its_own():
    """As in the Gateway API's rules for meshes: the namespace of the rule says whose it is."""
    mesh = meshes.mesh(
        REVIEWS,
        to("{service: reviews, labels: {version: v1}}", rule="producer"),
        to(
            "{service: reviews, namespace: default, labels: {version: v2}}",
            rule="consumer.shop",
            parent="reviews.default",
        ),
        endpoints=PODS,
    )
    url = "http://reviews.default:9080/"
    found = {
        namespace: calls.get(mesh.plan(meshes.sidecar(f"client.{namespace}")), url).cluster
        for namespace in ("default", "elsewhere", "shop")
    }
    assert found == {
        "default": "reviews.default:9080 version=v1",
        "elsewhere": "reviews.default:9080 version=v1",
        "shop": "reviews.default:9080 version=v2",
    }


def test_what_a_consumer_rule_does_not_match_is_left_to_the_producers():
    """A consumer's rules go before the producers', even before those of higher priority."""
    producer = meshes.rule(
        "producer",
        "{parents: [{service: reviews}], priority: 1000, http: [{redirect: {path: /producer}}]}",
    )
    consumer = meshes.rule(
        "consumer.shop",
        "{parents: [{service: reviews, namespace: default}], http:"
        " [{matches: [{path: {prefix: /mine}}], redirect: {path: /consumer}}]}",
    )
    plan = meshes.mesh(REVIEWS, producer, consumer).plan(meshes.sidecar("client.shop"))
    for path, redirect in (("/mine", "/consumer"), ("/other", "/producer")):
        outcome = calls.get(plan, f"http://reviews.default:9080{path}")
        assert outcome.redirect is not None
        assert outcome.redirect.path == redirect


@pytest.mark.parametrize(
    ("destination", "cluster"),
    [
        ("{service: reviews}", "reviews.default:9080"),
        ("{service: two}", "two.default:80"),
        ("{service: two, port: 8080}", "two.default:8080"),
        ("{service: mixed}", "mixed.default:8080"),
        ("{service: mixed, port: 5432}", "mixed.default:5432"),
        ("{service: plain}", "plain.default:7000"),
        ("{service: reviews.shop}", ""),
        ("{service: neither}", ""),
        ("{service: two, port: 81}", ""),
        ("{service: alias}", "alias.default:80"),
        ("{service: alias, port: 81}", ""),
        ("{service: alias, labels: {version: v1}}", ""),
        ("{service: alias-of-two}", "two.default:80"),
        ("{service: alias-of-two, port: 8080}", "two.default:8080"),
        ("{service: alias-of-two, labels: {version: v1}}", ""),
        ("{service: round}", ""),
        ("{service: clock}", ""),
    ],
)
def test_the_port_of_a_destination(destination: str, cluster: str):
    """The one given, else the one requested (80), else the only one; a rule may say TCP is HTTP."""
    known = [
        REVIEWS,
        meshes.service("front", 80),
        meshes.service("two", 80, 8080),
        meshes.service("neither", 81, 82),
        meshes.service(
            "mixed",
            meshes.port(5432, "sql", services.AppProtocol.TCP),
            meshes.port(8080),
            meshes.port(53, "dns", services.AppProtocol.UDP),
        ),
        meshes.service("plain", meshes.port(7000, "", services.AppProtocol.TCP)),
        meshes.service("clock", meshes.port(123, "ntp", services.AppProtocol.UDP)),
        meshes.service("alias", 80, external_name="example.com"),
        meshes.service("alias-of-two", external_name="two.default.svc.cluster.local"),
        meshes.service("round", 80, external_name="round.default"),
    ]
    if "." in destination:
        destination = "{service: reviews, namespace: shop}"
    mesh = meshes.mesh(*known, to(destination, rule="front", parent="front"))
    outcome = calls.get(mesh.plan(meshes.sidecar()), "http://front/")
    if cluster:
        assert outcome.cluster == cluster
    else:
        assert outcome.status == 500
        assert meshes.condition(mesh, "RouteRule", "front").status is False


def test_a_share_that_leads_nowhere_keeps_its_weight():
    """The Gateway API: its part of the requests is answered 500, the rest arrives."""
    destinations = "{service: reviews, weight: 9}, {service: missing, weight: 1}"
    mesh = meshes.mesh(REVIEWS, to(destinations, rule="reviews"))
    outcome = calls.get(mesh.plan(meshes.sidecar()), "http://reviews:9080/")
    assert outcome.shares == {
        "reviews.default:9080": Fraction(9, 10),
        "nowhere": Fraction(1, 10),
    }


def test_a_rule_that_leads_nowhere_says_so():
    """500 with a body that names the rule and what is missing."""
    mesh = meshes.mesh(REVIEWS, to("{service: missing}", rule="reviews"))
    outcome = calls.get(mesh.plan(meshes.sidecar()), "http://reviews:9080/")
    assert outcome.status == 500
    assert "default/missing does not exist" in outcome.body
    assert "RouteRule/default/reviews/0" in outcome.body


def test_weights():
    """Unset counts 1, 0 gets nothing, and the same place named twice gets both shares."""
    destinations = (
        "{service: reviews}, {service: ratings, weight: 2},"
        " {service: reviews, weight: 1}, {service: missing, weight: 0}"
    )
    mesh = meshes.mesh(REVIEWS, RATINGS, to(destinations, rule="reviews"))
    outcome = calls.get(mesh.plan(meshes.sidecar()), "http://reviews:9080/")
    assert outcome.shares == {
        "reviews.default:9080": Fraction(1, 2),
        "ratings.default:9080": Fraction(1, 2),
    }


@pytest.mark.parametrize(
    "protocol",
    [services.AppProtocol.TCP, services.AppProtocol.TLS, services.AppProtocol.UDP],
)
def test_services_that_do_not_speak_http_are_no_place_for_requests(
    protocol: services.AppProtocol,
):
    """A sidecar as HTTP proxy may make tunnels to them (CONNECT), and answers nothing else."""
    mesh = meshes.mesh(meshes.service("db", meshes.port(5432, "db", protocol)))
    assert calls.get(mesh.plan(meshes.sidecar()), "http://db:5432/").status == 404


def test_two_services_that_claim_one_virtual_address():
    """The first by namespace and name answers; no domain is in two virtual hosts."""
    mesh = meshes.mesh(
        meshes.service("b", 80, cluster_ips=("10.96.0.1",)),
        meshes.service("a", 80, cluster_ips=("10.96.0.1",)),
    )
    plan = mesh.plan(meshes.sidecar())
    assert calls.get(plan, "http://10.96.0.1/").cluster == "a.default:80"


def test_a_policy_of_the_clients_gives_them_a_cluster_of_their_own():
    """Only where it changes something; every rule that leads to the service follows it."""
    slow = "{service: ratings, namespace: default, connectTimeout: 30s}"
    mesh = meshes.mesh(
        REVIEWS,
        RATINGS,
        to("{service: ratings}", rule="reviews"),
        meshes.policy("ratings.shop", slow),
        endpoints={"ratings": [meshes.endpoint("10.0.0.4", name="http-9080")]},
    )
    url = "http://reviews.default:9080/"
    ours = calls.get(mesh.plan(meshes.sidecar("client.shop")), url)
    theirs = calls.get(mesh.plan(meshes.sidecar("client.elsewhere")), url)
    assert ours.addresses == {"ratings.default:9080 as shop": ("10.0.0.4:9080",)}
    assert theirs.addresses == {"ratings.default:9080": ("10.0.0.4:9080",)}


def test_a_policy_of_the_clients_that_changes_nothing_splits_nothing():
    """Two clusters for the same settings would halve connection pools for no reason."""
    same = "{service: ratings, namespace: default, connectTimeout: 10s}"
    mesh = meshes.mesh(RATINGS, meshes.policy("ratings.shop", same))
    outcome = calls.get(mesh.plan(meshes.sidecar("client.shop")), "http://ratings.default/")
    assert outcome.cluster == "ratings.default:80"


def test_inbound_requests_go_to_the_application_whatever_their_host():
    """Also those sent to the pod's address."""
    mesh = meshes.mesh(REVIEWS, endpoints=PODS)
    plan = mesh.plan(meshes.sidecar("reviews-v1-0", "10.0.0.1"))
    for authority in ("reviews:9080", "10.0.0.1:9080", "anything"):
        outcome = calls.send(plan, calls.Call(authority=authority, listener="inbound|9080"))
        assert outcome.addresses == {"app:9080": ("127.0.0.1:9080",)}
