# SPDX-License-Identifier: Apache-2.0
"""Who may be to blame, and whom it concerns. Envoy's words are as Envoy 1.40 says them."""

from __future__ import annotations

import pytest

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.config import codec, objects
from pilothouse.model import keys
from pilothouse.rollout import attribution
from pilothouse.xds import resources, types

A, B, C = (keys.ObjectKey("RouteRule", "default", name) for name in "abc")


def config(key: keys.ObjectKey, generation: int = 1) -> objects.Config:
    return codec.make(
        key, route_rule_pb2.RouteRuleSpec(priority=generation), source="s", generation=generation
    )


def in_force(**generations: int) -> dict[keys.ObjectKey, objects.Config]:
    made = (
        config(keys.ObjectKey("RouteRule", "default", name), generation)
        for name, generation in generations.items()
    )
    return {one.key: one for one in made}


def cluster(name: str, *origins: keys.ObjectKey) -> resources.Resource:
    return resources.Resource.of(types.CLUSTER.type_url, name, name.encode(), origins=origins)


def test_suspects_are_the_changed_objects_behind_changed_resources() -> None:
    """Not one that stayed as it was, nor one whose resources did."""
    found = attribution.suspects(
        [cluster("x", A, B)], before=in_force(a=1, b=1, c=1), now=in_force(a=2, b=1, c=2)
    )
    assert found == attribution.Suspects(others=(A,))


def test_all_are_suspects_when_nothing_was_accepted_before() -> None:
    """A new object is as suspect as a changed one."""
    found = attribution.suspects([cluster("x", B, A)], before={}, now=in_force(a=1, b=1))
    assert found.all == (A, B)


def test_what_is_deleted_is_no_suspect() -> None:
    """It cannot be held."""
    found = attribution.suspects([cluster("x", A)], before=in_force(a=1), now={})
    assert not found


def test_words_bring_to_the_front_and_neither_add_nor_clear() -> None:
    """One named resource, and words that name what did not change."""
    changed = [cluster("x", A), cluster("y", B, C)]
    now = in_force(a=1, b=1, c=1)
    found = attribution.suspects(changed, before={}, now=now, words="cluster y: z and q")
    assert found == attribution.Suspects(named=(B, C), others=(A,))
    found = attribution.suspects(changed, before=in_force(b=1, c=1), now=now, words="y")
    assert found == attribution.Suspects(others=(A,))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("Error adding/updating cluster(s) outbound|80||a.default: no address", True),
        ("'outbound|80||a.default'", True),
        ("ends with outbound|80||a.default.", True),
        ("outbound|80||a.default", True),
        ("outbound|80||a.default|from:shop", False),
        ("outbound|80||a.default.other", False),
        ("outbound|80||a.default-2", False),
        ("xoutbound|80||a.default", False),
        ("", False),
    ],
)
def test_a_name_is_a_whole_word(words: str, *, named: bool) -> None:
    """A longer name that contains it is another one."""
    assert attribution.names(words, "outbound|80||a.default") is named


TAKEN = "Error adding/updating listener(s) gateway|81: cannot bind '127.0.0.1:81': Address in use"
BAD = "gateway|82: no such filter"


@pytest.mark.parametrize(
    ("type_url", "words", "local"),
    [
        (types.LISTENER.type_url, TAKEN, True),
        (types.LISTENER.type_url, f"{TAKEN}\n{BAD}", False),
        (types.LISTENER.type_url, BAD, False),
        (types.LISTENER.type_url, "", False),
        (types.CLUSTER.type_url, TAKEN, False),
    ],
)
def test_a_port_that_is_taken_is_the_machine_s_affair(
    type_url: str, words: str, *, local: bool
) -> None:
    """Only if nothing else is refused beside it."""
    assert attribution.is_local(type_url, words) is local


def test_the_rest_of_the_words_is_about_objects() -> None:
    """Lines about taken ports point at nobody."""
    assert attribution.without_local(f"{TAKEN}\n{BAD}") == BAD


@pytest.mark.parametrize(
    ("accepted", "waiting", "expected"),
    [
        (False, 0, attribution.Scope.FLEET),
        (True, 0, attribution.Scope.PROXY),
        (True, 9, attribution.Scope.PROXY),
        (False, 1, attribution.Scope.OPEN),
    ],
)
def test_one_that_took_it_speaks_for_the_fleet(
    *, accepted: bool, waiting: int, expected: attribution.Scope
) -> None:
    """And as long as somebody may yet take it, nothing is decided for all."""
    assert attribution.scope(accepted=accepted, waiting=waiting) is expected
