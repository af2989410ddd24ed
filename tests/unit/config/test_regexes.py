# SPDX-License-Identifier: Apache-2.0
"""Which patterns RE2 compiles."""

import pytest

from pilothouse.config import regexes
from tests.support import patterns


@pytest.mark.parametrize("pattern", patterns.GOOD)
def test_what_re2_compiles_is_no_problem(pattern: str):
    """Constructs that Python's re refuses among them."""
    assert regexes.problem(pattern) is None


@pytest.mark.parametrize("pattern", patterns.BAD | patterns.STRICTER)
def test_what_re2_refuses_is_a_problem_that_says_why(pattern: str):
    """Constructs that Python's re knows among them."""
    problem = regexes.problem(pattern)
    assert problem is not None
    assert (patterns.BAD | patterns.STRICTER)[pattern] in problem
