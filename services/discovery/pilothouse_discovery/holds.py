# SPDX-License-Identifier: Apache-2.0
"""How long the event loop was held: the longest time that a stream waited for its turn.

Looked at while there is something to do, and for a moment after that, so that an idle server stays
idle. The interpreter's lock counts too: it does not matter to a stream which thread has it. What
other programs take of the machine does not: a hold is as much of the time as this process worked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

TICK = 0.01
"""Seconds between two looks; a hold is seen as up to this much shorter than it was. To look five
times as often and five times as long was 13 of 21 ms of CPU for a change that nobody watches."""
LINGER = 0.1
"""Seconds that are watched after the last work, while streams are written to."""


class LoopWatch:
    """Watches the loop that `run` runs on."""

    def __init__(self, longest: Callable[[float], None]) -> None:
        """``longest`` is told each hold, in seconds, that is longer than all before."""
        self._longest = longest
        self._most = 0.0
        self._busy = 0
        self._until = 0.0
        self._wake = asyncio.Event()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Watch during the block, and a moment longer."""
        self._busy += 1
        self._wake.set()
        try:
            yield
        finally:
            self._busy -= 1
            self._until = time.monotonic() + LINGER

    async def run(self) -> NoReturn:
        """Watch whenever there is work."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            before, worked = time.monotonic(), time.process_time()
            while self._busy or before < self._until:
                await asyncio.sleep(TICK)
                now, works = time.monotonic(), time.process_time()
                held = min(now - before - TICK, works - worked)
                before, worked = now, works
                if held > self._most:
                    self._most = held
                    self._longest(held)
