# SPDX-License-Identifier: Apache-2.0
"""One YAML text to plain values, from the parser's events, within bounds.

PyYAML's own constructors would make dates and sets, let the last of two equal keys win, and expand
an alias as often as it is named. Events leave all of that to us.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import yaml

from pilothouse.config import scalars

MAX_DEPTH = 100
"""Deepest nesting of lists and mappings."""
MAX_ALIASED = 100_000
"""Most values that the aliases of one document may stand for, counted as if written out."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_MERGE = "<<"
_ITEM = 3
"""How deep the items of a list are that is a field of the document."""
_PLAIN_KEYS = "a key must be a word, not a list, a mapping or an alias"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A document that parsed."""

    value: Any
    line: int
    lines: dict[int, int]
    """Line of each mapping and list that is an item of one of its lists, by ``id``; good while
    ``value`` lives."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a document was refused. Nothing of it is used."""

    line: int
    reason: str


def _line(event: yaml.Event) -> int:
    """Of the event in its text, from 0."""
    return event.start_mark.line if event.start_mark is not None else 0


class _RefusedError(Exception):
    def __init__(self, event: yaml.Event, reason: str) -> None:
        super().__init__(reason)
        self.line = _line(event)
        self.reason = reason


class _Document:
    """Builds the value of one document.

    Documents of thousands of values come by the thousand, so what most events are, a plain scalar,
    is seen to in the two loops that meet it, without a call of its own.
    """

    def __init__(self, take: Callable[[], Any], line: int) -> None:
        self._take = take
        self._line = line
        self._depth = 0
        self._count = 0
        """Values so far, keys included and aliases written out."""
        self._aliased = 0
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        """Values and their sizes; None while one is being built, not to be named within itself."""
        self._repeated: list[tuple[yaml.Event, str]] = []
        self._lines: dict[int, int] = {}

    def built(self) -> Built | Fault:
        """Take the whole of it."""
        root = self._take()
        value = self._value(root)
        self._take()  # its end, which may be wrong
        if self._repeated:
            event, _ = self._repeated[0]
            listed = ", ".join(
                f"{key!r} (line {self._line + _line(at)})" for at, key in self._repeated
            )
            return Fault(
                line=self._line + _line(event),
                reason=f"keys that are already there: {listed}",
            )
        return Built(value=value, line=self._line + _line(root), lines=self._lines)

    def _value(self, event: Any) -> Any:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._count += 1
            value = _scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = value, 1
            return value
        if kind is yaml.AliasEvent:
            return self._alias(event)
        before = self._count
        self._begin(event)
        if kind is yaml.MappingStartEvent:
            found: Any = {}
            self._note(event, found)
            self._fill_mapping(found)
        else:
            found = []
            self._note(event, found)
            self._fill_list(found)
        self._depth -= 1
        if event.anchor is not None:
            self._anchors[event.anchor] = found, self._count - before
        return found

    def _fill_mapping(self, found: dict[str, Any]) -> None:
        """Take key, value, key, value ... until the mapping's end.

        Merges (``<<``) wait for the end, because a key written out wins over a merged one.
        """
        take, scalar = self._take, yaml.ScalarEvent
        repeated: list[tuple[yaml.Event, str]] = []
        merged: list[dict[str, Any]] = []
        own = 1
        while type(at := take()) is not yaml.MappingEndEvent:
            if type(at) is not scalar or at.tag is not None or at.anchor is not None:
                self._odd_key(at)
            own += 1
            # Its text, whatever that would mean as a value: `8080:` and `on:` are "8080" and "on".
            key = sys.intern(at.value)
            if key in found:
                repeated.append((at, key))
            event = take()
            if type(event) is scalar and event.tag is None and event.anchor is None:
                own += 1
                value = scalars.resolve(event.value) if event.implicit[0] else event.value
            else:
                value = self._value(event)
            if key == _MERGE and at.implicit[0]:
                merged += _merged(event, value)
            elif key not in found:
                found[key] = value
        for source in merged:
            for key, value in source.items():
                found.setdefault(key, value)
        self._count += own
        self._repeated += repeated

    def _fill_list(self, found: list[Any]) -> None:
        take, scalar = self._take, yaml.ScalarEvent
        own = 1
        while type(event := take()) is not yaml.SequenceEndEvent:
            if type(event) is scalar and event.tag is None and event.anchor is None:
                own += 1
                found.append(scalars.resolve(event.value) if event.implicit[0] else event.value)
            else:
                found.append(self._value(event))
        self._count += own

    def _odd_key(self, event: Any) -> None:
        """Take notice of a key that is not just a word, unless it is none at all."""
        match event:
            case yaml.ScalarEvent():
                value = _scalar(event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = value, 1
                return
            case yaml.AliasEvent():
                self._alias(event)
            case _:
                self._begin(event)
        raise _RefusedError(event, _PLAIN_KEYS)

    def _begin(self, event: Any) -> None:
        """Enter a list or mapping."""
        tag = "map" if type(event) is yaml.MappingStartEvent else "seq"
        if event.tag not in (None, "!", _CORE + tag):
            raise _RefusedError(event, f"the tag {event.tag} is not allowed")
        if self._depth >= MAX_DEPTH:
            raise _RefusedError(event, f"nested deeper than {MAX_DEPTH} levels")
        self._depth += 1

    def _note(self, event: Any, value: Any) -> None:
        """Remember where a list or mapping begins, if anybody may ask."""
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        # Those asked for are items of a list in the document, or come from an alias.
        if self._depth == _ITEM or self._anchors:
            self._lines[id(value)] = self._line + _line(event)

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise _RefusedError(event, f"the alias *{event.anchor} names no anchor before it")
        known = self._anchors[event.anchor]
        if known is None:
            raise _RefusedError(event, f"the alias *{event.anchor} lies within what it names")
        value, size = known
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise _RefusedError(event, f"aliases stand for more than {MAX_ALIASED} values")
        self._count += size
        return value


def _merged(event: yaml.Event, value: Any) -> list[dict[str, Any]]:
    sources = value if isinstance(value, list) else [value]
    for source in sources:
        if not isinstance(source, dict):
            raise _RefusedError(event, "<< must name a mapping or a list of mappings")
    return sources


def _scalar(event: Any) -> scalars.Plain:
    text: str = event.value
    tag = event.tag
    if tag is None and event.implicit[0]:
        return scalars.resolve(text)
    if tag in (None, "!", _CORE + "str"):
        return text
    value = scalars.resolve(text)
    match tag.removeprefix(_CORE), value:
        case ("bool", bool()) | ("null", None):
            return value
        case ("int", int()) if not isinstance(value, bool):
            return value
        case ("float", int() | float()) if not isinstance(value, bool):
            return float(value)
        case _:
            raise _RefusedError(event, f"the tag {tag} is not allowed for {text!r}")


def parse(text: str, *, line: int) -> list[Built | Fault]:
    """The documents of a text; a text has several only if it ends them with ``...``.

    Args:
        text: YAML without ``---`` lines.
        line: Number of the text's first line in its file, from 1.

    Returns:
        Each document's value, or why it was refused. After a fault the rest is not read.
    """
    found: list[Built | Fault] = []
    try:
        take: Callable[[], Any] = _LOADER(text).get_event
        while (event := take()) is not None:
            if type(event) is yaml.DocumentStartEvent:
                found.append(_Document(take, line).built())
    except _RefusedError as refused:
        found.append(Fault(line=line + refused.line, reason=refused.reason))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = mark.line if mark is not None else 0
        found.append(Fault(line=line + at, reason=error.problem or "is not YAML"))
    except (yaml.YAMLError, UnicodeError) as error:
        found.append(Fault(line=line, reason=f"is not YAML: {str(error).splitlines()[0]}"))
    return found
