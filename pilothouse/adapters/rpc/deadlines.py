# SPDX-License-Identifier: Apache-2.0
"""A deadline for each of many writes, at the price of one timer for all of them.

Nearly every write ends at once, and `asyncio.timeout` costs 5 us for each, a twentieth of all that
a changed endpoint costs a stream. Here a write costs two changes of a dictionary; the timer runs
only while something is being written, and rings when the oldest write is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

Writer = TypeVar("Writer")


class Deadlines(Generic[Writer]):
    """Tells of writers that took longer than they may. Each writes one thing at a time."""

    def __init__(self, seconds: float, *, late: Callable[[Writer], None]) -> None:
        """`late` is called on the event loop, once for each write, `seconds` after its `begin`."""
        self.seconds = seconds
        self._late = late
        self._since: dict[Writer, float] = {}
        """Oldest first, as dictionaries keep the order in which keys came."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, writer: Writer) -> None:
        """A write begins."""
        loop = asyncio.get_running_loop()
        self._since[writer] = now = loop.time()
        if self._timer is None:
            self._timer = loop.call_at(now + self.seconds, self._ring)

    def end(self, writer: Writer) -> None:
        """It has ended, or was told to be late; the last one may be ended twice."""
        self._since.pop(writer, None)

    def _ring(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for writer, since in tuple(self._since.items()):
            due = since + self.seconds
            if due > loop.time():
                self._timer = loop.call_at(due, self._ring)
                return
            self.end(writer)
            self._late(writer)
