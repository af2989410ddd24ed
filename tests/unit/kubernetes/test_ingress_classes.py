# SPDX-License-Identifier: Apache-2.0
"""Which Ingresses are ours."""

import pytest

from pilothouse.kubernetes import ingress, ingress_classes
from pilothouse.model import keys
from tests.support.ingresses import (
    DEFAULT,
    SIMPLE,
    condition,
    convert,
    ingress_class,
    make,
    message,
    served,
)


def classed(value):
    return f", annotations: {{kubernetes.io/ingress.class: '{value}'}}"


@pytest.mark.parametrize(
    ("manifest", "ours"),
    [
        (make("x", SIMPLE), True),
        (make("x", SIMPLE, spec="ingressClassName: other"), False),
        (make("x", SIMPLE, spec="ingressClassName: absent"), False),
        (make("x", SIMPLE, spec="ingressClassName: pilothouse"), False),
        (make("x", SIMPLE, spec=""), False),
        (make("x", SIMPLE, spec="", metadata=classed("mine")), True),
        (make("x", SIMPLE, spec="", metadata=classed("other")), False),
        (make("x", SIMPLE, spec="", metadata=classed("pilothouse")), True),
        (make("x", SIMPLE, spec="", metadata=classed("absent")), False),
        (make("x", SIMPLE, spec="", metadata=classed("")), False),
        (make("x", SIMPLE, metadata=classed("other")), False),
        (make("x", SIMPLE, spec="ingressClassName: other", metadata=classed("mine")), True),
    ],
)
def test_the_class_decides_whose_an_ingress_is(manifest, ours):
    """The controller of the class that is named counts, not the name; the annotation wins."""
    output = convert(ingress_class("other"), manifest)
    assert served(output) == (["x"] if ours else [])
    rules = [each.key for each in output.configs if each.key.kind == "RouteRule"]
    assert bool(rules) is ours


def test_the_field_may_win():
    """As a switch, for those who come from ingress-nginx."""
    settings = ingress.Settings(classes=ingress_classes.Rules(prefer_field=True))
    manifest = make("x", SIMPLE, metadata=classed("other"))
    output = convert(ingress_class("other"), manifest, settings=settings)
    assert served(output) == ["x"]
    assert "the field counts" in message(output, "x", "Ignored")


def test_a_class_named_twice_differently_is_told():
    """Equal values are fine."""
    manifest = make("x", SIMPLE, spec="ingressClassName: other", metadata=classed("mine"))
    output = convert(ingress_class("other"), manifest)
    assert message(output, "x", "Ignored") == (
        "spec.ingressClassName 'other': the annotation counts"
    )
    output = convert(make("x", SIMPLE, metadata=classed("mine")))
    assert condition(output, "x", "Ignored") is None


def test_an_ingress_without_class_needs_our_default_class_or_the_flag():
    """Of several default classes the newest counts, then the first by name."""
    bare = make("x", SIMPLE, spec="")
    flag = ingress.Settings(classes=ingress_classes.Rules(take_classless=True))
    assert served(convert(bare, settings=flag)) == ["x"]
    mine = ingress_class("zz", "pilothouse.dev/ingress", DEFAULT)
    assert served(convert(bare, mine)) == ["x"]
    theirs = ingress_class("other", annotations=DEFAULT)
    assert served(convert(bare, mine, theirs)) == []
    newer = ingress_class(
        "zz", "pilothouse.dev/ingress", DEFAULT, ", creationTimestamp: '2026-01-01T00:00:00Z'"
    )
    assert served(convert(bare, newer, theirs)) == ["x"]


def test_a_class_that_arrives_later_makes_the_ingress_ours():
    """Nothing is remembered: the same Ingress counts once its class is there."""
    manifest = make("x", SIMPLE, spec="ingressClassName: late")
    assert served(convert(manifest)) == []
    assert served(convert(manifest, ingress_class("late", "pilothouse.dev/ingress"))) == ["x"]


def test_nothing_is_derived_while_nothing_is_ours():
    """Without a class and an Ingress of ours there is no gateway either."""
    assert ingress.convert(ingress.IngressInput()) == ingress.IngressOutput(
        configs=(), conditions={}
    )
    (gateway,) = convert().configs
    assert gateway.key == keys.ObjectKey("MeshGateway", "pilothouse-system", "ingress")
    assert gateway.meta.origins == (keys.ObjectKey("IngressClass", "", "mine"),)
