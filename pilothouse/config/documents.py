# SPDX-License-Identifier: Apache-2.0
"""YAML text to raw documents: our config objects and Kubernetes manifests alike.

Nothing is trusted. The text is cut at its ``---`` lines first, so that a document which cannot be
parsed spoils no other. A document is built from the parser's events: no tag can make anything but
strings, numbers, booleans, null, lists and mappings, nesting and aliases are bounded, and a key
that is there twice refuses the document. What a plain word means is told in
`pilothouse.config.scalars`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from pilothouse.config import events, objects, scalars

MAX_CHARACTERS = 32 * 1024 * 1024
"""Longest text that is read."""
MAX_DOCUMENTS = 50_000
"""Most documents of one text, counting the items of lists."""

_SEPARATOR = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_NO_CONTENT = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*(?:#[^\n]*)?")
_DIRECTIVE = re.compile(r"^%[^\n]*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RawDocument:
    """One document that parsed, and nothing more is known of it."""

    location: str
    """``FILE:DOCUMENT``, or ``FILE:DOCUMENT[ITEM]`` within a list.

    Documents with content count from 1, items from 0.
    """
    manifest: Mapping[str, Any]
    """Never mutated: aliases make parts of it shared."""
    line: int
    """Where it begins in the file, from 1."""

    @property
    def api_version(self) -> str:
        """``apiVersion``, empty when it is missing or no string."""
        return _text(self.manifest.get("apiVersion"))

    @property
    def kind(self) -> str:
        """``kind``, empty when it is missing or no string."""
        return _text(self.manifest.get("kind"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def load(
    text: str, *, location: str
) -> tuple[tuple[RawDocument, ...], tuple[objects.Problem, ...]]:
    """Parse every document of a text.

    Args:
        text: YAML, or JSON, which is YAML.
        location: Names the file in locations and problems.

    Returns:
        The documents that parsed, with ``kind: List`` replaced by its items, and a problem for
        each that did not, naming file, document and line; both in the order of the text.
    """
    if len(text) > MAX_CHARACTERS:
        too_long = f"is longer than {MAX_CHARACTERS} characters"
        return (), (objects.Problem(location=location, message=too_long),)
    documents: list[RawDocument] = []
    problems: list[objects.Problem] = []
    number = 0
    for chunk, line in _chunks(text.removeprefix("\ufeff")):
        for result in events.parse(chunk, line=line):
            number += 1
            where = f"{location}:{number}"
            if isinstance(result, events.Fault):
                message = f"line {result.line}: {result.reason}"
                problems.append(objects.Problem(location=where, message=message))
                continue
            found, wrong = _expand(result, where)
            documents += found
            problems += wrong
        if len(documents) > MAX_DOCUMENTS:
            reason = f"has more than {MAX_DOCUMENTS} documents; the rest is not read"
            problems.append(objects.Problem(location=location, message=reason))
            return tuple(documents[:MAX_DOCUMENTS]), tuple(problems)
    return tuple(documents), tuple(problems)


def _chunks(text: str) -> Iterator[tuple[str, int]]:
    """The parts between ``---`` lines that have content, each with the number of its first line."""
    line = 1
    begin = 0
    for end in (*(match.start() for match in _SEPARATOR.finditer(text)), len(text)):
        chunk = text[begin:end]
        # The separator itself goes, the line it stands on stays: content may follow it.
        body = "   " + chunk[3:] if begin or _SEPARATOR.match(chunk) else chunk
        body = _DIRECTIVE.sub("", body) if body.lstrip().startswith("%") else body
        if not _NO_CONTENT.fullmatch(body):
            yield body, line
        line += chunk.count("\n")
        begin = end


def _expand(
    built: events.Built, where: str
) -> tuple[tuple[RawDocument, ...], tuple[objects.Problem, ...]]:
    value = built.value
    if value is None:
        return (), ()
    if not isinstance(value, dict):
        reason = f"line {built.line}: a document must be a mapping, is {describe(value)}"
        return (), (objects.Problem(location=where, message=reason),)
    whole = RawDocument(location=where, manifest=value, line=built.line)
    if value.get("apiVersion") != "v1" or value.get("kind") != "List":
        return (whole,), ()
    return _items(whole, built)


def _items(
    whole: RawDocument, built: events.Built
) -> tuple[tuple[RawDocument, ...], tuple[objects.Problem, ...]]:
    items = whole.manifest.get("items")
    if not isinstance(items, list):
        if items is None:
            return (), ()
        reason = f"line {whole.line}: items: must be a list, is {describe(items)}"
        return (), (objects.Problem(location=whole.location, message=reason),)
    found: list[RawDocument] = []
    wrong: list[objects.Problem] = []
    for index, item in enumerate(items):
        where = f"{whole.location}[{index}]"
        line = built.lines.get(id(item), whole.line)
        if isinstance(item, dict):
            found.append(RawDocument(location=where, manifest=item, line=line))
        else:
            reason = f"line {line}: an item must be a mapping, is {describe(item)}"
            wrong.append(objects.Problem(location=where, message=reason))
    return tuple(found), tuple(wrong)


def describe(value: object) -> str:
    """What a value of a manifest is, for a message to its author."""
    match value:
        case None:
            return "empty"
        case bool():
            return f"the boolean {str(value).lower()}"
        case str():
            return f"the text {value!r}" if len(value) <= 60 else f"the text {value[:57]!r}..."
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _ManifestDumper(_Dumper):  # type: ignore[misc]  # C or Python, whichever is there
    """Writes what ``load`` reads back: quotes what would not stay text, and uses no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> yaml.Node:
    if "\n" in text and not text.startswith((" ", "\n")):
        style = "|"
    elif text != text.strip() or scalars.resolve(text) is not text:
        style = '"'
    else:
        style = None
    node: yaml.Node = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


_ManifestDumper.add_representer(str, _represent_text)


def dump(manifest: Mapping[str, Any]) -> str:
    """YAML of one manifest, keys in the order they have; `load` reads it back as it was."""
    text: str = yaml.dump(
        dict(manifest),
        Dumper=_ManifestDumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=110,
    )
    return text
