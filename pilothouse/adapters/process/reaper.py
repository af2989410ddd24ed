# SPDX-License-Identifier: Apache-2.0
"""Being process 1 of a container: reap every orphan, and pass signals on to the real program.

Orphans (of exec probes, of a shell in a debug session) become children of process 1 and stay as
zombies until it waits for them. A program that waits for "any child" steals the exit codes of the
children that it supervises, so the two jobs get a process each: this one stays tiny.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType

_FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def run_as_init(main: Callable[[], int]) -> int:
    """Run `main`, under a reaper if this is process 1; its exit code.

    Call it before anything heavy is imported and before any thread exists: it forks.
    """
    return run_under_reaper(main) if os.getpid() == 1 else main()


def run_under_reaper(main: Callable[[], int]) -> int:
    """Fork: the child runs `main`, this process reaps until that child ends; its exit code."""
    # Blocked, not lost: a signal that comes between fork and handler waits for the handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        return main()

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
