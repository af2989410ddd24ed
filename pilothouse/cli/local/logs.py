# SPDX-License-Identifier: Apache-2.0
"""The logs of a mesh's processes, as people read them. Pure."""

from __future__ import annotations

import json

_NOISE = frozenset({"event", "exception", "level", "logger", "node", "service", "timestamp"})
"""Keys that say nothing beside the name of the log, or that are printed by themselves."""


def tail(text: str, lines: int = 12) -> str:
    """The end of a log, indented."""
    shown = [shown for line in text.splitlines() for shown in readable(line)]
    return "\n".join(f"    {line}" for line in shown[-lines:]) or "    (its log is empty)"


def readable(line: str) -> list[str]:
    """A line of a log; one that holds a JSON object becomes words, and its traceback lines."""
    try:
        record = json.loads(line)
    except ValueError:
        return [line]
    if not isinstance(record, dict) or "event" not in record:
        return [line]
    more = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in record.items()
        if key not in _NOISE
    ]
    words = " ".join([f"{record.get('level', 'info')}: {record['event']}", *more])
    return [words, *str(record.get("exception", "")).splitlines()]
