# SPDX-License-Identifier: Apache-2.0
"""Small changes one after another, as a mesh really goes through them."""

import dataclasses
from typing import Any

from hypothesis import given, settings, strategies

from pilothouse.model import keys
from pilothouse.routing import planner, state
from tests.unit.routing import test_properties as properties

EDITS = strategies.lists(
    strategies.one_of(
        strategies.tuples(strategies.just("configs"), properties.CONFIGS),
        strategies.tuples(
            strategies.just("services"),
            properties.SERVICE.map(lambda service: {service.key: service}),
        ),
        strategies.tuples(
            strategies.just("endpoints"),
            strategies.dictionaries(
                strategies.builds(keys.ServiceKey, properties.NAMESPACE, properties.NAME),
                strategies.lists(properties.ENDPOINT, max_size=2).map(tuple),
                max_size=1,
            ),
        ),
        strategies.tuples(
            strategies.sampled_from(("configs", "services", "endpoints")), strategies.integers(0, 5)
        ),
    ),
    max_size=6,
)
"""Something that comes, or comes in the place of another; or the number of one that goes."""


def edited(one: state.MeshState, part: str, what: Any) -> state.MeshState:
    """The state after an edit; all else in it are the same objects."""
    found = {**getattr(one, part)}
    if isinstance(what, int):
        for key in [*found][what : what + 1]:
            del found[key]
    else:
        found.update(what)
    return dataclasses.replace(one, **{part: dict(sorted(found.items()))})


@settings(max_examples=80)
@given(properties.STATES, EDITS)
def test_edit_by_edit_nothing_of_the_past_is_left(one: state.MeshState, edits: list[Any]):
    """Rules, policies, gateways, services and endpoints come, go and change one at a time."""
    old = planner.Planner()
    properties.outcome(old.update(one))
    for part, what in edits:
        one = edited(one, part, what)
        assert properties.outcome(old.update(one)) == properties.fresh(one)
