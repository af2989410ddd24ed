# SPDX-License-Identifier: Apache-2.0
"""What every view of a folder has: it reads the objects it wants, and swaps its state as a whole.

An object that turns bad keeps what it was when it was good, and a problem tells so.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from pilothouse.adapters.files import claims, content
from pilothouse.config import documents, objects
from pilothouse.model import changes, keys

Value = TypeVar("Value")
State = TypeVar("State")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Item(Generic[Value]):
    """One object, read."""

    document: documents.RawDocument
    value: Value | None
    problems: tuple[objects.Problem, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A new state that is ready to be swapped in."""

    state: Any
    changed: tuple[keys.ObjectKey, ...]
    """Objects that came, went or changed, sorted."""
    problems: tuple[objects.Problem, ...]
    """What is wrong with the objects of the view, sorted."""
    differs: bool = True
    """False when the state equals the present one."""


class View(abc.ABC, Generic[Value, State]):
    """A part of what a folder holds.

    What reads and builds runs on the folder's thread, one at a time; everything else runs on the
    folder's event loop.
    """

    def __init__(self, name: str, initial: State) -> None:
        self.name = name
        self._state = initial
        self._built = initial
        """What was built last; the folder's thread alone touches it, and what is below."""
        self._items: dict[keys.ObjectKey, _Item[Value]] = {}
        self._values: Mapping[keys.ObjectKey, Value] | None = None
        """In key order, never changed in place; None before the first."""
        self._wrong: dict[keys.ObjectKey, tuple[objects.Problem, ...]] = {}
        self.found: tuple[objects.Problem, ...] = ()
        """What is wrong with the objects of this view, as last prepared; sorted."""

        self._problems: tuple[objects.Problem, ...] = ()
        self._subscribers: list[Callable[[changes.Change], None]] = []

    def current(self) -> State:
        """The present state; cheap, never blocks."""
        return self._state

    def subscribe(self, notify: Callable[[changes.Change], None]) -> Callable[[], None]:
        """Call ``notify`` after each change; the answer ends the subscription."""

        def call(change: changes.Change) -> None:
            notify(change)

        self._subscribers.append(call)  # wrapped, so that one handler may subscribe twice

        def end() -> None:
            if call in self._subscribers:
                self._subscribers.remove(call)

        return end

    @property
    def problems(self) -> tuple[objects.Problem, ...]:
        """What is wrong with the objects of this view, as last read; sorted by location."""
        return self._problems

    @abc.abstractmethod
    def wants(self, found: content.Object) -> bool:
        """Tell whether an object is for this view."""

    @abc.abstractmethod
    def _read(
        self, document: documents.RawDocument
    ) -> tuple[Value | None, tuple[objects.Problem, ...]]:
        """Read one object; pure."""

    @abc.abstractmethod
    def _build(
        self, values: Mapping[keys.ObjectKey, Value], changed: Collection[keys.ObjectKey]
    ) -> State:
        """Put the present objects together, in key order; ``changed`` of them are not as before."""

    def prepare(self, news: claims.News) -> Pending:
        """Read what changed, and build the state that follows; called on the folder's thread."""
        changed: list[keys.ObjectKey] = []
        moved: dict[keys.ObjectKey, Value | None] = {}
        for key, found in news.changed.items():
            before = self._items.get(key)
            wanted = found is not None and self.wants(found)
            item = self._item(found.document, before) if found and wanted else None
            if item is before:
                continue
            self._keep(key, item)
            moved[key] = item.value if item else None
            if _differ(item, before):
                changed.append(key)
        nameless = [
            each for one in news.nameless if self.wants(one) for each in self._read(one.document)[1]
        ]
        self.found = in_order(
            [*nameless, *(each for wrong in self._wrong.values() for each in wrong)]
        )
        if moved or self._values is None:
            self._values = _patched(self._values or {}, moved)
            self._built = self._build(self._values, changed)
        return Pending(state=self._built, changed=tuple(sorted(changed)), problems=self.found)

    def _keep(self, key: keys.ObjectKey, item: _Item[Value] | None) -> None:
        self._wrong.pop(key, None)
        if item is None:
            self._items.pop(key, None)
            return
        self._items[key] = item
        if item.problems:
            self._wrong[key] = item.problems

    def complete(self, pending: Pending, problems: tuple[objects.Problem, ...]) -> Pending:
        """See whether the state is another one; called on the folder's thread."""
        told = self.tell(pending, problems)
        return dataclasses.replace(
            told, differs=told.state is not self._state and bool(told.state != self._state)
        )

    def tell(self, pending: Pending, problems: tuple[objects.Problem, ...]) -> Pending:
        """Take in the problems of the whole folder, if the state has a place for them."""
        return pending

    def _item(self, document: documents.RawDocument, before: _Item[Value] | None) -> _Item[Value]:
        if before is not None and before.document is document:
            return before
        value, problems = self._read(document)
        if value is None and problems and before is not None:
            value = before.value
        return _Item(document=document, value=value, problems=problems)

    def commit(self, pending: Pending) -> bool:
        """Swap the state; tell whether it is another one."""
        self._state = pending.state
        self._problems = pending.problems
        return pending.differs

    def notify(self, change: changes.Change) -> None:
        """Tell every subscriber, in the order in which they came."""
        for call in tuple(self._subscribers):
            call(change)


def _differ(one: _Item[Value] | None, other: _Item[Value] | None) -> bool:
    if one is other:
        return False
    return (one.value if one else None) != (other.value if other else None)


def _patched(
    before: Mapping[keys.ObjectKey, Value], changed: Mapping[keys.ObjectKey, Value | None]
) -> Mapping[keys.ObjectKey, Value]:
    """The mapping with changes, in key order; sorted anew only when something was added."""
    patched = dict(before)
    for key, value in changed.items():
        if value is None:
            patched.pop(key, None)
        else:
            patched[key] = value
    added = any(key in patched and key not in before for key in changed)
    return dict(sorted(patched.items())) if added else patched


def in_order(problems: Iterable[objects.Problem]) -> tuple[objects.Problem, ...]:
    """Problems in a total order, each once."""
    unique = {(each.location, each.message): each for each in problems}
    return tuple(each for _, each in sorted(unique.items()))
