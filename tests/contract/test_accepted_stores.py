# SPDX-License-Identifier: Apache-2.0
"""What every AcceptedStore promises; each implementation is run against it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.config import accepted, admission, codec
from pilothouse.model import keys

IMPLEMENTATIONS: dict[str, Callable[[], accepted.AcceptedStore]] = {
    "memory": accepted.AcceptedInMemory
}
KEY = keys.ObjectKey("RouteRule", "default", "a")
EMPTY = admission.AcceptedSet()


def made(generation: int) -> admission.AcceptedSet:
    """A set with something in each of its parts that is kept."""
    now, before, refused = (
        codec.make(
            KEY,
            route_rule_pb2.RouteRuleSpec(priority=number),
            source="store",
            generation=number,
        )
        for number in (generation, generation - 1, generation + 1)
    )
    refusal = admission.Refusal.of(refused, reason=admission.REFUSED_BY_PROXY, message="no")
    return admission.AcceptedSet(
        configs={KEY: now}, fallbacks={KEY: before}, refusals={KEY: refusal}
    )


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def store(request: pytest.FixtureRequest) -> accepted.AcceptedStore:
    return IMPLEMENTATIONS[request.param]()


def test_it_begins_with_nothing_in_force(store: accepted.AcceptedStore) -> None:
    """An empty set, not an absent one."""
    assert store.current() == EMPTY


def test_what_is_kept_is_current(store: accepted.AcceptedStore) -> None:
    """With all that belongs to it."""
    assert store.keep(made(1), instead_of=EMPTY) == made(1)
    assert store.current() == made(1)
    assert store.keep(made(2), instead_of=store.current()) == made(2)
    assert store.current() == made(2)


def test_a_decision_from_a_set_that_was_replaced_is_not_kept(
    store: accepted.AcceptedStore,
) -> None:
    """Whoever decided learns what is in force, and decides again."""
    store.keep(made(1), instead_of=EMPTY)
    assert store.keep(made(7), instead_of=EMPTY) == made(1)
    assert store.current() == made(1)


def test_an_equal_set_is_the_same_one(store: accepted.AcceptedStore) -> None:
    """It is a value: who read it elsewhere may replace it."""
    store.keep(made(1), instead_of=EMPTY)
    assert store.keep(made(2), instead_of=made(1)) == made(2)


def test_nobody_is_told_of_what_it_kept_itself(store: accepted.AcceptedStore) -> None:
    """Only replacements by others are news; a subscription ends."""
    told: list[None] = []
    end = store.subscribe(lambda: told.append(None))
    store.keep(made(1), instead_of=EMPTY)
    end()
    assert told == []
