# SPDX-License-Identifier: Apache-2.0
"""Many Ingresses together: the older wins, and order means nothing."""

import hypothesis
from hypothesis import strategies

from pilothouse.model import keys
from tests.support import requests
from tests.support.ingresses import (
    DEFAULT,
    SIMPLE,
    TLS,
    aged,
    backend,
    condition,
    convert,
    ingress_class,
    key,
    make,
    message,
    path,
    rule,
)


def test_ingresses_of_one_host_are_united_and_the_oldest_wins():
    """A path that two have goes to the older one, and the younger is told who has it."""
    output = convert(
        make("x", rule("a.com", path("/p", "a"), path("/x", "a")), metadata=aged(2)),
        make("y", rule("a.com", path("/p/", "b"), path("/y", "b")), metadata=aged(1)),
    )
    assert requests.answer(output.configs, "a.com", "/x") == "default/a:80"
    assert requests.answer(output.configs, "a.com", "/y") == "default/b:80"
    assert requests.answer(output.configs, "a.com", "/p") == "default/b:80"
    assert message(output, "x", "Conflicted") == (
        "spec.rules[0].http.paths[0]: /p of a.com is taken by Ingress/default/y"
    )
    assert condition(output, "y", "Conflicted") is None


def test_equal_age_goes_by_namespace_and_name():
    """Also when no time is known at all."""
    elsewhere = make("a", rule("a.com", path("/", "a")), metadata=", namespace: zoo")
    output = convert(
        elsewhere,
        make("y", rule("a.com", path("/", "b"))),
        make("x", rule("a.com", path("/", "c"))),
    )
    assert requests.answer(output.configs, "a.com", "/") == "default/c:80"


def test_rules_carry_age_generation_and_origin_of_their_ingress():
    """So routing orders them by age, and status finds its way back."""
    output = convert(make("x", SIMPLE, metadata=f"{aged(1)}, generation: 7"))
    (derived,) = [each for each in output.configs if each.key.kind == "RouteRule"]
    assert derived.key == keys.ObjectKey("RouteRule", "default", "x-example.com")
    assert derived.meta.origins == (key("x"),)
    assert derived.meta.generation == 7
    assert derived.meta.created == 1767225600 * 10**9
    assert derived.source == "ingress"


def test_names_of_rules_are_unique():
    """Where INGRESS-HOST could mean two things, a hash tells them apart."""
    output = convert(
        make("a", rule("b-c.d", path("/", "a")), rule("*.d", path("/", "a"))),
        make("a-b", rule("c.d", path("/", "a")), rule("*.d", path("/", "a"))),
        make("x" * 80, rule(f"{'y' * 63}.{'z' * 63}.com", path("/", "a"))),
        make("x" * 81, rule(f"{'y' * 63}.{'z' * 63}.com", path("/", "a")), default=backend("b")),
        make("all", rule("", path("/", "a")), default=backend("b"), tls="{secretName: cert}"),
        make("a.b", rule("c.d", path("/", "a"))),
        usable=["cert"],
    )
    names = [each.key for each in output.configs]
    assert len(names) == len(set(names))
    assert keys.ObjectKey("RouteRule", "default", "a-b-c.d") in names


MANY = (
    make(
        "x",
        rule("", path("/", "a")),
        rule("*.foo.com", path("/", "b")),
        rule("foo.com", path("/x", "c")),
    ),
    make("y", default=backend("b"), metadata=aged(3)),
    make("z", rule("*.foo.com", path("/", "c"), path("/z", "c")), tls=TLS, metadata=aged(2)),
    make("w", SIMPLE, tls="{secretName: cert}", metadata=aged(2)),
    make("v", SIMPLE, tls="{secretName: other}", metadata=aged(1)),
    ingress_class("other", annotations=DEFAULT),
)


@hypothesis.given(strategies.permutations(MANY))
def test_order_means_nothing(manifests):
    """Any order of the same manifests gives the same output, to the byte."""
    one = convert(*manifests, usable=["cert", "other"])
    other = convert(*MANY, usable=["other", "cert"])
    assert one == other
    assert list(one.conditions) == list(other.conditions)
    specs = [each.spec.SerializeToString(deterministic=True) for each in one.configs]
    assert specs == [each.spec.SerializeToString(deterministic=True) for each in other.configs]
    assert [each.key for each in one.configs] == sorted(each.key for each in one.configs)
