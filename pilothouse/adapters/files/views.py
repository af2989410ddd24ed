# SPDX-License-Identifier: Apache-2.0
"""What every view of a folder has: it reads the objects it wants, and swaps its state as a whole.

An object that turns bad keeps what it was when it was good, and a problem tells so.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from pilothouse.adapters.files import content
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


class View(abc.ABC, Generic[Value, State]):
    """A part of what a folder holds.

    What reads and builds runs on the folder's thread, one at a time; everything else runs on the
    folder's event loop.
    """

    def __init__(self, name: str, initial: State) -> None:
        self.name = name
        self._state = initial
        self._items: dict[keys.ObjectKey, _Item[Value]] = {}
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

    def prepare(self, found: Iterable[content.Object]) -> Pending:
        """Read what changed, and build the state that follows; called on the folder's thread."""
        items: dict[keys.ObjectKey, _Item[Value]] = {}
        nameless: list[objects.Problem] = []
        for each in found:
            if not self.wants(each):
                continue
            if each.key is None:
                nameless += self._read(each.document)[1]
            else:
                items[each.key] = self._item(each.document, self._items.get(each.key))
        changed = tuple(
            sorted(
                key
                for key in items.keys() | self._items.keys()
                if _differ(items.get(key), self._items.get(key))
            )
        )
        self._items = dict(sorted(items.items()))
        problems = in_order(
            [*nameless, *(each for item in items.values() for each in item.problems)]
        )
        values = {key: item.value for key, item in self._items.items() if item.value is not None}
        return Pending(state=self._build(values, changed), changed=changed, problems=problems)

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
        before, self._state = self._state, pending.state
        self._problems = pending.problems
        return bool(before != pending.state)

    def notify(self, change: changes.Change) -> None:
        """Tell every subscriber, in the order in which they came."""
        for call in tuple(self._subscribers):
            call(change)


def _differ(one: _Item[Value] | None, other: _Item[Value] | None) -> bool:
    if one is other:
        return False
    return (one.value if one else None) != (other.value if other else None)


def in_order(problems: Iterable[objects.Problem]) -> tuple[objects.Problem, ...]:
    """Problems in a total order, each once."""
    unique = {(each.location, each.message): each for each in problems}
    return tuple(each for _, each in sorted(unique.items()))
