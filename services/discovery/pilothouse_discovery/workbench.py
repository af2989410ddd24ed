# SPDX-License-Identifier: Apache-2.0
"""One thread for long work, beside the event loop.

Python lets one thread work at a time, and the loop gets its turn when it asks for it: at once while
the other waits or is inside a library that lets go, and else after the interpreter's switch
interval. That interval is what the loop is held at most, times the few threads that want a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Around = Callable[[], contextlib.AbstractContextManager[None]]

SWITCH_INTERVAL = 0.002
"""Seconds after which a thread that only computes lets another one in; Python's own is 0.005."""


def switch_often() -> None:
    """Let the loop in soon while another thread computes, in the whole process."""
    sys.setswitchinterval(SWITCH_INTERVAL)


class Workbench:
    """Where one piece of work is done at a time, in the order in which they came."""

    def __init__(self, name: str, around: Around = contextlib.nullcontext) -> None:
        """Start nothing; the thread is called ``name``, all it does is done within ``around``."""
        self._around = around
        self._executor = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._running: asyncio.Future[Any] | None = None

    async def do(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What ``work`` gives, or raises. When cancelled, the work goes on nevertheless."""
        call = functools.partial(self._do, functools.partial(work, *args, **kwargs))
        future = asyncio.get_running_loop().run_in_executor(self._executor, call)
        self._running = future
        return await asyncio.shield(future)

    def _do(self, work: Callable[[], R]) -> R:
        with self._around():
            return work()

    async def close(self) -> None:
        """Wait for what is being done, and end the thread."""
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running])
        self._executor.shutdown(wait=True)


@contextlib.asynccontextmanager
async def opened(name: str, around: Around = contextlib.nullcontext) -> AsyncIterator[Workbench]:
    """A workbench for the time of the block."""
    bench = Workbench(name, around)
    try:
        yield bench
    finally:
        await bench.close()
