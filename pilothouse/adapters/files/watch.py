# SPDX-License-Identifier: Apache-2.0
"""Waits until something in some folders may have changed. Runs on a thread of its own.

The operating system's events only wake us; what has changed is found by looking. So an event that
gets lost costs the time until the next poll, never a change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

# The documented extension class below `watchfiles.watch`: its generator would arm a watch only when
# it is asked for the first event, and we must look between the two.
from watchfiles import _rust_notify

from pilothouse.adapters.files import tree

_LOG = structlog.get_logger(__name__)

STEP = 5
"""Milliseconds of quiet that end a burst of events: a file being written causes several.

A change waits for one to two of these. Between events a watcher wakes as often: of a core that
takes 0.3 % with 5 ms, 0.2 % with 10.
"""
_BURST = 40  # milliseconds that a burst may last at most
_BLIND_POLL = 500  # milliseconds between polls while the system gives no events


class Watcher:
    """Watches one set of folders at a time."""

    def __init__(self) -> None:
        self._watched: frozenset[tree.Watched] = frozenset()
        self._notify: _rust_notify.RustNotify | None = None
        self._blind_to: Exception | None = None

    def arm(self, watched: frozenset[tree.Watched]) -> bool:
        """Watch these folders, and no others.

        Returns:
            True when anything had to be done for that: what happened meanwhile may have been
            missed, so look again.
        """
        if watched == self._watched and self._notify is not None:
            return False
        self.close()
        if not watched:
            return False
        try:
            self._notify = _rust_notify.RustNotify(
                sorted({folder.path for folder in watched}),
                False,  # noqa: FBT003  debug
                False,  # noqa: FBT003  force polling
                0,
                False,  # noqa: FBT003  recursive
                True,  # noqa: FBT003  ignore what may not be watched
            )
        except FileNotFoundError:
            return True  # one of them went since it was looked at
        except (OSError, _rust_notify.WatchfilesRustInternalError) as error:
            # Out of inotify instances or watches, most likely: slower, and nothing is lost.
            if self._blind_to is None:
                _LOG.warning("folders are polled, not watched", reason=str(error))
            self._blind_to = error
            return False
        self._watched, self._blind_to = watched, None
        return True

    def wait(
        self,
        stop: threading.Event,
        *,
        timeout_ms: int,
        concerns: Callable[[str], bool],
    ) -> None:
        """Return when an event concerns us, or after ``timeout_ms``, or when ``stop`` is set."""
        if self._notify is None:
            stop.wait(min(timeout_ms, _BLIND_POLL) / 1000)
            return
        end = time.monotonic() + timeout_ms / 1000
        while not stop.is_set():
            left = max(1, int((end - time.monotonic()) * 1000))  # 0 would mean for ever
            events = self._notify.watch(_BURST, STEP, left, stop)
            if isinstance(events, str) or any(concerns(path) for _, path in events):
                return

    def close(self) -> None:
        """Watch nothing any more."""
        if self._notify is not None:
            self._notify.close()
        self._notify = None
        self._watched = frozenset()
