# SPDX-License-Identifier: Apache-2.0
"""Prometheus' text format, as much of it as a service with a handful of numbers needs.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric family."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    """One line for people."""
    label: str = ""
    """Name of its only label; empty for none."""
    values: Mapping[str, float] = field(default_factory=dict)
    """By the label's value; a metric without label has the key ``""``."""


def text(metrics: Iterable[Metric]) -> str:
    """Write metrics, in the order given."""
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escape(metric.help)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for value, number in metric.values.items():
            label = f'{{{metric.label}="{_escape(value, quote=True)}"}}' if metric.label else ""
            lines.append(f"{metric.name}{label} {repr(float(number)).removesuffix('.0')}")
    return "".join(f"{line}\n" for line in lines)


def _escape(value: str, *, quote: bool = False) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quote else escaped
