# SPDX-License-Identifier: Apache-2.0
"""Pages name tests that exist, and every field that a user can write is in a support table."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilothouse.config import schema

ROOT = Path(__file__).resolve().parents[3]
TABLES = sorted((ROOT / "docs" / "reference").glob("*-support.md"))
PAGES = [*TABLES, ROOT / "docs" / "coming-from-istio.md"]
"""All that name tests."""


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


@pytest.mark.parametrize("table", PAGES, ids=lambda path: path.stem)
def test_every_test_that_is_named_exists(table: Path) -> None:
    """A row without its proof is a claim."""
    wanted = named(table.read_text())
    assert wanted
    assert sorted(wanted - functions()) == []


@pytest.mark.parametrize("table", PAGES, ids=lambda path: path.stem)
def test_every_file_that_is_named_exists(table: Path) -> None:
    """Files are named where a function alone would be ambiguous."""
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    wanted = set(re.findall(r"(test_\w+\.py)`", table.read_text()))
    assert sorted(wanted - names) == []


def fields(message: Any, seen: set[str]) -> Iterator[str]:
    """YAML names of all fields of a message and of our messages below it."""
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    for field in message.fields:
        if not message.GetOptions().map_entry:
            yield field.json_name
        if field.message_type and field.message_type.full_name.startswith("pilothouse."):
            yield from fields(field.message_type, seen)


@pytest.mark.parametrize(
    "kind", ["RouteRule", "DestinationPolicy", "MeshGateway"], ids=lambda kind: kind
)
def test_every_field_is_in_a_table(kind: str) -> None:
    """What has no row has no behaviour that anybody proved."""
    told = "\n".join(path.read_text() for path in TABLES)
    words = {
        word for quoted in re.findall(r"`([^`]+)`", told) for word in re.findall(r"\w+", quoted)
    }
    wanted = set(fields(schema.KINDS[kind].spec.DESCRIPTOR, set()))
    assert sorted(wanted - words) == []
