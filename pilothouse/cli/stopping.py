# SPDX-License-Identifier: Apache-2.0
"""Ending a command that runs for long: Ctrl-C and SIGTERM, once in order, twice at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def signals() -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set; a second signal has its ordinary, deadly effect."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def stop_once() -> None:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        stop.set()

    for each in _SIGNALS:
        loop.add_signal_handler(each, stop_once)
    try:
        yield stop
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
