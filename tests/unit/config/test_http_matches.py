# SPDX-License-Identifier: Apache-2.0
"""The rules of a RouteRule's matches. Expected: the comments of its proto."""

import pytest

from pilothouse.config import validation
from tests.support import configs

WHERE = "spec.http[0].matches[0]"


def broken(match: str) -> list[str]:
    """The violations of a match, as ``FIELD: MESSAGE``."""
    spec = f"parents: [{{service: a}}]\nhttp: [{{matches: [{match}]}}]"
    return [str(one) for one in validation.validate(configs.with_spec("RouteRule", spec))]


OK = [
    "{path: {stringPrefix: /a, ignoreCase: true}}",
    "{path: {exact: /a, ignoreCase: true}}",
    "{path: {prefix: /a, ignoreCase: true}}",
    "{path: {stringPrefix: /a/.}}",
    "{path: {stringPrefix: /a/..b}}",
    "{path: {stringPrefix: /a%2Fb%}}",
    "{path: {exact: /a%2Fb%20.c/...}}",
    "{path: {prefix: /a/}}",
    "{path: {template: '/users/{id}/orders/*/**'}}",
    "{path: {template: '/a/{b=*}/{c}/{d}/{e}/{f=**}'}}",
    "{headers: [{name: a, suffix: b}, {name: a, contains: b, ignoreCase: true, invert: true}]}",
    "{headers: [{name: a, range: {}}, {name: a, range: {min: 3, max: 3}, invert: true}]}",
    "{headers: [{name: a, range: {min: -9223372036854775808, max: 9223372036854775806}}]}",
    "{headers: [{name: a, regex: b, invert: true}, {name: a, exact: ''}]}",
    "{queryParameters: [{name: q, exact: ''}, {name: 'a b', regex: '.'}, {name: q, prefix: a}]}",
    "{queryParameters: [{name: q, present: false}]}",
    "{cookies: [{name: c, exact: ''}, {name: c, prefix: a=b}, {name: c, present: false}]}",
    "{scheme: https, port: 443}",
    "{authority: {exact: A.example.com}}",
    "{authority: {prefix: a}}",
    "{authority: {suffix: .example.com}}",
    "{authority: {regex: '[a-z]+'}}",
]


@pytest.mark.parametrize("match", OK)
def test_a_right_match_breaks_nothing(match: str):
    """What the comments allow."""
    assert broken(match) == []


