# SPDX-License-Identifier: Apache-2.0
"""Whom a refusal concerns is known when everybody has answered, or somebody has accepted."""

from __future__ import annotations

from hypothesis import given, strategies

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.config import codec, objects
from pilothouse.model import keys
from pilothouse.rollout import attribution, cases

FLEET, PROXY, OPEN = attribution.Scope.FLEET, attribution.Scope.PROXY, attribution.Scope.OPEN
VERSIONS = frozenset({("url", "name", "version")})


def config(name: str = "a", generation: int = 1) -> objects.Config:
    key = keys.ObjectKey("RouteRule", "default", name)
    spec = route_rule_pb2.RouteRuleSpec(priority=generation)
    return codec.make(key, spec, source="s", generation=generation)


def begun(
    *waiting: str, accepted: bool = False, of: objects.Config | None = None
) -> tuple[cases.Cases[str], cases.Case[str]]:
    book: cases.Cases[str] = cases.Cases()
    case = book.open(
        of or config(), versions=VERSIONS, words="no", accepted=accepted, waiting=waiting
    )
    return book, case


def test_a_proxy_alone_speaks_for_the_fleet() -> None:
    """Nobody else could accept."""
    book, case = begun()
    assert (case.scope, book.undecided) == (FLEET, False)


def test_somebody_who_accepted_before_decides_at_once() -> None:
    """Whoever is still to answer."""
    book, case = begun("x", accepted=True)
    assert (case.scope, book.undecided) == (PROXY, False)
    assert book.answered("x", lambda _: False) == ()


def test_a_later_case_of_the_same_content_is_the_same() -> None:
    """Another content of the object is another case, and ends the one before."""
    book, case = begun("x")
    again = book.open(config(), versions=frozenset(), words="", accepted=False, waiting=())
    assert again is case
    other = config(generation=2)
    assert book.known(other) is None
    book.open(other, versions=VERSIONS, words="", accepted=False, waiting=("y",))
    assert book.known(config()) is None
    assert book.undecided


def test_a_case_ends_with_what_is_in_force() -> None:
    """An open one too, and nobody is waited for any more."""
    book, _ = begun("x")
    known = []
    for generation in (1, 2):
        book.keep({config().key: config(generation=generation)})
        known.append((book.undecided, book.known(config()) is not None))
    assert known == [(True, True), (False, False)]
    assert book.gone("x") == ()


def test_who_refuses_something_else_may_speak_for_an_object() -> None:
    """Found out by trying: it took this content; what was decided before stays so."""
    book, case = begun("x")
    book.accepted(config(generation=2))
    assert case.scope is OPEN
    book.accepted(config())
    assert (case.scope, book.undecided) == (PROXY, False)
    book, case = begun()
    book.accepted(config())
    assert case.scope is FLEET


_ANSWERS = strategies.lists(
    strategies.tuples(
        strategies.sampled_from("uvwxyz"), strategies.sampled_from([None, True, False])
    ),
    max_size=20,
)


@given(strategies.sets(strategies.sampled_from("uvwxyz"), min_size=1), _ANSWERS)
def test_the_fleet_is_concerned_only_if_nobody_accepted(
    waiting: set[str], answers: list[tuple[str, bool | None]]
) -> None:
    """In whatever order they accept, refuse or go; decided once, and then for good."""
    book, case = begun(*waiting)
    left, accepted = set(waiting), False
    for proxy, answer in answers:
        before = case.scope
        decided = (
            book.gone(proxy)
            if answer is None
            else book.answered(proxy, VERSIONS.__eq__ if answer else lambda _: False)
        )
        if before is OPEN:
            left.discard(proxy)
            accepted = accepted or bool(answer)
            expected = PROXY if accepted else OPEN if left else FLEET
            assert case.scope is expected
            assert decided == (() if expected is OPEN else (case,))
        else:
            assert (case.scope, decided) == (before, ())
    assert book.undecided == (case.scope is OPEN)
