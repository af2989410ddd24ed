# SPDX-License-Identifier: Apache-2.0
"""What commands print: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer
import yaml


class Format(enum.StrEnum):
    """How to print an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show(rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str], form: Format) -> None:
    """Print rows: every field as JSON or YAML, the columns named as a table."""
    if form is Format.JSON:
        typer.echo(json.dumps(list(rows), indent=2, sort_keys=True))
    elif form is Format.YAML:
        typer.echo(yaml.safe_dump(list(rows), sort_keys=True), nl=False)
    else:
        typer.echo(table(rows, columns))


def show_one(found: Mapping[str, Any], *, form: Format) -> None:
    """Print one thing as JSON or YAML."""
    if form is Format.YAML:
        typer.echo(yaml.safe_dump(dict(found), sort_keys=True), nl=False)
    else:
        typer.echo(json.dumps(found, indent=2, sort_keys=True))


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Columns under upper-case headings, as wide as they need to be."""
    cells = [
        [column.upper() for column in columns],
        *([str(row.get(c, "")) for c in columns] for row in rows),
    ]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def fail(message: str, *, code: int = 1) -> typer.Exit:
    """Say what went wrong on stderr; raise the answer."""
    typer.secho(f"error: {message}", err=True, fg=typer.colors.RED)
    return typer.Exit(code)
