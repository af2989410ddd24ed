# SPDX-License-Identifier: Apache-2.0
"""The rules that a RouteRule can break by itself. Expected: the comments of its proto."""

import pytest

from pilothouse.config import validation
from tests.support import configs


def broken(spec: str) -> list[str]:
    """The violations of a spec, as ``FIELD: MESSAGE``."""
    return [str(one) for one in validation.validate(configs.with_spec("RouteRule", spec))]


def rule(**parts: str) -> str:
    """A valid RouteRule's spec with some fields replaced, in YAML flow style."""
    fields = {"parents": "[{service: a}]", "http": "[{}]", **parts}
    return "\n".join(f"{name}: {value}" for name, value in fields.items())


def route(text: str, *, parents: str = "[{service: a}]") -> str:
    return rule(http=f"[{text}]", parents=parents)


def match(text: str) -> str:
    return route(f"{{matches: [{text}]}}")


def to(*destinations: str) -> str:
    return route(f"{{destinations: [{', '.join(destinations)}]}}")


GATEWAY = "[{gateway: g}]"
OK_ROUTE_RULES = {
    "the least": rule(),
    "every parent": rule(
        parents="[{service: a, namespace: b, port: 80}, {externalService: a.b, port: 65535},"
        " {gateway: g, listener: http}]",
        http="[{destinations: [{service: a}]}]",
    ),
    "hosts": rule(
        parents=GATEWAY,
        hosts="[shop.example.com, Shop2.Example.com, '*.example.com', '*']",
        http="[{destinations: [{service: a}]}]",
    ),
    "priority": rule(priority="-1000"),
    "paths": match("{path: {exact: /}}, {path: {prefix: /a}}, {path: {regex: '/[a-z]+'}}"),
    "headers": match(
        "{method: GET, headers: [{name: X-User, exact: ''}, {name: ':authority', prefix: a},"
        " {name: b, regex: .*}, {name: c, present: false}]}"
    ),
    "weights": to("{service: a, weight: 0}", "{service: b}", "{service: c, weight: 1000000}"),
    "external destination": to("{externalService: a.b, port: 443}"),
    "labels": to("{service: a, labels: {version: v2, example.com/x.y: '', A_b: 1-a}}"),
    "redirect": route("{redirect: {scheme: https, code: 308}}", parents=GATEWAY),
    "redirect to an address": route("{redirect: {host: '[::1]', port: 1, path: /a}}"),
    "no timeout": route("{timeout: 0s, retry: {perTryTimeout: 5s, attempts: 0}}"),
    "equal timeouts": route("{timeout: 5s, retry: {perTryTimeout: 5s, attempts: 10}}"),
    "retry conditions": route("{retry: {retryOn: [5xx, reset, unavailable, connect-failure]}}"),
}


@pytest.mark.parametrize("name", OK_ROUTE_RULES)
def test_a_right_route_rule_breaks_nothing(name: str):
    """What the comments allow."""
    assert broken(OK_ROUTE_RULES[name]) == []


