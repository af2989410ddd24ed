# SPDX-License-Identifier: Apache-2.0
"""One YAML text to plain values, from the parser's events, within bounds.

PyYAML's own constructors would make dates and sets, let the last of two equal keys win, and expand
an alias as often as it is named. Events leave all of that to us.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
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
_PLAIN_KEYS = "a key must be a word, not a list, a mapping or an alias"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A document that parsed."""

    value: Any
    line: int
    lines: dict[int, int]
    """Line of each mapping and list, by ``id``; good while ``value`` lives."""


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


class _OpenList:
    """A list whose end has not come yet."""

    wants_key = False

    def __init__(self, anchor: str | None) -> None:
        self.value: list[Any] = []
        self.size = 1
        self.anchor = anchor

    def put(self, event: yaml.Event, value: Any) -> None:
        self.value.append(value)


class _OpenMapping:
    """A mapping whose end has not come yet. It takes key, value, key, value ...

    Merges (``<<``) wait for the end, because a key written out wins over a merged one.
    """

    def __init__(self, anchor: str | None) -> None:
        self.value: dict[str, Any] = {}
        self.size = 1
        self.anchor = anchor
        self.repeated: list[tuple[yaml.Event, str]] = []
        self._key: str | None = None
        self._plain = False
        self._merges: list[dict[str, Any]] = []

    @property
    def wants_key(self) -> bool:
        return self._key is None

    def put(self, event: yaml.Event, value: Any) -> None:
        if self._key is None:
            self._take_key(event)
            return
        key, self._key = self._key, None
        if key == _MERGE and self._plain:
            self._merge(event, value)
        elif key not in self.value:
            self.value[key] = value

    def _take_key(self, event: yaml.Event) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise _RefusedError(event, _PLAIN_KEYS)
        # Its text, whatever that would mean as a value: `8080:` and `on:` are "8080" and "on".
        self._key = event.value
        self._plain = event.implicit[0]
        if self._key in self.value:
            self.repeated.append((event, self._key))

    def _merge(self, event: yaml.Event, value: Any) -> None:
        sources = value if isinstance(value, list) else [value]
        for source in sources:
            if not isinstance(source, dict):
                raise _RefusedError(event, "<< must name a mapping or a list of mappings")
            self._merges.append(source)

    def close(self) -> None:
        for source in self._merges:
            for key, value in source.items():
                self.value.setdefault(key, value)


class _Builder:
    """Builds the value of one document."""

    def __init__(self, line: int) -> None:
        self._line = line
        self._open: list[_OpenList | _OpenMapping] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        self._aliased = 0
        self._repeated: list[tuple[yaml.Event, str]] = []
        self._begin = line
        self._lines: dict[int, int] = {}
        self._root: Any = None
        self._empty = True

    def feed(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._place(event, _scalar(event), size=1, anchor=event.anchor)
            case yaml.SequenceStartEvent():
                self._start(event, _OpenList(event.anchor), "seq")
            case yaml.MappingStartEvent():
                self._start(event, _OpenMapping(event.anchor), "map")
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end(event)
            case yaml.AliasEvent():
                self._alias(event)
            case _:  # the document's own start and end
                pass

    def finish(self) -> Built | Fault:
        if self._repeated:
            event, _ = self._repeated[0]
            listed = ", ".join(
                f"{key!r} (line {self._line + _line(at)})" for at, key in self._repeated
            )
            return Fault(
                line=self._line + _line(event),
                reason=f"keys that are already there: {listed}",
            )
        return Built(value=self._root, line=self._begin, lines=self._lines)

    def _start(self, event: Any, opened: _OpenList | _OpenMapping, tag: str) -> None:
        if event.tag not in (None, "!", _CORE + tag):
            raise _RefusedError(event, f"the tag {event.tag} is not allowed")
        if len(self._open) >= MAX_DEPTH:
            raise _RefusedError(event, f"nested deeper than {MAX_DEPTH} levels")
        if self._open and self._open[-1].wants_key:
            raise _RefusedError(event, _PLAIN_KEYS)
        self._note_begin(event)
        self._lines[id(opened.value)] = self._line + _line(event)
        if opened.anchor is not None:
            self._anchors[opened.anchor] = None  # not to be named within itself
        self._open.append(opened)

    def _end(self, event: yaml.Event) -> None:
        closed = self._open.pop()
        if isinstance(closed, _OpenMapping):
            closed.close()
            self._repeated += closed.repeated
        self._place(event, closed.value, size=closed.size, anchor=closed.anchor)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _RefusedError(event, f"the alias *{event.anchor} names no anchor before it")
        known = self._anchors[event.anchor]
        if known is None:
            raise _RefusedError(event, f"the alias *{event.anchor} lies within what it names")
        value, size = known
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise _RefusedError(event, f"aliases stand for more than {MAX_ALIASED} values")
        self._place(event, value, size=size, anchor=None)

    def _place(self, event: yaml.Event, value: Any, *, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if self._open:
            self._open[-1].size += size
            self._open[-1].put(event, value)
        else:
            self._note_begin(event)
            self._root = value

    def _note_begin(self, event: yaml.Event) -> None:
        if self._empty:
            self._empty = False
            self._begin = self._line + _line(event)


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


def parse(text: str, *, line: int) -> Iterator[Built | Fault]:
    """The documents of a text; a text has several only if it ends them with ``...``.

    Args:
        text: YAML without ``---`` lines.
        line: Number of the text's first line in its file, from 1.

    Yields:
        Each document's value, or why it was refused. After a fault the rest is not read.
    """
    builder = _Builder(line)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder(line)
            builder.feed(event)
            if isinstance(event, yaml.DocumentEndEvent):
                yield builder.finish()
    except _RefusedError as refused:
        yield Fault(line=line + refused.line, reason=refused.reason)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = mark.line if mark is not None else 0
        yield Fault(line=line + at, reason=error.problem or "is not YAML")
    except (yaml.YAMLError, UnicodeError) as error:
        yield Fault(line=line, reason=f"is not YAML: {str(error).splitlines()[0]}")
