# SPDX-License-Identifier: Apache-2.0
"""The memory between one state and the next."""

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
