# SPDX-License-Identifier: Apache-2.0
"""What routing tells about objects."""

import pytest

from pilothouse.config import objects
from pilothouse.model import services
from tests.support import meshes

KNOWN = (
    meshes.service("reviews"),
    meshes.service("two", 80, 81),
    meshes.service("db", meshes.port(5432, "sql", services.AppProtocol.TCP)),
    meshes.external("api", "{hosts: [api.example], ports: [{number: 80}]}"),
    meshes.gateway(
        "edge",
        "{selector: {app: edge}, listeners:"
        " [{name: http, port: 80, protocol: HTTP, hosts: ['*.example.com']}]}",
    ),
)
RESOLVED = objects.Condition(type="ResolvedRefs", status=True, reason="ResolvedRefs")
HERE = "parents: [{service: reviews}]"
THERE = "http: [{destinations: [{service: reviews}]}]"


def told(spec: str, type_: str = "ResolvedRefs", **parts: object) -> objects.Condition | None:
    """The condition of a rule with this spec."""
    mesh = meshes.mesh(*KNOWN, meshes.rule("r", f"{{{spec}}}"), **parts)
    return meshes.condition(mesh, "RouteRule", "r", type_)


@pytest.mark.parametrize(
    "spec",
    [
        f"{HERE}, http: [{{timeout: 1s}}]",
        f"{HERE}, http: [{{redirect: {{path: /x}}}}]",
        f"{HERE}, http: [{{destinations: [{{service: two, port: 80}}, {{externalService: api}}]}}]",
        "parents: [{externalService: api, port: 80}], http: [{timeout: 1s}]",
        f"parents: [{{gateway: edge}}], hosts: [a.example.com], {THERE}",
    ],
)
def test_references_that_hold(spec: str):
    """Everything named exists and is allowed."""
    assert told(spec) == RESOLVED
    assert told(spec, "Conflicted") is None
    assert told(spec, "NoEndpoints") is None


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        (
            "parents: [{service: gone}], http: [{timeout: 1s}]",
            "NoMatchingParent",
            "spec.parents[0]: service default/gone does not exist",
        ),
        (
            f"{HERE}, http: [{{destinations: [{{service: gone, namespace: shop}}]}}]",
            "BackendNotFound",
            "spec.http[0].destinations[0]: service shop/gone does not exist",
        ),
        (
            f"{HERE}, http: [{{destinations: [{{externalService: gone}}]}}]",
            "BackendNotFound",
            "external service default/gone does not exist",
        ),
        (
            f"{HERE}, http: [{{timeout: 1s}}, {{destinations: [{{service: two}}]}}]",
            "PortNotFound",
            "spec.http[1].destinations[0]: service default/two has no port 9080",
        ),
        (
            f"{HERE}, http: [{{destinations: [{{service: two, port: 82}}]}}]",
            "PortNotFound",
            "has no port 82",
        ),
        (
            "parents: [{service: reviews, port: 1}], http: [{timeout: 1s}]",
            "NoMatchingParent",
            "no HTTP port 1",
        ),
        ("parents: [{service: db}], http: [{timeout: 1s}]", "NoMatchingParent", "no HTTP port"),
        (
            "parents: [{externalService: gone}], http: [{timeout: 1s}]",
            "NoMatchingParent",
            "external service default/gone does not exist",
        ),
        (
            "parents: [{gateway: gone}], http: [{destinations: [{service: reviews}]}]",
            "NoMatchingParent",
            "MeshGateway/default/gone does not exist",
        ),
        (
            f"parents: [{{gateway: edge, listener: tls}}], {THERE}",
            "NoMatchingParent",
            "no listener tls",
        ),
        (
            f"parents: [{{gateway: edge}}], hosts: [a.org], {THERE}",
            "NoMatchingListenerHostname",
            "MeshGateway/default/edge",
        ),
    ],
)
def test_references_that_dangle(spec: str, reason: str, words: str):
    """The condition names the field, the object and what is wrong with it."""
    condition = told(spec)
    assert (condition.status, condition.reason) == (False, reason)
    assert words in condition.message


