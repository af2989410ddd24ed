# SPDX-License-Identifier: Apache-2.0
"""The rules of gRPC routes. Expected: the comments of their proto."""

import pytest

from pilothouse.config import validation
from tests.support import configs


def broken(grpc: str, *, parent: str = "service: a") -> list[str]:
    """The violations of a list of routes, as ``FIELD: MESSAGE``; YAML flow style."""
    spec = f"parents: [{{{parent}}}]\ngrpc: [{grpc}]"
    return [str(one) for one in validation.validate(configs.with_spec("RouteRule", spec))]


OK = [
    "{}",
    "{name: a, matches: [{service: shop.v1.Cart, method: _Add2}, {method: Get}, {service: Cart}]}",
    "{matches: [{headers: [{name: a, exact: b}], authority: {suffix: b}, port: 80}]}",
    "{destinations: [{service: a}], timeout: 1s, retry: {retryOn: [unavailable]}}",
    "{requestHeaders: {set: {a: b}}, responseHeaders: {remove: [a]}, rateLimit: {requests: 1}}",
    "{fault: {abort: {grpcStatus: ABORTED}}, mirrors: [{destination: {service: a}}]}",
]


@pytest.mark.parametrize("grpc", OK)
def test_a_right_route_breaks_nothing(grpc: str):
    """What the comments allow; no HTTP route is needed beside it."""
    assert broken(grpc) == []


BROKEN = [
    ("{matches: [{service: shop/Cart}]}", "[0].matches[0].service: must be the full name of a"),
    ("{matches: [{service: .a}]}", "[0].matches[0].service: must be the full name of a service"),
    ("{matches: [{}, {method: a.b}]}", "[0].matches[1].method: must be a method's name"),
    ("{matches: [{headers: [{exact: b}]}]}", "[0].matches[0].headers[0].name: is required"),
    ("{matches: [{port: 0}]}", "[0].matches[0].port: must be from 1 to 65535"),
    ("{destinations: [{}]}", "[0].destinations[0]: one of `service` or `externalService` is"),
    ("{}, {fault: {}}", "[1].fault: one of `delay` or `abort` is required"),
    ("{name: a}, {name: a}", "[1].name: the name a is taken by spec.grpc[0].name"),
]


@pytest.mark.parametrize(("grpc", "expected"), BROKEN)
def test_each_rule_of_a_route_is_told_by_its_field(grpc: str, expected: str):
    """One rule broken, one violation."""
    (violation,) = broken(grpc)
    assert violation.startswith(f"spec.grpc{expected}")


def test_a_gateway_is_no_place_to_end_up_in():
    """So destinations are required there."""
    assert broken("{}", parent="gateway: a") == [
        "spec.grpc[0].destinations: is required under a gateway parent"
    ]
    assert broken("{destinations: [{service: a}]}", parent="gateway: a") == []
