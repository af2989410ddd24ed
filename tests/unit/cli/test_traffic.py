# SPDX-License-Identifier: Apache-2.0
"""When a split that was seen fits the split asked for."""

import collections

import pytest

from pilothouse.cli import traffic


def _tally(**answers: int) -> traffic.Tally:
    return traffic.Tally(answers=collections.Counter(answers))


@pytest.mark.parametrize(
    ("answers", "asked", "fits"),
    [
        ({"v1": 362, "v2": 38}, {"v1": 0.9, "v2": 0.1}, True),
        # 5 standard deviations of 400 draws at 0.1 are 30.
        ({"v1": 325, "v2": 75}, {"v1": 0.9, "v2": 0.1}, False),
        ({"v2": 40}, {"v2": 1.0}, True),
        ({"v1": 1, "v2": 39}, {"v2": 1.0}, False),
        ({}, {"v2": 1.0}, False),
    ],
)
def test_a_split_fits_within_chance(
    answers: dict[str, int],
    asked: dict[str, float],
    fits: bool,  # noqa: FBT001 - a parametrised test is called by pytest
) -> None:
    """Shares may differ by chance, but nobody may answer who was not asked."""
    assert _tally(**answers).fits(asked) is fits


def test_failures_count_as_requests() -> None:
    """A request that failed was sent."""
    tally = _tally(v1=3)
    tally.failures.append("GET /: reset")

    assert tally.requests == 4