def test_all_that_is_wrong_is_told_at_once():
    """The reason is that of the first."""
    condition = told(
        "parents: [{service: reviews}, {service: gone}],"
        " http: [{destinations: [{service: lost}, {service: reviews, port: 3}]}]"
    )
    assert condition.reason == "NoMatchingParent"
    for word in ("default/gone", "default/lost", "no port 3"):
        assert word in condition.message


@pytest.mark.parametrize(("version", "warned"), [("v1", False), ("v2", True), ("v3", False)])
def test_labels_that_select_no_endpoint_are_a_warning(version: str, *, warned: bool):
    """References are resolved all the same; an endpoint counts before it is ready."""
    spec = (
        f"{HERE}, http: [{{destinations: [{{service: reviews, labels: {{version: {version}}}}}]}}]"
    )
    pods = [
        meshes.endpoint("10.0.0.1", version="v1"),
        meshes.endpoint("10.0.0.3", version="v3", ready=False),
    ]
    assert told(spec, endpoints={"reviews": pods}) == RESOLVED
    condition = told(spec, "NoEndpoints", endpoints={"reviews": pods})
    assert (condition is not None) is warned
    if condition is not None:
        assert condition.status is True
        assert f"version={version}" in condition.message


def test_a_service_without_endpoints_is_no_warning():
    """Scaling to zero is no mistake."""
    assert told(f"{HERE}, http: [{{destinations: [{{service: reviews}}]}}]", "NoEndpoints") is None


@pytest.mark.parametrize(
    ("first", "second", "lost"),
    [
        ("{path: {prefix: /a}}", "{path: {prefix: /a/}}", "first"),
        ("{headers: [{name: a, exact: b}]}", "{headers: [{name: A, exact: b}]}", "second"),
        ("{path: {exact: /a}}", "{path: {prefix: /a}}", ""),
        ("{path: {exact: /a}}", "{path: {exact: /a}, method: GET}", ""),
    ],
)
def test_equal_matches_of_two_rules(first: str, second: str, lost: str):
    """The loser is told why it is never reached; a longer way to write a prefix goes first."""
    rules = [
        meshes.rule(
            name,
            f"{{{HERE}, http: [{{matches: [{match}], redirect: {{path: /x}}}}]}}",
            created=created,
        )
        for name, match, created in (("first", first, 1), ("second", second, 2))
    ]
    mesh = meshes.mesh(*KNOWN, *rules)
    found = {
        name: meshes.condition(mesh, "RouteRule", name, "Conflicted")
        for name in ("first", "second")
    }
    told_of = [name for name, condition in found.items() if condition is not None]
    assert told_of == ([lost] if lost else [])
    if lost:
        winner = "first" if lost == "second" else "second"
        assert f"RouteRule/default/{winner}" in found[lost].message
        assert "spec.http[0]" in found[lost].message


def test_a_catch_all_of_higher_priority_shadows_everything():
    """Not only what is equal to it."""
    high = meshes.rule("high", f"{{{HERE}, priority: 1, http: [{{redirect: {{path: /x}}}}]}}")
    low = meshes.rule(
        "low", f"{{{HERE}, http: [{{matches: [{{path: {{exact: /y}}}}], redirect: {{path: /x}}}}]}}"
    )
    mesh = meshes.mesh(*KNOWN, high, low)
    condition = meshes.condition(mesh, "RouteRule", "low", "Conflicted")
    assert condition.status is True
    assert "reviews.default:9080" in condition.message
    assert meshes.condition(mesh, "RouteRule", "high", "Conflicted") is None


def test_a_producer_is_not_told_of_consumers():
    """Its rule is in force for everybody else; of two consumers the loser is told."""
    producer = meshes.rule("p", f"{{{HERE}, http: [{{redirect: {{path: /x}}}}]}}")
    consumers = [
        meshes.rule(
            f"{name}.shop",
            "{parents: [{service: reviews, namespace: default}], http: [{redirect: {path: /y}}]}",
        )
        for name in ("a", "b")
    ]
    mesh = meshes.mesh(*KNOWN, producer, *consumers)
    assert meshes.condition(mesh, "RouteRule", "p", "Conflicted") is None
    assert meshes.condition(mesh, "RouteRule", "a.shop", "Conflicted") is None
    assert meshes.condition(mesh, "RouteRule", "b.shop", "Conflicted") is not None


