# SPDX-License-Identifier: Apache-2.0
"""A large dictionary with entries laid over it is what a copy would be."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis
import pytest
from hypothesis import strategies as st

from pilothouse.routing import overlaid

KEYS = st.integers(0, 9)
STEPS = st.lists(
    st.tuples(st.dictionaries(KEYS, st.integers(0, 2), max_size=3), st.sets(KEYS, max_size=3)),
    max_size=8,
)


@pytest.mark.parametrize("large", [True, False])
@hypothesis.settings(max_examples=40)
@hypothesis.given(steps=STEPS)
def test_edits_give_what_copies_would(
    steps: list[tuple[dict[int, int], set[int]]], *, large: bool
) -> None:
    """However many edits, of whatever was there or not, and none changes what was before."""
    size = overlaid.LARGE if large else 5
    plain = dict.fromkeys(range(5, 5 + size), 0)
    found: Mapping[int, int] = plain
    history: list[tuple[Mapping[int, int], dict[int, int]]] = []
    for fresh, gone in steps:
        history.append((found, dict(plain)))
        left = gone - fresh.keys()
        found = overlaid.edited(found, fresh, left)
        plain = {key: value for key, value in {**plain, **fresh}.items() if key not in left}
    history.append((found, plain))
    for mapping, expected in history:
        assert len(mapping) == len(expected)
        assert dict(mapping) == expected
        for key in (*range(10), 5 + size):
            assert mapping.get(key) == expected.get(key)
            assert (key in mapping) == (key in expected)


def test_what_lies_over_it_stays_small() -> None:
    """Once in so many edits the whole is copied, and no more often."""
    found: Mapping[int, int] = dict.fromkeys(range(overlaid.LARGE), 0)
    copied = set()
    for number in range(200):
        found = overlaid.edited(found, {number: 1}, ())
        assert isinstance(found, overlaid.Overlaid)
        assert len(found.over) <= overlaid.LARGE // 64
        copied.add(len(found.over))
    assert max(copied) == overlaid.LARGE // 64
    assert sum(found.values()) == 200
