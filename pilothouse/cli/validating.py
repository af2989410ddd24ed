# SPDX-License-Identifier: Apache-2.0
"""``pilothouse validate``: everything that can be said about config objects without a cluster."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from pilothouse.config import lint
from pilothouse.routing import offline


class NothingToReadError(Exception):
    """A path that does not exist, or a folder without files; the message names it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found."""

    objects: int
    """Config objects read; Kubernetes' own are not checked."""
    rows: tuple[dict[str, Any], ...]
    """One for each finding: where, object, field, message, severity."""

    @property
    def ok(self) -> bool:
        """Whether there is nothing but warnings."""
        return all(row["severity"] == "warning" for row in self.rows)


def run(paths: list[pathlib.Path]) -> Verdict:
    """Check files, and all YAML and JSON files of folders.

    Raises:
        NothingToReadError: a path is not there.
    """
    report = lint.check([(str(path), path.read_text()) for path in _files(paths)])
    rows = [
        _row(one.location, str(one.key) if one.key else "", "", one.message, "error")
        for one in report.problems
    ]
    for key, found in report.violations.items():
        where = report.configs[key].location
        rows += [_row(where, str(key), one.field, one.message, "error") for one in found]
    for severity, some in (("error", report.conflicts), ("warning", report.warnings)):
        for key, conditions in some.items():
            where = report.configs[key].location
            rows += [_row(where, str(key), "", one.message, severity) for one in conditions]
    good = {
        key: config
        for key, config in report.configs.items()
        if key not in report.violations and key not in report.conflicts
    }
    for key, messages in offline.unreached(good).items():
        where = report.configs[key].location
        rows += [_row(where, str(key), "", one, "warning") for one in messages]
    return Verdict(objects=len(report.configs), rows=tuple(rows))


def _row(where: str, key: str, field: str, message: str, severity: str) -> dict[str, Any]:
    return {
        "severity": severity,
        "where": where,
        "object": key,
        "field": field,
        "message": message,
    }


def _files(paths: list[pathlib.Path]) -> list[pathlib.Path]:
    found: list[pathlib.Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml", ".json"))
        elif path.is_file():
            found.append(path)
        else:
            msg = f"{path}: no such file or folder"
            raise NothingToReadError(msg)
    if not found:
        msg = f"{', '.join(map(str, paths))}: no .yaml, .yml or .json file"
        raise NothingToReadError(msg)
    return found
