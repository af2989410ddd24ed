# SPDX-License-Identifier: Apache-2.0
"""How an origin stands, by what is said of the objects derived from it."""

import pytest

from pilothouse.adapters.rpc import derived_status
from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import codec, objects
from pilothouse.model import keys

ORIGIN = keys.ObjectKey("Ingress", "default", "shop")
GOOD = objects.Condition(type="Accepted", status=True, reason="Accepted")


def rule(name, *origins, generation=1):
    return codec.make(
        keys.ObjectKey("RouteRule", "default", name),
        route_rule_pb2.RouteRuleSpec(),
        source="ingress",
        origins=origins or (ORIGIN,),
        generation=generation,
    )


def said(*conditions, generation=1, **counts):
    return status_pb2.Status(
        observed_generation=generation,
        conditions=[
            status_pb2.Condition(type=kind, status=value, reason="R", message=message)
            for kind, value, message in conditions
        ],
        proxies=status_pb2.ProxyCounts(**counts),
    )


DONE = said(("Programmed", "True", ""), needed=1, acked=1)


def one(configs, statuses, own=(GOOD,)):
    (found,) = derived_status.trace_back(
        {ORIGIN: own}, configs, {c.key: s for c, s in zip(configs, statuses, strict=False) if s}
    )
    return found


@pytest.mark.parametrize(
    ("statuses", "programmed"),
    [
        ([DONE, DONE], True),
        ([DONE, None], False),
        ([DONE, said(("Programmed", "False", "1 of 2"), needed=2, acked=1)], False),
        ([DONE, said(("Programmed", "True", ""), generation=2)], False),
        ([DONE, said(("Programmed", "True", ""), needed=1, refused=1)], False),
        ([DONE, said(("Accepted", "True", ""))], False),
    ],
)
def test_programmed_when_all_that_was_derived_is(statuses, programmed):
    """Every derived object must be known in its present generation, programmed and unrefused."""
    assert one([rule("a"), rule("b")], statuses).programmed is programmed


def test_nothing_derived_is_not_programmed():
    """An origin that became nothing runs nowhere."""
    assert not one([], []).programmed


def test_worse_condition_counts_and_names_all():
    """Own and derived conditions of one type merge into the worse one."""
    found = one(
        [rule("a"), rule("b")],
        [said(("Accepted", "False", "spec.x: bad")), said(("Accepted", "True", ""))],
    )
    assert [(c.type, c.status, c.message) for c in found.conditions] == [
        ("Accepted", False, "spec.x: bad")
    ]


def test_object_counts_for_each_of_its_origins():
    """An object with two origins is listed with both, one of no origin with none."""
    other = keys.ObjectKey("Ingress", "default", "blog")
    shared, foreign = rule("a", ORIGIN, other), rule("b", keys.ObjectKey("X", "y", "z"))
    found = derived_status.trace_back(
        {ORIGIN: (GOOD,), other: (GOOD,)}, [foreign, shared], {shared.key: DONE}
    )
    assert [(o.key, [d.key for d in o.derived]) for o in found] == [
        (other, [shared.key]),
        (ORIGIN, [shared.key]),
    ]
