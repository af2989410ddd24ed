# SPDX-License-Identifier: Apache-2.0
"""Searching for culprits: always ends, and finds exactly those that are to blame."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies

from pilothouse.model import keys
from pilothouse.rollout import trials

NAMES = strategies.integers(0, 200)


def key(number: int) -> keys.ObjectKey:
    return keys.ObjectKey("RouteRule", "default", f"r{number:03}")


def search(
    trial: trials.Trial, accepts: Callable[[frozenset[keys.ObjectKey]], bool]
) -> tuple[trials.Trial, list[frozenset[keys.ObjectKey]]]:
    """Answer as the proxy would, given what is released; also all that was tried."""
    everybody, tried = trial.unsettled, []
    while not trial.done:
        tried.append(trial.held)
        trial = trial.answer(accepted=accepts(everybody - trial.held))
    return trial, tried


@strategies.composite
def cases(draw: strategies.DrawFn) -> tuple[set[int], set[int], set[int]]:
    """Suspects, the culprits among them (one at least), and those that are named."""
    everybody = draw(strategies.sets(NAMES, min_size=1, max_size=60))
    listed = sorted(everybody)
    culprits = draw(strategies.sets(strategies.sampled_from(listed), min_size=1))
    named = draw(strategies.sets(strategies.sampled_from(listed)))
    return everybody, culprits, named


@given(cases())
def test_exactly_the_culprits_are_found(case: tuple[set[int], set[int], set[int]]) -> None:
    """For any set of them, whoever is named; within the bound; nothing is tried twice."""
    everybody, culprits, named = ({key(one) for one in each} for each in case)
    trial = trials.begin(named, everybody)
    done, tried = search(trial, culprits.isdisjoint)
    assert set(done.culprits) == culprits
    assert set(done.cleared) == everybody - culprits
    assert done.held == culprits
    assert not done.blameless
    assert len(tried) <= trials.bound(len(everybody), len(culprits))
    assert len(set(tried)) == len(tried)


@given(strategies.sets(NAMES, min_size=1, max_size=40), strategies.lists(strategies.booleans()))
def test_it_ends_whatever_is_answered(everybody: set[int], answers: list[bool]) -> None:
    """Also for a proxy that answers by chance; nobody is both cleared and a culprit."""
    trial = trials.begin((), map(key, everybody))
    given_answers = iter([*answers, *([False] * 1000)])
    taken = 0
    while not trial.done:
        trial = trial.answer(accepted=next(given_answers))
        taken += 1
    assert taken <= trials.bound(len(everybody), len(everybody))
    assert set(trial.culprits).isdisjoint(trial.cleared)
    if not trial.blameless:
        assert {*trial.culprits, *trial.cleared} == set(map(key, everybody))


@given(
    strategies.sets(NAMES, min_size=2, max_size=30),
    strategies.lists(strategies.sets(NAMES, min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_of_what_is_bad_only_together_enough_is_found(
    everybody: set[int], combinations: list[set[int]]
) -> None:
    """With the culprits held the proxy accepts, and every one of them is needed for that."""
    bad = [set(map(key, one)) for one in combinations]

    def accepts(released: frozenset[keys.ObjectKey]) -> bool:
        return not any(one <= released for one in bad)

    whole = frozenset(map(key, everybody))
    if accepts(whole):
        return  # there is nothing to search for
    done, _ = search(trials.begin((), whole), accepts)
    assert accepts(whole - done.held)
    for one in done.culprits:
        assert not accepts((whole - done.held) | {one})


@given(cases())
def test_a_cleared_suspect_is_never_held_again(
    case: tuple[set[int], set[int], set[int]],
) -> None:
    """What is good comes into force during the search, and stays so."""
    everybody, culprits, named = ({key(one) for one in each} for each in case)
    trial = trials.begin(named, everybody)
    while not trial.done:
        released = everybody - trial.held
        trial = trial.answer(accepted=culprits.isdisjoint(released))
        assert trial.held.isdisjoint(trial.cleared)


def test_a_proxy_that_refuses_whatever_is_held_blames_nobody() -> None:
    """After one trial: the reason is something else than the suspects."""
    done, tried = search(trials.begin((), map(key, range(9))), lambda _: False)
    assert (done.blameless, done.culprits, len(tried)) == (True, (), 1)
    assert done.held == frozenset()


def test_a_single_suspect_needs_one_trial() -> None:
    """That without it the proxy accepts."""
    done, tried = search(trials.begin((key(1),)), lambda released: not released)
    assert (done.culprits, len(tried)) == ((key(1),), 1)


def test_those_that_are_named_are_tried_first() -> None:
    """A right hint makes the search of hundreds as short as that of one."""
    everybody = set(map(key, range(200)))
    done, tried = search(trials.begin((key(77),), everybody), {key(77)}.isdisjoint)
    assert done.culprits == (key(77),)
    assert len(tried) == 3


@given(cases())
def test_a_gentle_search_takes_away_little(
    case: tuple[set[int], set[int], set[int]],
) -> None:
    """Only a group at a time is ever held; culprits in one group are found, others blame nobody."""
    everybody, culprits, named = ({key(one) for one in each} for each in case)
    trial = trials.begin_gently(named, everybody)
    groups = [set(group.suspects) for group in trial.groups]
    most = max(map(len, groups))
    assert most <= -(-len(everybody) // 8)
    done, tried = search(trial, culprits.isdisjoint)
    assert max(map(len, tried)) <= most
    assert len(tried) <= trials.bound(len(everybody), len(culprits)) + 15
    if any(culprits <= group for group in groups):
        assert (set(done.culprits), done.blameless) == (culprits, False)
        assert set(done.cleared) == everybody - culprits
    else:
        assert (done.culprits, done.blameless, done.held) == ((), True, frozenset())


def test_a_search_for_nobody_is_done() -> None:
    """And takes no answer."""
    trial = trials.begin(())
    assert trial.done
    assert trials.begin_gently(()).done
    assert trials.bound(0, 0) == 0
    with pytest.raises(ValueError, match="done"):
        trial.answer(accepted=True)
