# SPDX-License-Identifier: Apache-2.0
"""The rules of what a RouteRule does with requests. Expected: the comments of its proto."""

import base64

import pytest

from pilothouse.api.config.v1alpha1 import http_actions_pb2
from pilothouse.config import reading, regexes, validation
from tests.support import configs

BASE64 = "base64, with the letters of RFC 4648, section 4"
ROUTE = "spec.http[0]"
TEMPLATE = "matches: [{path: {template: '/a/{b}'}}]"


def broken(route: str) -> list[str]:
    """The violations of a route, as ``FIELD: MESSAGE``; YAML flow style without its braces."""
    spec = f"parents: [{{service: a}}]\nhttp: [{{{route}}}]"
    return [str(one) for one in validation.validate(configs.with_spec("RouteRule", spec))]


OK = [
    "rewrite: {prefix: /new}",
    "matches: [{path: {prefix: /a}}, {path: {stringPrefix: /b}}, {}], rewrite: {prefix: /}",
    "rewrite: {full: /}",
    "rewrite: {regex: {pattern: '(a)(?P<b>c)', substitution: '\\2\\1\\0\\\\9'}}",
    "rewrite: {regex: {pattern: a}}",
    f"{TEMPLATE}, rewrite: {{template: '/x-{{b}}/{{b}}'}}",
    "rewrite: {host: a.example.com:8080}",
    "rewrite: {host: '[::1]:80'}",
    "rewrite: {host: '[::1]'}",
    "rewrite: {full: /a, destinationHost: true}",
    "matches: [{path: {prefix: /a}}], redirect: {prefix: /b, stripQuery: true}",
    "retry: {statusCodes: [100, 599], responseHeaders: [{name: a, present: true}]}",
    "retry: {retryOn: [retriable-status-codes], statusCodes: [409]}",
    "retry: {backOff: {base: 1ms}, perTryIdleTimeout: 1ms, previousHosts: true}",
    "retry: {backOff: {base: 2s, max: 2s}, otherPriorities: true}",
    "directResponse: {status: 599, body: a}",
    "directResponse: {status: 204}",
    "directResponse: {status: 200, bodyBytes: AP+A}",
    f"directResponse: {{status: 200, bodyBytes: {base64.b64encode(b'a' * 4096).decode()}}}",
    f"directResponse: {{status: 200, body: {'a' * 4096}}}",
]


@pytest.mark.parametrize("route", OK)
def test_a_right_route_breaks_nothing(route: str):
    """What the comments allow."""
    assert broken(route) == []


