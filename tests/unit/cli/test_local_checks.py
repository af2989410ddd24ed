# SPDX-License-Identifier: Apache-2.0
"""Which conditions and problems become warnings."""

import pytest

from pilothouse.cli.local import checks


def _condition(
    kind: str, *, status: bool, reason: str = "", message: str = ""
) -> dict[str, object]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (_condition("Accepted", status=True, reason="Accepted"), False),
        (_condition("Accepted", status=False, message="spec.x: must be y"), True),
        (_condition("ResolvedRefs", status=False, reason="BackendNotFound"), True),
        # As ingress warns: accepted, with something to say.
        (_condition("Accepted", status=True, message="annotation x is not known"), True),
        # How far it is, is no warning; a refusal is one.
        (_condition("Programmed", status=False, reason="Pending", message="0 of 1"), False),
        (_condition("Programmed", status=True, message="all 1 proxies"), False),
        (_condition("Programmed", status=False, reason="Refused", message="1 of 1"), True),
        (_condition("Shadowed", status=True, message="by another rule"), True),
        (_condition("Shadowed", status=False), False),
    ],
)
def test_a_condition_is_told_when_it_is_not_as_it_should_be(condition, told: bool):  # noqa: FBT001
    """Accepted and ResolvedRefs are good when true, all others when false."""
    found = checks.lines([], [{"object": "RouteRule/a/b", "conditions": [condition]}])

    assert bool(found) is told
    assert all(line.startswith(f"RouteRule/a/b: {condition['type']}: ") for line in found)


def test_lines_are_sorted_each_once_and_derived_objects_say_nothing():
    """Discovery and ingress read the same folder and say the same of it."""
    problem = {"location": "b.yaml:1", "message": "broken"}
    other = {"location": "a.yaml:1", "message": "broken"}
    bad = [_condition("Accepted", status=False, message="no")]
    stated = [
        {"object": "Ingress/a/b", "conditions": bad},
        {"object": "RouteRule/a/b", "conditions": bad, "origins": ["Ingress/a/b"]},
        {"object": "Ingress/a/b", "conditions": bad, "origins": []},
    ]

    assert checks.lines([problem, other, problem], stated) == (
        "Ingress/a/b: Accepted: no",
        "a.yaml:1: broken",
        "b.yaml:1: broken",
    )
