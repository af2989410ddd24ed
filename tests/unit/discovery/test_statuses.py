# SPDX-License-Identifier: Apache-2.0
"""What the author of an object is told."""

from pilothouse.api.config.v1alpha1 import route_rule_pb2
from pilothouse.config import codec, objects
from pilothouse.model import keys
from pilothouse.rollout import ledger
from pilothouse.routing import memo as memory
from pilothouse_discovery import statuses

KEY = keys.ObjectKey("RouteRule", "default", "reviews")
OBSERVED = {KEY: codec.make(KEY, route_rule_pb2.RouteRuleSpec(), source="files", generation=3)}


def _programmed(counts: ledger.Counts, *conditions: objects.Condition) -> objects.Condition:
    state = statuses.compute(OBSERVED, {KEY: conditions}, {KEY: counts})[KEY]
    return {one.type: one for one in state.conditions}["Programmed"]


def test_an_object_is_programmed_when_all_who_need_it_run_it() -> None:
    """All means all."""
    assert _programmed(ledger.Counts(needed=3, acked=3)).status
    pending = _programmed(ledger.Counts(needed=3, acked=2))
    assert (pending.status, pending.reason) == (False, "Pending")
    assert "2 of 3" in pending.message


def test_a_refusal_is_told_before_anything_pending() -> None:
    """A proxy that refused will not acknowledge later by itself."""
    refused = _programmed(ledger.Counts(needed=3, acked=1, refused=1))

    assert (refused.status, refused.reason) == (False, "Refused")


def test_an_object_that_is_not_accepted_is_not_programmed() -> None:
    """Its present generation is in force nowhere, whatever proxies acknowledge."""
    invalid = objects.Condition(type="Accepted", status=False, reason="InvalidSpec", message="x")

    assert _programmed(ledger.Counts(needed=1, acked=1), invalid).reason == "NotAccepted"


def test_an_object_that_nobody_needs_is_programmed_and_says_so() -> None:
    """Otherwise waiting for it would never end."""
    nobody = _programmed(ledger.Counts())

    assert nobody.status
    assert "no connected proxy" in nobody.message


def test_only_what_changed_is_news() -> None:
    """A watcher hears of changed and of removed objects, of nothing else."""
    old = statuses.compute(OBSERVED, {}, {KEY: ledger.Counts(needed=1)})
    new = statuses.compute(OBSERVED, {}, {KEY: ledger.Counts(needed=1, acked=1)})

    assert statuses.difference(old, old) == ((), ())
    assert statuses.difference(old, new) == ((new[KEY],), ())
    assert statuses.difference(old, {}) == ((), (KEY,))


def test_who_goes_from_one_count_to_another_and_back_has_the_state_from_before() -> None:
    """Of thousands of objects behind one resource, nothing is made twice for each change."""
    memo = memory.Memo()
    seen = []
    for acked in (1, 0, 1):
        memo = memo.next()
        counts = {KEY: ledger.Counts(needed=1, acked=acked)}
        seen.append(statuses.compute(OBSERVED, {}, counts, memo=memo)[KEY])

    assert seen[0] is seen[2]
    assert seen[0] != seen[1]


def test_what_is_remembered_is_what_would_be_made() -> None:
    """Whatever counts and words came before, and whether the object is another one by now."""
    memo = memory.Memo()
    other = {KEY: codec.make(KEY, route_rule_pb2.RouteRuleSpec(), source="files", generation=4)}
    warning = objects.Condition(type="Shadowed", status=True, reason="Lost", message="x")
    for step in range(40):
        memo = memo.next()
        observed = OBSERVED if step % 3 else other
        found = {KEY: (warning,) if step % 7 else ()}
        counts = {KEY: ledger.Counts(needed=9, acked=step % 6, refused=step % 2)}
        words = {KEY: f"node {step % 4}: no"} if step % 5 else {}

        remembered = statuses.compute(observed, found, counts, words=words, memo=memo)

        assert remembered == statuses.compute(observed, found, counts, words=words)
