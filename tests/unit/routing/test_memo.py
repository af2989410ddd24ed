# SPDX-License-Identifier: Apache-2.0
"""The memory between one state and the next."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given, strategies

from pilothouse.routing import memo

CALLS: list[str] = []


def double(text: str) -> tuple[str, ...]:
    CALLS.append(text)
    return (text, text)


def length(text: str) -> tuple[int]:
    return (len(text),)


def pairs(inner: memo.Memo, texts: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    CALLS.append("group")
    return tuple(inner.leaf(double, text, text) for text in texts)


def setup_function():
    CALLS.clear()


def test_equal_arguments_are_not_computed_again():
    """Neither in one generation nor in the next."""
    first = memo.Memo()
    value = first.leaf(double, "slot", "a")
    assert first.leaf(double, "slot", "a") is value
    assert first.next().leaf(double, "slot", "a") is value
    assert CALLS == ["a"]


def test_an_equal_value_of_other_arguments_is_the_old_object():
    """Identity says whether anything changed."""
    first = memo.Memo()
    value = first.leaf(length, "slot", "abc")
    assert first.next().leaf(length, "slot", "xyz") is value


def test_other_arguments_give_another_value():
    """A slot holds the last call only."""
    first = memo.Memo()
    first.leaf(double, "slot", "a")
    assert first.next().leaf(double, "slot", "b") == ("b", "b")


def test_what_a_generation_did_not_use_is_forgotten():
    """So memory follows what is there."""
    generation = memo.Memo()
    for text in ("ab", "b", "ab"):
        generation = generation.next()
        for letter in text:
            generation.leaf(double, letter, letter)
    assert CALLS == ["a", "b", "a"]


def test_a_generation_that_nobody_used_is_skipped():
    """A burst of changes between two questions loses nothing."""
    first = memo.Memo()
    value = first.leaf(double, "slot", "a")
    assert first.next().next().next().leaf(double, "slot", "a") is value


def test_a_group_with_equal_arguments_keeps_its_parts():
    """Its function is not called, and its parts are there when it is called again."""
    first = memo.Memo()
    (a, b) = first.group(pairs, "slot", ("a", "b"))
    second = first.next()
    second.group(pairs, "slot", ("a", "b"))
    third = second.next()
    (again, c) = third.group(pairs, "slot", ("a", "c"))
    assert again is a
    assert c != b
    assert CALLS == ["group", "a", "b", "group", "c"]


def test_functions_do_not_share_slots():
    """A slot belongs to a function."""
    one = memo.Memo()
    assert one.leaf(double, "slot", "a") == ("a", "a")
    assert one.leaf(length, "slot", "a") == (1,)


def test_a_whole_is_known_by_its_very_parts():
    """Parts that are remembered themselves are the same objects while they are equal."""
    first = memo.Memo()
    parts = ([1], [2])
    value = first.whole(list, "slot", parts)
    assert first.next().whole(list, "slot", (*parts,)) is value
    assert first.next().whole(list, "slot", (parts[0], [2])) is not value


def later(texts: Mapping[str, str], then: Mapping[str, str]) -> tuple[Any, Any]:
    """What `mapped` gives for one mapping, and for another in the next generation."""
    first = memo.Memo()
    before = first.mapped(double, "slot", texts)
    return before, first.next().mapped(double, "slot", then)


def test_of_a_mapping_only_other_values_are_computed():
    """However many there are."""
    many = {str(number): str(number) for number in range(1000)}
    before, after = later(many, {**many, "7": "other"})
    assert [*many.values(), "other"] == CALLS
    assert after == {**before, "7": ("other", "other")}
    assert [*after] == [*many]


def test_what_comes_and_goes_in_a_mapping_costs_nothing_else():
    """And all the rest keeps its place."""
    before, after = later({"a": "1", "b": "2", "c": "3"}, {"c": "3", "x": "4", "b": "2"})
    assert CALLS == ["1", "2", "3", "4"]
    assert [*after] == ["c", "x", "b"]
    assert after["b"] is before["b"]


def test_a_mapping_of_equal_values_is_the_old_one():
    """Though it was made anew, or though its values are others that mean the same."""
    first = memo.Memo()
    value = first.mapped(length, "slot", {"a": "xyz", "b": "z"})
    second = first.next()
    assert second.mapped(length, "slot", {"a": "xyz", "b": "z"}) is value
    assert second.next().mapped(length, "slot", {"a": "abc", "b": "c"}) is value


def repeat(text: str, times: int) -> tuple[str, ...]:
    CALLS.append(text)
    return (text,) * times


def test_other_arguments_concern_every_value_of_a_mapping():
    """They are arguments of each call."""
    first = memo.Memo()
    assert first.mapped(repeat, "slot", {"a": "1", "b": "2"}, 1)["b"] == ("2",)
    assert first.next().mapped(repeat, "slot", {"a": "1", "b": "2"}, 2)["b"] == ("2", "2")


def test_groups_of_a_mapping_keep_their_parts():
    """By key: where one changes, its own parts are still known."""
    first = memo.Memo()
    first.mapped_group(pairs, "slot", {"x": ("a", "b"), "y": ("c",)})
    CALLS.clear()
    after = first.next().mapped_group(pairs, "slot", {"x": ("a", "d"), "y": ("c",)})
    assert CALLS == ["group", "d"]
    assert after == {"x": (("a", "a"), ("d", "d")), "y": (("c", "c"),)}


def test_an_index_keeps_what_is_at_places_that_nothing_touched():
    """Whatever happens elsewhere."""
    first = memo.Memo()
    before = first.turned("slot", {"a": (("here", 1), ("there", 2)), "b": (("here", 3),)})
    after = first.next().turned("slot", {"a": (("there", 2),), "b": (("here", 3),), "c": ()})
    assert before == {"here": {"a": (1,), "b": (3,)}, "there": {"a": (2,)}}
    assert after == {"here": {"b": (3,)}, "there": {"a": (2,)}}
    assert after["there"] is before["there"]


KEYS = strategies.sampled_from("abcd")
HISTORY = strategies.lists(
    strategies.dictionaries(
        KEYS,
        strategies.lists(
            strategies.tuples(strategies.sampled_from("xyz"), strategies.integers(0, 2)), max_size=3
        ).map(tuple),
    ),
    max_size=5,
)


def sums(places: tuple[tuple[str, int], ...]) -> int:
    return sum(number for _, number in places)


def shown(of: tuple[Any, tuple[Any, ...]]) -> str:
    return str(of)


@given(strategies.lists(strategies.tuples(HISTORY, HISTORY), max_size=3))
def test_the_past_of_a_join_has_no_influence(history: Sequence[Any]):
    """Whichever of the two mappings changes, and whatever only one of them has."""
    old = memo.Memo()
    for items, more in ((a, b) for one, two in history for a in one for b in two):
        old = old.next()
        expected = [(key, str((value, more.get(key, ())))) for key, value in items.items()]
        assert [*old.joined(shown, "slot", items, more).items()] == expected


@given(HISTORY)
def test_the_past_of_a_mapping_has_no_influence(history: Sequence[Mapping[str, Any]]):
    """A memo that has seen others gives what one gives that has not, in the same order."""
    old = memo.Memo()
    for items in history:
        old = old.next()
        mapped, turned = old.mapped(sums, "slot", items), old.turned("slot", items)
        assert [*mapped.items()] == [*memo.Memo().mapped(sums, "slot", items).items()]
        expected = {
            place: {
                key: tuple(value for where, value in items[key] if where == place)
                for key in sorted(items)
                if any(where == place for where, _ in items[key])
            }
            for places in items.values()
            for place, _ in places
        }
        assert turned == expected
        for place, members in turned.items():
            assert [*members] == [*expected[place]]
