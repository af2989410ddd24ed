# SPDX-License-Identifier: Apache-2.0
"""Which matches are never reached, told from rules alone."""

import pytest

from pilothouse.model import keys
from pilothouse.routing import offline
from tests.support import meshes

FAMILIES = ["http", "grpc", "tls", "tcp"]
TO = "destinations: [{service: b}]"
FIRST = "RouteRule/default/r0 takes all of it first"


def told(*specs: str) -> list[str]:
    """The warnings about rules `r0`, `r1` and so on, with the rule's name before each."""
    configs = {}
    for number, spec in enumerate(specs):
        configs.update(meshes.rule(f"r{number}", f"{{{spec}}}", created=number + 1))
    found = offline.unreached(configs)
    return [f"{key.name} {text}" for key, texts in found.items() for text in texts]


@pytest.mark.parametrize("parents", ["[{service: a}]", "[{gateway: g}]", "[{externalService: e}]"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_match_twice(family: str, parents: str):
    """In one rule, and in another one that is older."""
    one = f"parents: {parents}, {family}: [{{{TO}}}, {{{TO}}}]"
    assert told(one) == [f"r0 spec.{family}[1].matches[0] is never reached: {FIRST}"]
    two = f"parents: {parents}, {family}: [{{{TO}}}]"
    assert told(two, two) == [f"r1 spec.{family}[0].matches[0] is never reached: {FIRST}"]


@pytest.mark.parametrize("parents", ["[{service: a}]", "[{gateway: g}]"])
def test_udp_has_one_route(parents: str):
    """So the second one is never reached."""
    (found,) = told(f"parents: {parents}, udp: [{{{TO}}}, {{{TO}}}]")
    assert found.startswith("r0 spec.udp[1].matches[0] is never reached")


@pytest.mark.parametrize(
    ("family", "first", "second"),
    [
        ("http", "{path: {exact: /a}}", "{path: {exact: /a}}"),
        ("http", "{}", "{method: GET}"),
        ("http", "{path: {prefix: /a}}", "{path: {prefix: /a/}}"),
        ("http", "{}", "{port: 80}"),
        ("http", "{port: 80}", "{port: 80}"),
        ("tcp", "{sourceCidrs: [10.0.0.0/8]}", "{sourceCidrs: [10.0.0.0/8]}"),
        ("tls", "{serverNames: [a.example]}", "{serverNames: [A.example]}"),
        ("tls", "{serverNames: [a.example, b.example]}", "{serverNames: [b.example]}"),
        ("grpc", "{service: a.B, method: C}", "{service: a.B, method: C}"),
        ("tcp", "{}", "{source: {namespace: x}}"),
    ],
)
def test_what_an_earlier_match_takes(family: str, first: str, second: str):
    """The earlier one is of higher priority here."""
    parents = "parents: [{service: a}]"
    high = f"{parents}, priority: 1, {family}: [{{matches: [{first}], {TO}}}]"
    low = f"{parents}, {family}: [{{matches: [{second}], {TO}}}]"
    (found,) = told(high, low)
    assert found.startswith(f"r1 spec.{family}[0].matches[0] is never reached")


@pytest.mark.parametrize(
    ("family", "first", "second"),
    [
        ("http", "{path: {exact: /a}}", "{path: {exact: /b}}"),
        ("http", "{port: 80}", "{}"),
        ("http", "{source: {namespace: x}}", "{}"),
        ("http", "{source: {namespace: x}}", "{source: {namespace: y}}"),
        ("tcp", "{sourceCidrs: [10.0.0.0/8]}", "{sourceCidrs: [11.0.0.0/8]}"),
        ("tcp", "{port: 1}", "{}"),
        ("tls", "{serverNames: [a.example]}", "{serverNames: ['*.example']}"),
        ("tls", "{serverNames: [a.example]}", "{}"),
    ],
)
def test_what_is_reached(family: str, first: str, second: str):
    """No warning where some client, at some port, gets there."""
    parents = "parents: [{service: a}]"
    high = f"{parents}, priority: 1, {family}: [{{matches: [{first}], {TO}}}]"
    low = f"{parents}, {family}: [{{matches: [{second}], {TO}}}]"
    assert told(high, low) == []


def test_other_parents_are_other_places():
    """Two rules of two services, and of two hosts."""
    one, two = (f"parents: [{{service: {name}}}], http: [{{{TO}}}]" for name in "ac")
    assert told(one, two) == []
    one, two = (
        f"parents: [{{gateway: g}}], hosts: [{name}.com], http: [{{{TO}}}]" for name in "ac"
    )
    assert told(one, two) == []


def test_gateways_that_are_given_are_those():
    """With their listeners and hosts."""
    gateway = meshes.gateway(
        "g", "{selector: {a: b}, listeners: [{name: x, port: 8080, protocol: HTTP}]}"
    )
    rule = meshes.rule("r", f"{{parents: [{{gateway: g}}], http: [{{{TO}}}, {{{TO}}}]}}")
    found = offline.unreached({**gateway, **rule})
    assert list(found) == [keys.ObjectKey("RouteRule", "default", "r")]
