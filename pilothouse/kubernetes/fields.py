# SPDX-License-Identifier: Apache-2.0
"""Reads a Kubernetes manifest field by field, and collects everything that is wrong with it.

Only the fields that are asked for are looked at; others may hold anything. A missing field and an
explicit null are the same, as they are for the Kubernetes API.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from pilothouse.config import documents, objects, scalars
from pilothouse.model import keys

DEFAULT_NAMESPACE = "default"


class Field:
    """One place in a manifest: its value, its path, and where its manifest's violations go."""

    __slots__ = ("_above", "_step", "_violations", "value")

    def __init__(
        self,
        value: Any,
        above: Field | None = None,
        step: str | int = "",
        violations: list[str] | None = None,
    ) -> None:
        """A manifest by its value; whatever is below it is made by itself, a hundred times each."""
        self.value = value
        self._above = above
        self._step = step
        self._violations: list[str] = violations if violations is not None else []

    @property
    def violations(self) -> tuple[str, ...]:
        """What was found wrong so far, in the manifest's order of reading: ``FIELD: REASON``."""
        return tuple(self._violations)

    @property
    def path(self) -> str:
        """``spec.ports[0].port``, for messages."""
        above = self._above.path if self._above is not None else ""
        if isinstance(self._step, int):
            return f"{above}[{self._step}]"
        return f"{above}.{self._step}" if above and self._step[:1] != "[" else above + self._step

    @property
    def present(self) -> bool:
        """True unless the field is missing or null."""
        return self.value is not None

    def refuse(self, reason: str) -> None:
        """Note that this field is wrong."""
        path = self.path
        self._violations.append(f"{path}: {reason}" if path else reason)

    def __getitem__(self, name: str) -> Field:
        """The field of this name; as if missing when this is no mapping, which is noted."""
        value = self.value
        if type(value) is dict or isinstance(value, Mapping):
            return Field(value.get(name), self, name, self._violations)
        if value is not None:
            self._mismatch("a mapping")
            self.value = None  # said once
        return Field(None, self, name, self._violations)

    def entry(self, name: str) -> Field:
        """Like ``[name]`` for keys that hold dots: annotations, labels, data."""
        return Field(self[name].value, self, f"[{name}]", self._violations)

    def has(self, name: str) -> bool:
        """Whether ``[name]`` is present; like what follows without a place made for it."""
        value = self.value
        return value.get(name) is not None if type(value) is dict else self[name].present

    def text_at(self, name: str, default: str = "") -> str:
        """``[name].text(default)``."""
        value = self.value
        if type(value) is dict:
            found = value.get(name)
            if found is None:
                return default
            if type(found) is str:
                return found
        return self[name].text(default)

    def flag_at(self, name: str) -> bool | None:
        """``[name].flag()``."""
        value = self.value
        if type(value) is dict:
            found = value.get(name)
            if found is None or found is True or found is False:
                return found
        return self[name].flag()

    def plain_texts_at(self, name: str) -> list[str] | None:
        """The items of ``[name]``, if that is a list of strings and of nothing else."""
        value = self.value
        found = value.get(name) if type(value) is dict else None
        if type(found) is list and all(type(one) is str for one in found):
            return found
        return None

    def each(self) -> Iterator[Field]:
        """The items of a list; none for a missing field."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            self._mismatch("a list")
            return
        for index, item in enumerate(self.value):
            yield Field(item, self, index, self._violations)

    def text(self, default: str = "") -> str:
        """A string; ``default`` when it is missing or wrong."""
        if self.value is None:
            return default
        if not isinstance(self.value, str):
            self._mismatch("a string")
            return default
        return self.value

    def required(self) -> str:
        """A string that must be there and not be empty."""
        text = self.text()
        if not text and (self.value is None or self.value == ""):
            self.refuse("is required")
        return text

    def number(self, *, low: int, high: int) -> int | None:
        """An integer within bounds; None when it is missing or wrong."""
        if self.value is None:
            return None
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self._mismatch("an integer")
            return None
        if not low <= self.value <= high:
            self.refuse(f"must be {low} to {high}, is {self.value}")
            return None
        return self.value

    def flag(self) -> bool | None:
        """A boolean; None when it is missing or wrong."""
        if self.value is None or isinstance(self.value, bool):
            return self.value
        self._mismatch("true or false")
        return None

    def texts(self) -> tuple[str, ...]:
        """The strings of a list, in its order."""
        return tuple(item.text() for item in self.each())

    def pairs(self) -> keys.Labels:
        """A mapping of strings to strings, sorted."""
        if self.value is None:
            return ()
        if not isinstance(self.value, Mapping):
            self._mismatch("a mapping")
            return ()
        if all(type(text) is str for text in self.value.values()):
            return tuple(sorted(self.value.items()))
        return tuple(sorted([(name, self.entry(name).text()) for name in self.value]))

    def time(self) -> int:
        """Nanoseconds since 1970 of an RFC 3339 time; 0 when it is missing or wrong."""
        text = self.text()
        if not text:
            return 0
        try:
            return scalars.parse_time(text)
        except ValueError as error:
            self.refuse(str(error))
            return 0

    def _mismatch(self, wanted: str) -> None:
        self.refuse(f"must be {wanted}, is {documents.describe(self.value)}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What we read of an object's metadata."""

    key: keys.ObjectKey
    labels: keys.Labels = ()
    annotations: keys.Labels = ()
    created: int = 0
    """Nanoseconds since 1970; 0 when absent."""
    generation: int = 1
    deleting: bool = False

    def annotation(self, name: str) -> str | None:
        """The value of an annotation; None when it is not there."""
        return next((value for known, value in self.annotations if known == name), None)


def head(root: Field, *, namespaced: bool = True) -> Head:
    """Read kind and metadata; violations are noted."""
    metadata = root["metadata"]
    namespace = metadata.text_at("namespace") or DEFAULT_NAMESPACE
    return Head(
        key=keys.ObjectKey(
            kind=root["kind"].required(),
            namespace=namespace if namespaced else "",
            name=metadata["name"].required(),
        ),
        labels=metadata["labels"].pairs(),
        annotations=metadata["annotations"].pairs(),
        created=metadata["creationTimestamp"].time() if metadata.has("creationTimestamp") else 0,
        generation=metadata["generation"].number(low=0, high=2**63 - 1) or 1,
        deleting=metadata.has("deletionTimestamp"),
    )


def problems(
    document: documents.RawDocument, root: Field, key: keys.ObjectKey | None
) -> tuple[objects.Problem, ...]:
    """One problem for each violation noted at ``root`` or below it."""
    return tuple(
        objects.Problem(location=document.location, message=violation, key=key)
        for violation in root.violations
    )
