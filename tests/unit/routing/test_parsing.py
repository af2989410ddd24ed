# SPDX-License-Identifier: Apache-2.0
"""Config objects as routing reads them."""

import pytest
from google.protobuf import duration_pb2

from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.routing import parsing, plan, readers, route_rules
from tests.support import meshes


def only(found: dict[keys.ObjectKey, objects.Config]) -> objects.Config:
    (config,) = found.values()
    return config


def route(text: str):
    """The only route of a rule."""
    (found,) = route_rules.rule(
        only(meshes.rule("r", f"{{parents: [{{service: a}}], http: [{text}]}}"))
    ).routes
    return found


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        (duration_pb2.Duration(), 0),
        (duration_pb2.Duration(seconds=2, nanos=500_000_000), 2500),
        (duration_pb2.Duration(nanos=1), 1),
        (duration_pb2.Duration(nanos=1_000_001), 2),
    ],
)
def test_durations_are_rounded_up(duration: duration_pb2.Duration, milliseconds: int):
    """A tiny limit must not become 0, which means none."""
    assert readers.milliseconds(duration) == milliseconds


@pytest.mark.parametrize(
    ("path", "kind", "value"),
    [
        ("{}", "any", ""),
        ("{path: {prefix: /}}", "any", ""),
        ("{path: {prefix: /foo}}", "prefix", "/foo"),
        ("{path: {prefix: /foo/}}", "prefix", "/foo"),
        ("{path: {exact: /foo/}}", "exact", "/foo/"),
        ("{path: {regex: '/a.*'}}", "regex", "/a.*"),
    ],
)
def test_paths(path: str, kind: str, value: str):
    """A prefix loses its trailing slash; `/` is any path."""
    (match,) = route(f"{{matches: [{path}], redirect: {{path: /x}}}}").matches
    assert (match.match.path_kind, match.match.path) == (kind, value)


def test_headers():
    """Names in lower case, in one order, each test once."""
    (match,) = route(
        "{matches: [{headers: [{name: X-B, present: false}, {name: x-a, prefix: p},"
        " {name: x-c, regex: '.'}, {name: x-d, present: true}, {name: x-e, exact: v}]}],"
        " redirect: {path: /x}}"
    ).matches
    assert match.match.headers == (
        plan.HeaderMatch(name="x-a", kind="prefix", value="p"),
        plan.HeaderMatch(name="x-b", kind="absent"),
        plan.HeaderMatch(name="x-c", kind="regex", value="."),
        plan.HeaderMatch(name="x-d", kind="present"),
        plan.HeaderMatch(name="x-e", kind="exact", value="v"),
    )


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        ("", plan.Retry(attempts=2, retry_on=("connect-failure", "refused-stream"))),
        (", retry: {attempts: 0}", None),
        (
            ", retry: {attempts: 3, perTryTimeout: 500ms, retryOn: [reset, 5xx]}",
            plan.Retry(attempts=3, per_try_timeout_ms=500, retry_on=("reset", "5xx")),
        ),
        (
            (
                ", retry: {statusCodes: [503, 409], responseHeaders: [{name: X-A, present: true}],"
                " backOff: {base: 5ms, max: 1s}, perTryIdleTimeout: 2s, previousHosts: true,"
                " otherPriorities: true}"
            ),
            plan.Retry(
                retry_on=(
                    "connect-failure",
                    "refused-stream",
                    "retriable-status-codes",
                    "retriable-headers",
                ),
                status_codes=(409, 503),
                response_headers=(plan.HeaderMatch(name="x-a", kind="present"),),
                back_off_ms=5,
                max_back_off_ms=1000,
                per_try_idle_timeout_ms=2000,
                previous_hosts=True,
                other_priorities=True,
            ),
        ),
        (
            ", retry: {retryOn: [retriable-status-codes], statusCodes: [409]}",
            plan.Retry(retry_on=("retriable-status-codes",), status_codes=(409,)),
        ),
        (", retry: {perTryTimeout: 1s}", plan.Retry(per_try_timeout_ms=1000)),
    ],
)
def test_retries(retry: str, expected: plan.Retry | None):
    """Twice where the request provably was not processed, unless the rule says otherwise."""
    assert route(f"{{timeout: 2s{retry}}}").retry == expected


@pytest.mark.parametrize(
    ("redirect", "expected"),
    [
        ("{host: a.com}", plan.Redirect(host="a.com")),
        (
            "{scheme: https, host: a.com, port: 8443, path: /x, code: 308}",
            plan.Redirect(code=308, scheme="https", host="a.com", port=8443, path="/x"),
        ),
    ],
)
def test_redirects(redirect: str, expected: plan.Redirect):
    """What is not said stays as in the request; the code is 302."""
    assert route(f"{{redirect: {redirect}}}").answer == expected


def test_names_of_routes():
    """Kind, namespace, name and position; and the route's own name where it has one."""
    rule = route_rules.rule(
        only(
            meshes.rule(
                "r.shop",
                "{parents: [{service: a}], http: [{timeout: 1s}, {name: slow, timeout: 2s}]}",
            )
        )
    )
    assert [one.name for one in rule.routes] == ["RouteRule/shop/r/0", "RouteRule/shop/r/1/slow"]


def test_external_hosts_are_compared_as_dns_does():
    """Without case; without endpoints the first host as written is the one to ask for."""
    found = parsing.external(
        only(meshes.external("e", "{hosts: [b.example, a.example], ports: [{number: 80}]}"))
    )
    assert found.hosts == ("b.example", "a.example")
    assert found.addresses == ("b.example",)


def test_other_kinds_and_other_mesh_configs_are_left_alone():
    """Only one MeshConfig counts."""
    other = only(meshes.tracing("{address: 192.0.2.1}"))
    key = keys.ObjectKey("MeshConfig", "default", "default")
    found = meshes.mesh({key: other}, {keys.ObjectKey("Gadget", "a", "b"): other})
    assert meshes.planned(found, meshes.sidecar()).layers[-1].clusters == ()
