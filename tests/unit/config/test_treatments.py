# SPDX-License-Identifier: Apache-2.0
"""The rules of what a RouteRule does with requests and answers. Expected: its proto's comments."""

import pytest

from pilothouse.config import validation
from tests.support import configs

ROUTE = "spec.http[0]"


def broken(route: str) -> list[str]:
    """The violations of a route, as ``FIELD: MESSAGE``; YAML flow style without its braces."""
    spec = f"parents: [{{service: a}}]\nhttp: [{{{route}}}]"
    return [str(one) for one in validation.validate(configs.with_spec("RouteRule", spec))]


OK = [
    "requestHeaders: {set: {X-A: '', b: '%'}, add: {x-a: c}, remove: [x-a, X-B]}",
    "responseHeaders: {remove: [server]}",
    f"responseHeaders: {{set: {{a: {'a' * 16384}}}}}",
    "redirect: {path: /a}, responseHeaders: {set: {a: b}}",
    "fault: {delay: {duration: 1ms, percent: 0.0001}, abort: {httpStatus: 200, percent: 33.3333}}",
    "fault: {abort: {grpcStatus: UNAVAILABLE, percent: 0}, headers: [{name: a, exact: b}]}",
    "redirect: {path: /a}, fault: {abort: {httpStatus: 599, percent: 100}}",
    "mirrors: [{destination: {service: b, labels: {c: d}}, percent: 0.5}]",
    "cors: {allowOrigins: [{exact: '*'}, {prefix: a}, {suffix: b}, {regex: '.'}]}",
    (
        "cors: {allowOrigins: [{exact: a}], allowMethods: [PUT, '*'], allowHeaders: [X-A, '*'],"
        " exposeHeaders: ['*'], maxAge: 0s, allowCredentials: true,"
        " answerUnmatchedPreflights: true}"
    ),
    "rateLimit: {requests: 1}, maxRequestBytes: 1",
    "rateLimit: {requests: 5, per: 50ms, burst: 5}, maxRequestBytes: 4294967295",
    "destinations: [{service: a, requestHeaders: {set: {a: b}}, responseHeaders: {add: {a: b}}}]",
]


@pytest.mark.parametrize("route", OK)
def test_a_right_route_breaks_nothing(route: str):
    """What the comments allow."""
    assert broken(route) == []


BROKEN = [
    ("requestHeaders: {}", "requestHeaders: one of `set`, `add` or `remove` is required"),
    ("requestHeaders: {set: {':path': a}}", "requestHeaders.set[:path]: the header :path cannot"),
    ("requestHeaders: {add: {Host: a}}", "requestHeaders.add[Host]: the header Host cannot be"),
    (
        "responseHeaders: {remove: [Content-Length]}",
        "responseHeaders.remove[0]: the header Content-Length cannot be changed",
    ),
    ("requestHeaders: {set: {'a b': c}}", "requestHeaders.set[a b]: must be a header name"),
    ("requestHeaders: {remove: ['']}", "requestHeaders.remove[0]: is required"),
    ('requestHeaders: {set: {a: "b\\nc"}}', "requestHeaders.set[a]: must have no control"),
    (
        f"requestHeaders: {{set: {{a: '{'%' * 8193}'}}}}",
        "requestHeaders.set[a]: must be at most 16384 bytes in UTF-8, of which a % counts as two",
    ),
    (
        "requestHeaders: {set: {a: b, A: c}}",
        "requestHeaders.set[a]: the header a is taken by spec.http[0].requestHeaders.set[A]",
    ),
    (
        "requestHeaders: {remove: [a, A]}",
        "requestHeaders.remove[1]: the header a is taken by",
    ),
    (
        "directResponse: {status: 200}, requestHeaders: {set: {a: b}}",
        "requestHeaders: is for requests that are sent on",
    ),
    ("mirrors: [{}]", "mirrors[0].destination: one of `service` or `externalService` is required"),
    (
        "mirrors: [{destination: {service: b, weight: 1}}]",
        "mirrors[0].destination.weight: is not for a mirror",
    ),
    (
        "mirrors: [{destination: {service: b}, percent: 101}]",
        "mirrors[0].percent: must be from 0 to 100, is 101",
    ),
    (
        "redirect: {path: /a}, mirrors: [{destination: {service: b}}]",
        "mirrors[0]: is for requests that are sent on",
    ),
    ("cors: {}", "cors.allowOrigins: at least one is required"),
    ("cors: {allowOrigins: [{}]}", "cors.allowOrigins[0]: one of `exact`, `prefix`, `suffix` or"),
    ("cors: {allowOrigins: [{exact: ''}]}", "cors.allowOrigins[0].exact: is required"),
    ("cors: {allowOrigins: [{regex: '('}]}", "cors.allowOrigins[0].regex: must be an RE2"),
    (
        "cors: {allowOrigins: [{exact: a}], allowMethods: [get]}",
        "cors.allowMethods[0]: must be an HTTP method in capitals",
    ),
    (
        "cors: {allowOrigins: [{exact: a}], allowHeaders: [a, ':path']}",
        "cors.allowHeaders[1]: must be a header name",
    ),
    (
        "cors: {allowOrigins: [{exact: a}], exposeHeaders: ['']}",
        "cors.exposeHeaders[0]: is required",
    ),
    (
        "cors: {allowOrigins: [{exact: a}], maxAge: 1500ms}",
        "cors.maxAge: must be whole seconds",
    ),
    (
        "cors: {allowOrigins: [{exact: a}, {exact: '*'}], allowCredentials: true}",
        "cors.allowCredentials: is not for an origin of *",
    ),
    ("rateLimit: {}", "rateLimit.requests: is required: a number greater than 0"),
    ("rateLimit: {requests: 1, per: 49ms}", "rateLimit.per: must be at least 50ms"),
    (
        "rateLimit: {requests: 2, burst: 1}",
        "rateLimit.burst: must be at least `requests`, 2, is 1",
    ),
    ("maxRequestBytes: 0", "maxRequestBytes: must be at least 1, is 0"),
    ("fault: {}", "fault: one of `delay` or `abort` is required"),
    ("fault: {delay: {}}", "fault.delay.duration: must be greater than 0s"),
    (
        "fault: {delay: {duration: 1s, percent: 100.1}}",
        "fault.delay.percent: must be from 0 to 100, is 100.1",
    ),
    ("fault: {abort: {}}", "fault.abort: one of `httpStatus` or `grpcStatus` is required"),
    ("fault: {abort: {httpStatus: 199}}", "fault.abort.httpStatus: must be from 200 to 599"),
    ("fault: {abort: {grpcStatus: OK}}", "fault.abort.grpcStatus: must be one of CANCELLED, UN"),
    (
        "fault: {abort: {httpStatus: 500, percent: 0.00001}}",
        "fault.abort.percent: must be in steps of 0.0001, is 1e-05",
    ),
    (
        "fault: {abort: {httpStatus: 500}, headers: [{name: a}]}",
        "fault.headers[0]: one of `exact`,",
    ),
    (
        "destinations: [{service: a, responseHeaders: {}}]",
        "destinations[0].responseHeaders: one of `set`, `add` or `remove` is required",
    ),
]


@pytest.mark.parametrize(("route", "expected"), BROKEN)
def test_each_rule_of_a_route_is_told_by_its_field(route: str, expected: str):
    """One rule broken, one violation."""
    (violation,) = broken(route)
    assert violation.startswith(f"{ROUTE}.{expected}")
