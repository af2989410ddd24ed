# SPDX-License-Identifier: Apache-2.0
"""The support tables name tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TABLES = sorted((ROOT / "docs" / "reference").glob("*-support.md"))


def functions() -> set[str]:
    """The names of all tests."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def named(text: str) -> set[str]:
    """The tests that a table names, without the part in brackets and without files."""
    return {
        name for name in re.findall(r"`(test_\w+)(?:\[[^`]*\])?`", text) if not name.endswith("_py")
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_test_that_is_named_exists(table: Path):
    """A row without its proof is a claim."""
    wanted = named(table.read_text())
    assert wanted
    assert sorted(wanted - functions()) == []


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_file_that_is_named_exists(table: Path):
    """Files are named where a function alone would be ambiguous."""
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    wanted = set(re.findall(r"(test_\w+\.py)`", table.read_text()))
    assert sorted(wanted - names) == []
