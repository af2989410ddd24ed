# SPDX-License-Identifier: Apache-2.0
"""What conditions say of rules is not contradicted by any request.

The reference matcher finds out what becomes of requests in generated worlds; see
`test_reference.py`.
"""

from __future__ import annotations

import pytest

from pilothouse.config import objects
from pilothouse.model import keys
from tests.support import reference_hosts as hosts
from tests.support import reference_matcher as matcher
from tests.support import reference_planned as planned
from tests.support import reference_values as values
from tests.support import reference_worlds as worlds


def condition(told: planned.Planned, rule: values.Manifest, kind: str) -> objects.Condition | None:
    """A condition of a rule."""
    found = told.mesh.conditions[keys.ObjectKey("RouteRule", *hosts.key(rule))]
    return next((each for each in found if each.type == kind), None)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_no_request_contradicts_a_condition(first: int) -> None:
    """What takes a request is not told to be unreached; what fails has references that do."""
    shadowed = unresolved = 0
    for seed in range(first, first + 40):
        world, asked = worlds.case(seed, requests=30, rules=2 + seed % 5)
        told = planned.Planned(world)
        for client, request in asked:
            found = matcher.taken(world, client, request)
            if found is None:
                continue
            best, place = found
            lost = condition(told, best.rule, "Conflicted")
            if lost is not None:
                shadowed += 1
                said = f"{best.told} is never reached at {place}:"
                assert said not in lost.message, (seed, client, request)
            fate = matcher.verdict(world, client, request)
            fails = fate.status in (500, 503) and "directResponse" not in best.route
            if fails or any(share.target == values.NOWHERE for share in fate.shares):
                unresolved += 1
                resolved = condition(told, best.rule, "ResolvedRefs")
                assert resolved is not None
                assert not resolved.status, (seed, client, request)
    assert min(shadowed, unresolved) > 10