BROKEN = [
    ("rewrite: {}", "rewrite: one of `prefix`, `full`, `regex`, `template`, `host` or"),
    ("rewrite: {prefix: a}", "rewrite.prefix: must begin with /"),
    ("rewrite: {prefix: ''}", "rewrite.prefix: must begin with /"),
    (
        "matches: [{}, {path: {exact: /a}}], rewrite: {prefix: /b}",
        "rewrite.prefix: needs a prefix to replace; matches[1].path has none",
    ),
    ("rewrite: {full: '/a?b'}", "rewrite.full: must be a path without query"),
    ("rewrite: {regex: {}}", "rewrite.regex.pattern: must not be empty"),
    (
        "rewrite: {regex: {pattern: '(?:a)', substitution: '\\1'}}",
        "rewrite.regex.substitution: \\1 stands for no group; the pattern has 0",
    ),
    (
        "rewrite: {regex: {pattern: a, substitution: '\\n'}}",
        "rewrite.regex.substitution: may have a backslash before a digit or a backslash only",
    ),
    (
        "rewrite: {regex: {pattern: a, substitution: 'b\\'}}",
        "rewrite.regex.substitution: may have a backslash before a digit or a backslash only",
    ),
    (
        "rewrite: {template: /a}",
        "rewrite.template: needs a template to take names from; matches[0].path has none",
    ),
    (
        f"{TEMPLATE}, rewrite: {{template: '/{{c}}/{{b}}/{{d}}'}}",
        "rewrite.template: matches[0].path.template has no {c}, {d}",
    ),
    (f"{TEMPLATE}, rewrite: {{template: '/*'}}", "rewrite.template: may have {name} and what"),
    (f"{TEMPLATE}, rewrite: {{template: '{{b}}'}}", "rewrite.template: must begin with /"),
    (
        f"{TEMPLATE}, rewrite: {{template: /{'a' * 256}}}",
        "rewrite.template: must be at most 256 characters, has 257",
    ),
    ("rewrite: {host: ''}", "rewrite.host: is required"),
    ("rewrite: {host: 'a b'}", "rewrite.host: must be a host name"),
    ("rewrite: {host: 'a:0'}", "rewrite.host: must be from 1 to 65535"),
    ("redirect: {path: /a}, rewrite: {full: /b}", "rewrite: is for requests that are sent on"),
    ("redirect: {path: /a, prefix: /b}", "redirect: `path` and `prefix` exclude each other"),
    (
        "matches: [{path: {regex: /a}}], redirect: {prefix: /b}",
        "redirect.prefix: needs a prefix to replace; matches[0].path has none",
    ),
    (
        "retry: {retryOn: [reset, retriable-status-codes]}",
        "retry.retryOn[1]: needs `statusCodes`",
    ),
    ("retry: {retryOn: [retriable-headers]}", "retry.retryOn[0]: needs `responseHeaders`"),
    ("retry: {statusCodes: [99]}", "retry.statusCodes[0]: must be from 100 to 599, is 99"),
    ("retry: {statusCodes: [409, 409]}", "retry.statusCodes[1]: the status 409 is taken by"),
    ("retry: {responseHeaders: [{name: a}]}", "retry.responseHeaders[0]: one of `exact`,"),
    ("retry: {backOff: {}}", "retry.backOff.base: must be greater than 0s"),
    (
        "retry: {backOff: {base: 2s, max: 1s}}",
        "retry.backOff.max: must not be less than `base`",
    ),
    ("retry: {perTryIdleTimeout: 0s}", "retry.perTryIdleTimeout: must be greater than 0s"),
    ("directResponse: {}", "directResponse.status: is required"),
    ("directResponse: {status: 199}", "directResponse.status: must be from 200 to 599, is 199"),
    ("directResponse: {status: 600}", "directResponse.status: must be from 200 to 599, is 600"),
    (
        f"directResponse: {{status: 200, body: {'é' * 2049}}}",
        "directResponse.body: must be at most 4096 bytes in UTF-8, is 4098",
    ),
    (
        f"directResponse: {{status: 200, bodyBytes: {base64.b64encode(b'a' * 4097).decode()}}}",
        "directResponse.bodyBytes: must be at most 4096 bytes, is 4097",
    ),
    (
        "directResponse: {status: 204, bodyBytes: AA==}",
        "directResponse.bodyBytes: must be empty for the status 204",
    ),
    (
        "directResponse: {status: 200, body: a, bodyBytes: AA==}",
        "directResponse: `body` and `bodyBytes` exclude each other; set one of them",
    ),
    (
        "directResponse: {status: 304, body: a}",
        "directResponse.body: must be empty for the status 304",
    ),
]


@pytest.mark.parametrize(("route", "expected"), BROKEN)
def test_each_rule_of_a_route_is_told_by_its_field(route: str, expected: str):
    """One rule broken, one violation."""
    (violation,) = broken(route)
    assert violation.startswith(f"{ROUTE}.{expected}")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (5, "must be base64, is the number 5"),
        ("AA=", f"must be {BASE64}"),
        ("_w==", f"must be {BASE64}"),
        ("é", f"must be {BASE64}"),
    ],
)
def test_what_is_no_base64_is_told(written: object, said: str):
    """The letters are those of RFC 4648, section 4, with its padding."""
    into = http_actions_pb2.DirectResponse()
    assert list(map(str, reading.read(into, {"bodyBytes": written}, path="a"))) == [
        f"a.bodyBytes: {said}"
    ]


def test_base64_may_have_several_lines():
    """As tools write it that break long lines."""
    into = http_actions_pb2.DirectResponse()
    assert reading.read(into, {"bodyBytes": "AP\n+A\n"}, path="") == ()
    assert into.body_bytes == b"\x00\xff\x80"


def test_only_one_thing_happens_to_a_request():
    """It is sent on, redirected or answered."""
    (violation,) = broken("redirect: {path: /a}, directResponse: {status: 200}")
    assert violation.startswith(f"{ROUTE}: `redirect` and `directResponse` exclude each other")


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [("a", 0), ("(a)(b(c))", 3), ("(?:a)(?i)(?P<n>b)(?<m>c)", 2), ("[(](\\()", 1), ("(", 0)],
)
def test_groups_of_a_pattern(pattern: str, groups: int):
    """Those that capture, and only when RE2 compiles the pattern."""
    assert regexes.groups(pattern) == groups