BROKEN = [
    ("{path: {stringPrefix: a}}", "path.stringPrefix: must begin with /"),
    ("{path: {exact: /a//b}}", "path.exact: must be as it is when routes are matched, '/a/b', is"),
    ("{path: {exact: /a/.}}", "path.exact: must be as it is when routes are matched, '/a/', is"),
    ("{path: {exact: /a/../b}}", "path.exact: must be as it is when routes are matched, '/b', is"),
    ("{path: {prefix: /a/./b}}", "path.prefix: must be as it is when routes are matched, '/a/b'"),
    ("{path: {prefix: //}}", "path.prefix: must be as it is when routes are matched, '/', is '//"),
    ("{path: {prefix: '/%7Ea'}}", "path.prefix: must be as it is when routes are matched, '/~a'"),
    (r"{path: {prefix: '/a\b'}}", "path.prefix: must be as it is when routes are matched, '/a/b'"),
    ("{path: {stringPrefix: /a//}}", "path.stringPrefix: must be as it is when routes are matched"),
    ("{path: {stringPrefix: /./a}}", "path.stringPrefix: must be as it is when routes are matched"),
    ("{path: {stringPrefix: /a%61}}", "path.stringPrefix: must be as it is when routes are match"),
    ("{path: {template: '/{a}/../b'}}", "path.template: must be as it is when routes are matched"),
    ("{path: {template: a}}", "path.template: must begin with /"),
    ("{path: {template: /a//b}}", "path.template: may have `*`, `**`, `{name}`"),
    ("{path: {template: '/a*'}}", "path.template: may have `*`, `**`, `{name}`"),
    ("{path: {template: '/{1}'}}", "path.template: may have `*`, `**`, `{name}`"),
    ("{path: {template: '/{abcdefghijklmnopq}'}}", "path.template: may have `*`"),
    ("{path: {template: '/a?b'}}", "path.template: may have `*`, `**`, `{name}`"),
    (f"{{path: {{template: /{'a' * 256}}}}}", "path.template: must be at most 256 characters"),
    ("{path: {template: '/**/a'}}", "path.template: may have ** only as its last element"),
    ("{path: {template: '/{a=**}/b'}}", "path.template: may have ** only as its last element"),
    ("{path: {template: '/{a}/{a}'}}", "path.template: must have each name once"),
    (
        "{path: {template: '/{a}/{b}/{c}/{d}/{e}/{f}'}}",
        "path.template: may have at most 5 names, has 6",
    ),
    ("{path: {regex: /a, ignoreCase: true}}", "path.ignoreCase: is for `exact`, `prefix` and"),
    ("{path: {template: /a, ignoreCase: true}}", "path.ignoreCase: is for `exact`, `prefix` and"),
    ("{headers: [{name: a, suffix: ''}]}", "headers[0].suffix: must not be empty; use `present`"),
    ("{headers: [{name: a, contains: ''}]}", "headers[0].contains: must not be empty"),
    (
        "{headers: [{name: a, range: {min: 3, max: 2}}]}",
        "headers[0].range.max: must not be below `min`, 3, is 2",
    ),
    (
        "{headers: [{name: a, range: {max: 9223372036854775807}}]}",
        "headers[0].range.max: must be at most 9223372036854775806",
    ),
    (
        "{headers: [{name: a, regex: b, ignoreCase: true}]}",
        "headers[0].ignoreCase: is for `exact`, `prefix`, `suffix` and `contains` only",
    ),
    ("{headers: [{name: a, present: true, invert: true}]}", "headers[0].invert: is not for `pres"),
    ("{headers: [{name: a, exact: '', invert: true}]}", "headers[0].invert: is not for an empty"),
    (f"{{queryParameters: [{{name: {'é' * 513}, exact: a}}]}}", "queryParameters[0].name: must be"),
    ("{queryParameters: [{exact: a}]}", "queryParameters[0].name: is required"),
    (
        "{queryParameters: [{name: a}]}",
        "queryParameters[0]: one of `exact`, `prefix`, `regex` or `present` is required",
    ),
    ("{queryParameters: [{name: a, prefix: ''}]}", "queryParameters[0].prefix: must not be empty"),
    ("{queryParameters: [{name: a, regex: '('}]}", "queryParameters[0].regex: must be an RE2"),
    ("{cookies: [{name: 'a b', exact: a}]}", "cookies[0].name: must be the name of a cookie"),
    ("{cookies: [{name: a}]}", "cookies[0]: one of `exact`, `prefix` or `present` is required"),
    ("{cookies: [{name: a, exact: 'b;c'}]}", "cookies[0].exact: must be the value of a cookie"),
    ("{cookies: [{name: a, prefix: ''}]}", "cookies[0].prefix: must not be empty"),
    ("{cookies: [{name: a, prefix: 'b c'}]}", "cookies[0].prefix: must be the value of a cookie"),
    ("{scheme: ftp}", "scheme: must be http or https, is 'ftp'"),
    ("{authority: {}}", "authority: one of `exact`, `prefix`, `suffix` or `regex` is required"),
    ("{authority: {exact: 'a:80'}}", "authority.exact: must be a host name without a port"),
    ("{authority: {prefix: ''}}", "authority.prefix: must not be empty"),
    ("{authority: {regex: '('}}", "authority.regex: must be an RE2 expression"),
    ("{port: 0}", "port: must be from 1 to 65535"),
]


@pytest.mark.parametrize(("match", "expected"), BROKEN)
def test_each_rule_of_a_match_is_told_by_its_field(match: str, expected: str):
    """One rule broken, one violation."""
    (violation,) = broken(match)
    assert violation.startswith(f"{WHERE}.{expected}")
