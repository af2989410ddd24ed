# SPDX-License-Identifier: Apache-2.0
"""One child process: started, watched, signalled, stopped, and never left behind.

The child has a session and process group of its own, so that Ctrl-C reaches it through us alone,
and so that what it starts can be ended with it. It is tied to our life by `tether.py`.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_TETHER = Path(__file__).with_name("tether.py")


class Supervisor:
    """Runs one command once. For another run, make another one."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        output: int | None = None,
        directory: str | None = None,
    ) -> None:
        """`output` is a file descriptor for both of its streams; None lets it use ours.

        `directory` is where the child starts; None means our own working directory.
        """
        self._command = tuple(command)
        self._env = None if env is None else dict(env)
        self._output = output
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The child's process id, which is also its group's."""
        return self._running.pid

    @property
    def returncode(self) -> int | None:
        """The exit code as a shell has it (128+N after signal N); None while it runs."""
        code = self._running.returncode
        return None if code is None else _as_shell(code)

    async def start(self) -> None:
        """Start the child. Only from the main thread: the kernel ties it to the calling thread.

        A command that cannot be run ends with code 126 or 127 and says so on its stderr, as in a
        shell.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a supervised child must be started from the main thread")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(_TETHER),
            str(os.getpid()),
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=self._env,
            cwd=self._directory,
            start_new_session=True,
        )

    async def wait(self) -> int:
        """Wait for the child's end, reap it, and give its exit code as a shell has it."""
        code = await self._running.wait()
        self._end_group()
        return _as_shell(code)

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on to the child; nothing happens when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._running.send_signal(number)

    async def stop(self, grace: float) -> int:
        """TERM to the group, KILL after `grace` seconds; the exit code. Safe to call at any time.

        When cancelled it kills at once, so that even a hurried end leaves nothing behind.
        """
        try:
            self._signal_group(signal.SIGTERM)
            async with asyncio.timeout(grace):
                return await self.wait()
        except TimeoutError:
            self._signal_group(signal.SIGKILL)
            return await self.wait()
        except asyncio.CancelledError:
            self._signal_group(signal.SIGKILL)
            raise

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the child was not started")
        return self._process

    def _signal_group(self, number: signal.Signals) -> None:
        if self._running.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, number)

    def _end_group(self) -> None:
        """Kill what the child itself had started and left; usually there is nothing."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._running.pid, signal.SIGKILL)


def _as_shell(code: int) -> int:
    return 128 - code if code < 0 else code


def exit_hint(code: int) -> str:
    """What an exit code most likely means, for a log line; "" when it speaks for itself."""
    if code <= 128:
        return {
            126: "the program exists but cannot be executed",
            127: "the program was not found",
        }.get(code, "")
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return ""
    hints = {
        "SIGKILL": "killed by signal 9: most likely it went over its memory limit",
        "SIGSEGV": "crashed by a memory error: a bug of the program or of an extension",
        "SIGABRT": "it gave up by itself (abort): its last log lines say why",
    }
    return hints.get(name, f"ended by {name}")
