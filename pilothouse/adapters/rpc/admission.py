# SPDX-License-Identifier: Apache-2.0
"""How many streams may begin in a second, so that a fleet that comes back at once is served.

The first responses of a stream cost more than any later ones. Who comes too early waits for a
moment; who would wait for longer than that is refused after it, and comes again by its own back-off
(Envoy's grows to 30 s), perhaps to another replica.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_NOTHING = 1e-6
"""Seconds that are rounding, and no time."""


class Admission:
    """A bucket of tokens, one for each stream that begins."""

    def __init__(
        self,
        per_second: float,
        *,
        patience: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with a full bucket.

        Args:
            per_second: streams that may begin, in the long run; the bucket holds a second's worth.
            patience: seconds that a stream waits for its turn at most, and before it is refused.
            clock: seconds that never go back.
        """
        self._interval = 1 / per_second
        self._depth = max(0.0, 1 - self._interval)
        self.patience = patience
        self._clock = clock
        self._next = clock() - self._depth
        """When a token would be there, had nobody waited for it."""
        self.waiting = 0
        """Streams that wait now."""
        self.refused = 0
        """Streams that were refused so far."""

    def turn(self) -> float | None:
        """Take a token: seconds until it is there, or None when that is too long to wait for."""
        now = self._clock()
        due = max(self._next, now - self._depth)
        delay = due - now
        if delay > self.patience + _NOTHING:
            return None
        self._next = due + self._interval
        return delay if delay > _NOTHING else 0.0

    async def admit(self) -> bool:
        """Wait for a turn; False when there is none in time."""
        delay = self.turn()
        if delay == 0:
            return True
        self.waiting += 1
        try:
            await asyncio.sleep(self.patience if delay is None else delay)
        finally:
            self.waiting -= 1
        if delay is None:
            self.refused += 1
        return delay is not None
