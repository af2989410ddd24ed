# SPDX-License-Identifier: Apache-2.0
"""Fields that are read at once say what they say when they are looked up first."""

from __future__ import annotations

from typing import Any

import pytest

from pilothouse.kubernetes import fields

VALUES: tuple[Any, ...] = (None, "", "text", True, False, 0, 1.5, [], ["a"], ["a", 1], {}, {"a": 1})


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("wrapped", [True, False])
def test_what_is_read_at_once_is_what_the_field_says(value: object, *, wrapped: bool):
    """The same answers and the same violations, at a field and below what is no mapping."""

    def root() -> fields.Field:
        return fields.Field({"name": value} if wrapped else value)

    texts, plain, flags, plain_flags, there, plain_there = (root() for _ in range(6))

    assert texts.text_at("name", "else") == plain["name"].text("else")
    assert texts.violations == plain.violations
    assert flags.flag_at("name") is plain_flags["name"].flag()
    assert flags.violations == plain_flags.violations
    assert there.has("name") is plain_there["name"].present
    assert there.violations == plain_there.violations


@pytest.mark.parametrize("value", VALUES)
def test_plain_texts_are_those_of_lists_of_nothing_else(value: object):
    """Whatever may need a word of its own has none."""
    expected = value if value in ([], ["a"]) else None

    assert fields.Field({"names": value}).plain_texts_at("names") == expected
    assert fields.Field(value).plain_texts_at("names") is None


@pytest.mark.parametrize("value", [v for v in VALUES if v is None or isinstance(v, dict)])
def test_pairs_are_sorted_and_empty_ones_are_texts(value: dict[str, object] | None):
    """A value that is missing is an empty text; one that is no text is refused by its name."""
    root = fields.Field({"labels": {"b": "2", "a": None} | (value or {})})

    pairs = root["labels"].pairs()

    assert pairs == (("a", ""), ("b", "2"))
    wrong = ("labels[a]: must be a string, is the number 1",)
    assert root.violations == (wrong if value else ())
