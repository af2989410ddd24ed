# SPDX-License-Identifier: Apache-2.0
"""Pictures of how cost grows: one line for each contender, on logarithmic axes.

Needs the extra `bench`; without it the tables stand alone, and a message says so.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bench import results

if TYPE_CHECKING:
    from matplotlib import axes

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "performance"
_INCHES = (7.0, 4.2)
Points = list[tuple[float, float]]


def write(
    benchmark: results.Benchmark, rows: Sequence[results.Row], say: results.Say
) -> Iterator[str]:
    """Write the pictures of a benchmark; the Markdown that shows each of them."""
    for index, plot in enumerate(benchmark.plots):
        lines = _lines(plot, rows)
        if all(len(points) < 2 for points in lines.values()):
            continue  # measured at one size only: there is no growth to see
        path = FOLDER / f"{benchmark.name}-{index + 1}.svg"
        if not _draw(path, plot, lines):
            say("plots are left out: install the extra `bench`")
            return
        title = f"{plot.measure} by {plot.across}"
        yield f"![{title}]({FOLDER.name}/{path.name})"


def _lines(plot: results.Plot, rows: Sequence[results.Row]) -> Mapping[str, Points]:
    """Points of each line, by what is said of it."""
    found: dict[str, Points] = {}
    for row in rows:
        across, measure = row.sizes.get(plot.across), row.measures.get(plot.measure)
        if not isinstance(across, int | float) or not isinstance(measure, int | float):
            continue
        others = [
            value if isinstance(value, str) else f"{value} {name}"
            for name, value in row.sizes.items()
            if name != plot.across
        ]
        found.setdefault(", ".join(map(str, others)), []).append((across, measure))
    return {name: sorted(points) for name, points in found.items()}


def _draw(path: pathlib.Path, plot: results.Plot, lines: Mapping[str, Points]) -> bool:
    try:
        import matplotlib as mpl  # noqa: PLC0415  an extra: the numbers are worth having without it
        from matplotlib import figure  # noqa: PLC0415
    except ImportError:
        return False
    # Equal numbers, equal bytes.
    with mpl.rc_context({"svg.hashsalt": path.name, "font.size": 9}):
        made = figure.Figure(figsize=_INCHES, layout="constrained")
        _fill(made.add_subplot(), plot, lines)
        path.parent.mkdir(parents=True, exist_ok=True)
        made.savefig(path, format="svg", metadata={"Date": None})
    return True


def _fill(chart: axes.Axes, plot: results.Plot, lines: Mapping[str, Points]) -> None:
    for name, points in lines.items():
        across, measured = zip(*points, strict=True)
        chart.plot(across, measured, marker="o", label=name)
    chart.set_xscale("log")
    chart.set_yscale("log")
    chart.set_xlabel(plot.across)
    chart.set_ylabel(plot.measure)
    chart.grid(visible=True, which="both", alpha=0.2)
    if any(lines):
        chart.legend()
