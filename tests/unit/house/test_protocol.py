# SPDX-License-Identifier: Apache-2.0
"""`docs/reference/xds-protocol.md` against the tests: each statement is shown, or says why not."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "xds-protocol.md"
TESTS = ROOT / "tests"
LAST = 74
BOTH = {*range(1, 5), 7, 8, 9, *range(12, 21), *range(21, 24), 34, 38, 39, 43, 44, 46, 48}
BOTH |= {49, 50, 51, 53, 54, 55, 56, 63}
"""Statements about both variants."""
EITHER = {"peer", "variant", "client"}
"""Arguments that are a client of each variant in turn, wherever there are several of them."""


def _statements():
    """Number to the reason why there is no test."""
    rows = re.findall(r"^\| P(\d+) \|[^|]+\|([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    numbers = [int(number) for number, _ in rows]
    assert numbers == list(range(1, LAST + 1)), "one row for each statement, in order"
    return {int(number): reason.strip() for number, reason in rows}


def _tests():
    """Number to the functions that carry it, each with the file that it is in."""
    found = defaultdict(list)
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        if "def test_p" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for number in re.findall(r"_p(\d+)(?=_)", node.name):
                    found[int(number)].append((node, text))
    return found


def test_each_statement_has_a_test_or_a_reason():
    """And not both, so that no reason outlives its test."""
    tests = _tests()
    for number, reason in _statements().items():
        assert bool(tests[number]) != bool(reason), f"P{number}"


def test_no_test_carries_a_number_that_is_not_on_the_page():
    """A number says what a test is about."""
    assert set(_tests()) <= set(_statements())


def test_statements_about_both_variants_are_shown_in_both():
    """By a test that takes a client of either, or by one for each."""
    tests = _tests()
    for number in sorted(BOTH):
        taken = {one.arg for node, _ in tests[number] for one in node.args.args}
        words = "".join(ast.get_source_segment(text, node) or "" for node, text in tests[number])
        assert taken & EITHER or ('"sotw"' in words and '"delta"' in words), f"P{number}"
