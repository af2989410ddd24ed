# SPDX-License-Identifier: Apache-2.0
"""One thread for long work, beside the event loop.

Python lets one thread work at a time, and the loop gets its turn when it asks for it: at once while
the other waits or is inside a library that lets go, and else after the interpreter's switch
interval. That interval is what the loop is held at most, times the few threads that want a turn.

Work for a large mesh takes seconds, and a program that is told to stop has no use for it. Python
can raise an exception in another thread, between two of its steps: so nothing that is built needs
to know of the end, and the thread is gone before the interpreter is taken down.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import queue
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Around = Callable[[], contextlib.AbstractContextManager[None]]

SWITCH_INTERVAL = 0.002
"""Seconds after which a thread that only computes lets another one in; Python's own is 0.005."""
_AGAIN = 0.05
"""Seconds until a thread that still works is interrupted again; an exception that is raised while
an object is finalized goes nowhere."""


def switch_often() -> None:
    """Let the loop in soon while another thread computes, in the whole process."""
    sys.setswitchinterval(SWITCH_INTERVAL)


class _Abandoned(BaseException):
    """Raised inside work that nobody waits for any more."""


class Workbench:
    """Where one piece of work is done at a time, in the order in which they came."""

    def __init__(self, name: str, around: Around = contextlib.nullcontext) -> None:
        """Start a thread called ``name``; all it does is done within ``around``."""
        self._around = around
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._works = False
        """Guarded by the lock, so that only work is interrupted."""
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    async def do(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What ``work`` gives, or raises. When cancelled, the work goes on until `close`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        call = functools.partial(work, *args, **kwargs)
        self._calls.put(functools.partial(self._do, call, loop, future))
        return await future

    async def close(self) -> None:
        """End the thread, and what it is doing, which nobody may wait for any more."""
        self._calls.put(None)
        while self._thread.is_alive():
            self._interrupt()
            await asyncio.to_thread(self._thread.join, _AGAIN)

    def _interrupt(self) -> None:
        """Raise `_Abandoned` in work, as soon as it takes its next step in Python."""
        with self._lock:
            if self._works and self._thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread.ident), ctypes.py_object(_Abandoned)
                )

    def _run(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                with self._lock:
                    self._works = True
                call()
                del call  # and with it all that it was about
                with self._lock:
                    self._works = False
        except _Abandoned:
            self._works = False

    def _do(
        self, work: Callable[[], R], loop: asyncio.AbstractEventLoop, future: asyncio.Future[R]
    ) -> None:
        tell: Callable[[], None]
        try:
            with self._around():
                tell = functools.partial(future.set_result, work())
        except _Abandoned:
            raise
        except BaseException as error:  # noqa: BLE001  it is told whoever waits
            tell = functools.partial(future.set_exception, error)
        loop.call_soon_threadsafe(_unless_done, future, tell)


def _unless_done(future: asyncio.Future[Any], tell: Callable[[], None]) -> None:
    if not future.done():
        tell()


@contextlib.asynccontextmanager
async def opened(name: str, around: Around = contextlib.nullcontext) -> AsyncIterator[Workbench]:
    """A workbench for the time of the block."""
    bench = Workbench(name, around)
    try:
        yield bench
    finally:
        await bench.close()
