# SPDX-License-Identifier: Apache-2.0
"""``pilothouse validate``: everything that can be said about config objects without a cluster."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any, Final

from pilothouse.config import lint, objects
from pilothouse.routing import offline

_FIELD: Final = re.compile(r"((?:spec|metadata)\b[^:\s]*): ")
"""How the words begin that are about a field."""


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
    texts: list[tuple[str, str]] = []
    rows: list[dict[str, Any]] = []
    for path in _files(paths):
        try:
            texts.append((str(path), path.read_bytes().decode()))
        except OSError as error:
            rows.append(_row(str(path), "", "", f"cannot be read: {error.strerror}", "error"))
        except UnicodeDecodeError as error:
            rows.append(_row(str(path), "", "", f"is not UTF-8 at byte {error.start}", "error"))
    report = lint.check(texts)
    rows += [_problem(one) for one in report.problems]
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


def _problem(found: objects.Problem) -> dict[str, Any]:
    """A text that is no object; where it is one but for a field, that is told as in others."""
    field = _FIELD.match(found.message) if found.key else None
    message = found.message[field.end() :] if field else found.message
    where, key = found.location, str(found.key) if found.key else ""
    return _row(where, key, field[1] if field else "", message, "error")


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
            found += sorted(
                one
                for one in path.rglob("*")
                if one.suffix in (".yaml", ".yml", ".json") and not one.is_dir()
            )
        elif path.is_file():
            found.append(path)
        else:
            msg = f"{path}: no such file or folder"
            raise NothingToReadError(msg)
    if not found:
        msg = f"{', '.join(map(str, paths))}: no .yaml, .yml or .json file"
        raise NothingToReadError(msg)
    return found