LABEL = "must be a DNS label"
HOST = "must be a host name"
BROKEN_ROUTE_RULES = [
    ("http: [{}]", "spec.parents: at least one is required"),
    ("parents: [{service: a}]", "spec.http: at least one route is required"),
    (rule(parents="[{}]"), "spec.parents[0]: one of `service`, `gateway` or `externalService`"),
    (rule(parents="[{service: ''}]"), "spec.parents[0].service: is required"),
    (rule(parents="[{service: A}]"), f"spec.parents[0].service: {LABEL}"),
    (rule(parents="[{service: a.b}]"), f"spec.parents[0].service: {LABEL}"),
    (rule(parents="[{externalService: a_b}]"), "spec.parents[0].externalService: must be a DNS su"),
    (rule(parents="[{service: a, namespace: b.c}]"), f"spec.parents[0].namespace: {LABEL}"),
    (rule(parents="[{service: a, port: 0}]"), "spec.parents[0].port: must be from 1 to 65535"),
    (rule(parents="[{service: a, port: 65536}]"), "spec.parents[0].port: must be from 1 to 65535"),
    (rule(parents="[{service: a, listener: b}]"), "spec.parents[0].listener: only a gateway has"),
    (
        route("{destinations: [{service: a}]}", parents="[{gateway: a, port: 80}]"),
        "spec.parents[0].port: a gateway has listeners",
    ),
    (
        route("{destinations: [{service: a}]}", parents="[{gateway: a, listener: B}]"),
        f"spec.parents[0].listener: {LABEL}",
    ),
    (rule(hosts="[a.b]"), "spec.hosts: only a rule with a gateway parent has hosts"),
    (rule(priority="1001"), "spec.priority: must be from -1000 to 1000, is 1001"),
    (rule(priority="-1001"), "spec.priority: must be from -1000 to 1000, is -1001"),
    (
        rule(http="[{name: a}, {}, {name: a}]"),
        "spec.http[2].name: the name a is taken by spec.http[0].name",
    ),
    (match("{path: {}}"), "spec.http[0].matches[0].path: one of `exact`, `prefix`, `regex`,"),
    (match("{path: {exact: a}}"), "spec.http[0].matches[0].path.exact: must begin with /"),
    (match("{path: {prefix: ''}}"), "spec.http[0].matches[0].path.prefix: must begin with /"),
    (match("{path: {exact: /a?b}}"), "spec.http[0].matches[0].path.exact: must be a path without"),
    (match("{path: {regex: ''}}"), "spec.http[0].matches[0].path.regex: must not be empty"),
    (
        match("{path: {regex: '/(?!a)'}}"),
        "spec.http[0].matches[0].path.regex: must be an RE2 expression",
    ),
    (match("{method: get}"), "spec.http[0].matches[0].method: must be an HTTP method in capitals"),
    (match("{method: 'A B'}"), "spec.http[0].matches[0].method: must be an HTTP method"),
    (match("{headers: [{exact: a}]}"), "spec.http[0].matches[0].headers[0].name: is required"),
    (
        match("{headers: [{name: 'a b', exact: a}]}"),
        "spec.http[0].matches[0].headers[0].name: must be a header name",
    ),
    (
        match("{headers: [{name: ':status', exact: a}]}"),
        "spec.http[0].matches[0].headers[0].name: must be one of :authority, :method, :path",
    ),
    (
        match("{headers: [{name: a}]}"),
        "spec.http[0].matches[0].headers[0]: one of `exact`, `prefix`, `regex`, `present`,",
    ),
    (
        match("{headers: [{name: a, prefix: ''}]}"),
        "spec.http[0].matches[0].headers[0].prefix: must not be empty",
    ),
    (
        match("{headers: [{name: a, regex: '('}]}"),
        "spec.http[0].matches[0].headers[0].regex: must be an RE2 expression",
    ),
    (
        match('{headers: [{name: a, exact: "b\\nc"}]}'),
        "spec.http[0].matches[0].headers[0].exact: must have no control characters",
    ),
    (to("{}"), "spec.http[0].destinations[0]: one of `service` or `externalService` is required"),
    (to("{service: A}"), f"spec.http[0].destinations[0].service: {LABEL}"),
    (to("{service: a, namespace: '-'}"), f"spec.http[0].destinations[0].namespace: {LABEL}"),
    (to("{service: a, port: 0}"), "spec.http[0].destinations[0].port: must be from 1 to 65535"),
    (
        to("{externalService: a, labels: {b: c}}"),
        "spec.http[0].destinations[0].labels: an external service has no labels",
    ),
    (
        to("{service: a, labels: {-b: c}}"),
        "spec.http[0].destinations[0].labels[-b]: must be a label's key",
    ),
    (
        to("{service: a, labels: {X/b: c}}"),
        "spec.http[0].destinations[0].labels[X/b]: the part before / must be a DNS subdomain",
    ),
    (
        to("{service: a, labels: {b: 'c d'}}"),
        "spec.http[0].destinations[0].labels[b]: must be a label's value",
    ),
    (
        to("{service: a, weight: 1000001}"),
        "spec.http[0].destinations[0].weight: must be at most 1000000, is 1000001",
    ),
    (
        to("{service: a, weight: 0}", "{service: b, weight: 0}"),
        "spec.http[0].destinations: at least one needs a weight that is not 0",
    ),
    (
        route("{destinations: [{service: a}], redirect: {path: /}}"),
        "spec.http[0]: `destinations` and `redirect` exclude each other",
    ),
    (
        route("{}", parents=GATEWAY),
        "spec.http[0]: under a gateway parent `destinations`, `redirect` or",
    ),
    (
        route("{redirect: {code: 301}}"),
        "spec.http[0].redirect: one of `scheme`, `host`, `port`, `path` or `prefix` is",
    ),
    (
        route("{redirect: {scheme: ftp}}"),
        "spec.http[0].redirect.scheme: must be http or https, is 'ftp'",
    ),
    (route("{redirect: {host: 'a:80'}}"), f"spec.http[0].redirect.host: {HOST} without a port"),
    (route("{redirect: {host: '*.a'}}"), f"spec.http[0].redirect.host: {HOST}"),
    (route("{redirect: {port: 0}}"), "spec.http[0].redirect.port: must be from 1 to 65535"),
    (route("{redirect: {path: a}}"), "spec.http[0].redirect.path: must begin with /"),
    (
        route("{redirect: {path: /, code: 300}}"),
        "spec.http[0].redirect.code: must be one of 301, 302, 303, 307, 308, is 300",
    ),
    (route("{retry: {attempts: 11}}"), "spec.http[0].retry.attempts: must be at most 10, is 11"),
    (
        route("{timeout: 1s, retry: {perTryTimeout: 1001ms}}"),
        "spec.http[0].retry.perTryTimeout: must not be longer than the timeout of the route",
    ),
    (
        route("{retry: {retryOn: [reset, often]}}"),
        "spec.http[0].retry.retryOn[1]: must be one of 5xx, cancelled, connect-failure,",
    ),
]


@pytest.mark.parametrize(("spec", "expected"), BROKEN_ROUTE_RULES)
def test_each_rule_of_a_route_rule_is_told_by_its_field(spec: str, expected: str):
    """One rule broken, one violation."""
    (violation,) = broken(spec)
    assert violation.startswith(expected)


def test_upgrades_are_for_requests_that_are_sent_on():
    """CONNECT at gateways only."""
    connect = "http: [{destinations: [{service: b}], upgrades: {connect: true}}]"
    assert broken(f"parents: [{{gateway: g}}]\n{connect}") == []
    (found,) = broken(f"parents: [{{service: a}}]\n{connect}")
    assert found.startswith("spec.http[0].upgrades.connect: is for rules with a gateway parent")
    answer = "http: [{directResponse: {status: 200}, upgrades: {websocket: false}}]"
    (found,) = broken(f"parents: [{{service: a}}]\n{answer}")
    assert found == "spec.http[0].upgrades: is for requests that are sent on"


@pytest.mark.parametrize("family", ["http", "grpc"])
def test_names_of_statistics(family: str):
    """Nothing that would be another level of names."""
    parents = "parents: [{service: a}]"
    assert broken(f"{parents}\n{family}: [{{statPrefix: check-out_2}}]") == []
    (found,) = broken(f"{parents}\n{family}: [{{statPrefix: check.out}}]")
    assert found.startswith(f"spec.{family}[0].statPrefix: must be 1 to 64 letters")