def test_policies():
    """A service that is not there, labels of nobody, and a second policy for the same endpoints."""
    policies = (
        meshes.policy("gone", "{service: gone}"),
        meshes.policy("first", "{service: reviews, labels: {version: v1}}", created=1),
        meshes.policy("second", "{service: reviews, labels: {version: v1}}", created=2),
        meshes.policy("other.shop", "{service: reviews, namespace: default}"),
        meshes.policy("port.shop", "{service: reviews, namespace: default, ports: [{port: 7}]}"),
    )
    api = meshes.external("api", "{hosts: [api.example], ports: [{number: 443}]}")
    outside = (
        meshes.policy("outside", "{externalService: api, ports: [{port: 443}]}"),
        meshes.policy("no-port", "{externalService: api, ports: [{port: 80}]}", created=1),
        meshes.policy("none", "{externalService: reviews}"),
    )
    mesh = meshes.mesh(*KNOWN, *policies, api, *outside)
    assert meshes.condition(mesh, "DestinationPolicy", "outside", "Conflicted") is None
    assert meshes.condition(mesh, "DestinationPolicy", "outside") == RESOLVED
    nowhere = meshes.condition(mesh, "DestinationPolicy", "no-port")
    assert nowhere.message == "spec.ports: external service default/api has no port 80"
    none = meshes.condition(mesh, "DestinationPolicy", "none")
    assert none.message == "spec.externalService: external service default/reviews does not exist"
    port = meshes.condition(mesh, "DestinationPolicy", "port.shop")
    assert (port.status, port.reason) == (False, "PortNotFound")
    assert port.message == "spec.ports: service default/reviews has no port 7"
    gone = meshes.condition(mesh, "DestinationPolicy", "gone")
    assert (gone.status, gone.reason) == (False, "BackendNotFound")
    assert meshes.condition(mesh, "DestinationPolicy", "first") == RESOLVED
    assert meshes.condition(mesh, "DestinationPolicy", "first", "NoEndpoints").status is True
    assert meshes.condition(mesh, "DestinationPolicy", "first", "Conflicted") is None
    lost = meshes.condition(mesh, "DestinationPolicy", "second", "Conflicted")
    assert "DestinationPolicy/default/first" in lost.message
    assert meshes.condition(mesh, "DestinationPolicy", "other.shop") == RESOLVED


def test_gateways_that_want_one_port_for_two_protocols():
    """The older one has it, if there are proxies that serve both."""
    tls = (
        "{selector: {app: edge%s}, listeners: [{name: tls, port: 80, protocol: HTTPS,"
        " tls: {certificates: [{secret: x}]}}]}"
    )
    mesh = meshes.mesh(
        *KNOWN,
        meshes.gateway("young", tls % ", zone: a", created=1),
        meshes.gateway("apart", tls % "-two", created=1),
    )
    lost = meshes.condition(mesh, "MeshGateway", "young", "Conflicted")
    assert "listener tls" in lost.message
    assert "MeshGateway/default/edge" in lost.message
    for name in ("edge", "apart"):
        assert meshes.condition(mesh, "MeshGateway", name, "Conflicted") is None
        assert meshes.condition(mesh, "MeshGateway", name) == RESOLVED


def test_the_name_of_the_collector_is_taken():
    """An ExternalService of that name would be another cluster of the same name."""
    name = "tracing-collector.pilothouse-system"
    mesh = meshes.mesh(
        meshes.external(name, "{hosts: [otel.example], ports: [{number: 4317}]}"),
        meshes.tracing("{address: 192.0.2.1}"),
    )
    assert meshes.condition(mesh, "ExternalService", name, "Conflicted").status is True
    plan = meshes.planned(mesh, meshes.sidecar())
    (collector,) = (one for layer in plan.layers for one in layer.clusters)
    assert collector.resolution == "static"
