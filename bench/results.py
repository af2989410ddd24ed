# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks give: rows, as JSON and as Markdown tables."""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

Value = str | int | float
Say = Callable[[str], None]
BEGIN, END = "<!-- numbers: begin -->", "<!-- numbers: end -->"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table."""

    sizes: Mapping[str, Value]
    """What was measured: server, services, streams."""
    measures: Mapping[str, Value]
    """Name with its unit to value."""
    command: str
    """How to get this row alone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plot:
    """A picture of how a measure grows."""

    across: str
    """The size that grows, to the right."""
    measure: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One question, asked at several sizes."""

    name: str
    title: str
    budget: str
    """What the project promises."""
    run: Callable[[argparse.Namespace, Say], Coroutine[Any, Any, list[Row]]]
    plots: tuple[Plot, ...] = ()


def command(name: str, **flags: Value) -> str:
    """The command for a row of a benchmark."""
    words = [f"--{flag.replace('_', '-')} {value}" for flag, value in flags.items()]
    return " ".join(["python -m bench", name, *words])


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def spread(name: str, seconds: Sequence[float]) -> dict[str, Value]:
    """Median, 99th percentile and maximum in milliseconds."""
    return {
        f"{name} p50 ms": round(percentile(seconds, 50) * 1000, 1),
        f"{name} p99 ms": round(percentile(seconds, 99) * 1000, 1),
        f"{name} max ms": round(max(seconds) * 1000, 1),
    }


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    cells = [{**row.sizes, **row.measures} for row in rows]
    columns = list(dict.fromkeys(column for row in cells for column in row))
    lines = [columns, ["---" for _ in columns]]
    lines += [[str(row.get(column, "")) for column in columns] for row in cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def section(benchmark: Benchmark, rows: Sequence[Row], pictures: Iterable[str] = ()) -> str:
    """A benchmark's part of the document; pictures are Markdown."""
    commands = "\n".join(dict.fromkeys(row.command for row in rows))
    shown = "".join(f"{picture}\n\n" for picture in pictures)
    return (
        f"### {benchmark.title}\n\nBudget: {benchmark.budget}.\n\n{table(rows)}\n\n"
        f"{shown}```sh\n{commands}\n```\n"
    )


def write_between_markers(path: pathlib.Path, text: str) -> None:
    """Put ``text`` between the markers of a document.

    Raises:
        ValueError: it has no markers.
    """
    document = path.read_text()
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no lines {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}")
