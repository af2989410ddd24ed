# SPDX-License-Identifier: Apache-2.0
"""Matches as routing reads them, and their order."""

import itertools

import pytest

from pilothouse.routing import parsed, plan, route_rules
from tests.support import calls, meshes


def read(match: str) -> parsed.Match:
    """The only match of a rule."""
    (config,) = meshes.rule("r", f"{{parents: [{{service: a}}], http: [{{matches: [{match}]}}]}}")
    return (
        route_rules.rule(
            meshes.rule("r", f"{{parents: [{{service: a}}], http: [{{matches: [{match}]}}]}}")[
                config
            ]
        )
        .routes[0]
        .matches[0]
    )


@pytest.mark.parametrize(
    ("path", "kind", "value"),
    [
        ("{stringPrefix: /}", "any", ""),
        ("{stringPrefix: /foo/}", "string_prefix", "/foo/"),
        ("{template: '/a/{b}'}", "template", "/a/{b}"),
    ],
)
def test_paths(path: str, kind: str, value: str):
    """Every path has the prefix `/`, whichever kind of prefix is meant."""
    match = read(f"{{path: {path}}}").match
    assert (match.path_kind, match.path) == (kind, value)


def test_case_of_a_path_that_is_any_path_says_nothing():
    """So that such a match equals the one without."""
    assert read("{path: {prefix: /, ignoreCase: true}}").match == parsed.ANYTHING


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            "{name: X-A, suffix: b, ignoreCase: true}",
            plan.HeaderMatch(name="x-a", kind="suffix", value="b", ignore_case=True),
        ),
        (
            "{name: a, contains: b, invert: true}",
            plan.HeaderMatch(name="a", kind="contains", value="b", invert=True),
        ),
        (
            "{name: a, range: {min: -1}}",
            plan.HeaderMatch(name="a", kind="range", low=-1, high=2**63 - 2),
        ),
        (
            "{name: a, range: {max: 0}, invert: true}",
            plan.HeaderMatch(name="a", kind="range", low=-(2**63), high=0, invert=True),
        ),
    ],
)
def test_headers(header: str, expected: plan.HeaderMatch):
    """Each kind of test, with case and sense."""
    assert read(f"{{headers: [{header}]}}").match.headers == (expected,)


def test_query_parameters():
    """In one order, each test once."""
    match = read(
        "{queryParameters: [{name: b, present: false}, {name: a, prefix: p}, {name: c, present:"
        " true}, {name: a, prefix: p}, {name: d, exact: v}, {name: e, regex: '.'}]}"
    ).match
    assert match.query == (
        plan.QueryMatch(name="a", kind="prefix", value="p"),
        plan.QueryMatch(name="b", kind="absent"),
        plan.QueryMatch(name="c", kind="present"),
        plan.QueryMatch(name="d", kind="exact", value="v"),
        plan.QueryMatch(name="e", kind="regex", value="."),
    )


ORDER = [
    "{path: {exact: /a}}",
    "{path: {exact: /a, ignoreCase: true}}",
    "{path: {template: '/users/{id}/orders'}}",  # 14 literal characters
    "{path: {prefix: /users/7}}",
    "{path: {template: '/users/{id}'}}",  # 7 of them
    "{path: {prefix: /users}}",
    "{path: {prefix: /users, ignoreCase: true}}",
    "{path: {stringPrefix: /users}}",
    "{path: {regex: '/[a-z]+'}}",
    "{method: GET}",
    "{cookies: [{name: c, present: true}], scheme: http, queryParameters: [{name: q, exact: a}]}",
    "{cookies: [{name: c, present: true}], authority: {prefix: a}}",
    "{headers: [{name: c, present: true}], queryParameters: [{name: q, exact: a}]}",
    "{headers: [{name: c, present: true}]}",
    "{queryParameters: [{name: q, exact: a}, {name: r, exact: a}]}",
    "{queryParameters: [{name: q, exact: a}]}",
    "{}",
]


def test_the_order_of_matches():
    """As published: the more a match says, the earlier it is asked."""
    precedences = [read(match).precedence for match in ORDER]
    assert all(one < after for one, after in itertools.pairwise(precedences))


def test_a_match_for_another_port_takes_nothing():
    """At each port of a parent only the matches for it count."""
    mesh = meshes.mesh(
        meshes.service("shop", 80, 81),
        meshes.rule(
            "shop",
            "{parents: [{service: shop}], http: [{matches: [{port: 81}], redirect: {path: /x}}]}",
        ),
    )
    plan = mesh.plan(meshes.sidecar())
    assert calls.get(plan, "http://shop:80/").status == 0
    assert calls.get(plan, "http://shop:81/").status == 302
