# SPDX-License-Identifier: Apache-2.0
"""gRPC routes as routing reads them."""

import pytest

from pilothouse.routing import parsed, route_rules
from tests.support import meshes


def read(spec: str) -> tuple[parsed.RuleRoute, ...]:
    """The routes of a rule."""
    (config,) = meshes.rule("r", f"{{parents: [{{service: a}}], {spec}}}").values()
    return route_rules.rule(config).routes


@pytest.mark.parametrize(
    ("match", "kind", "path"),
    [
        ("{service: shop.v1.Cart, method: Add}", "exact", "/shop.v1.Cart/Add"),
        ("{service: shop.v1.Cart}", "prefix", "/shop.v1.Cart"),
        ("{method: Add}", "regex", "/[^/]+/Add"),
        ("{}", "any", ""),
    ],
)
def test_the_path_of_a_call(match: str, kind: str, path: str):
    """It is `/SERVICE/METHOD`."""
    (found,) = read(f"grpc: [{{matches: [{match}]}}]")[0].matches
    assert (found.match.path_kind, found.match.path) == (kind, path)


def test_a_route_without_matches_takes_calls_only():
    """Its only condition is that of every gRPC route."""
    (found,) = read("grpc: [{timeout: 1s}]")[0].matches
    assert [header.name for header in found.match.headers] == ["content-type"]


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        ("{service: s.V, method: M}", "{path: {exact: /s.V/M}, method: POST}"),
        ("{service: s.V}", "{path: {prefix: /s.V}, headers: [{name: a, exact: b}]}"),
        ("{}", "{method: POST, queryParameters: [{name: a, exact: b}]}"),
    ],
)
def test_a_call_goes_before_requests_with_the_same_path(call: str, request_: str):
    """Whatever else these test: every call is a POST, so else some route would take them all."""
    http, grpc = read(f"http: [{{matches: [{request_}]}}], grpc: [{{matches: [{call}]}}]")
    assert grpc.matches[0].precedence < http.matches[0].precedence


def test_names_and_places():
    """Each list counts from 0; gRPC routes come after HTTP routes of equal precedence."""
    routes = read("http: [{timeout: 1s}], grpc: [{name: slow, timeout: 1s}, {timeout: 2s}]")
    assert [(one.position, one.field, one.name) for one in routes] == [
        (0, "spec.http[0]", "RouteRule/default/r/0"),
        (1, "spec.grpc[0]", "RouteRule/default/r/grpc/0/slow"),
        (2, "spec.grpc[1]", "RouteRule/default/r/grpc/1"),
    ]


def test_a_call_that_is_never_reached_is_told_by_its_field():
    """As for HTTP routes."""
    mesh = meshes.mesh(
        meshes.service("a"),
        meshes.rule("r", "{parents: [{service: a}], grpc: [{timeout: 1s}, {timeout: 2s}]}"),
    )
    condition = meshes.condition(mesh, "RouteRule", "r", "Conflicted")
    assert condition is not None
    assert condition.message.startswith("spec.grpc[1] (match 0) is never reached at a.default:9080")
