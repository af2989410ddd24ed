# SPDX-License-Identifier: Apache-2.0
"""Keeps one proxy running: starts it, watches it, starts it again if it may, stops it.

In Kubernetes the agent ends when the proxy ends, so that the kubelet sees it, counts it and backs
off. Elsewhere nobody does, and the agent tries again a limited number of times.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence

import structlog

from pilothouse.adapters import process, telemetry
from pilothouse_agent import observation, restarts

_LOG = structlog.get_logger(__name__)


class ProxyRunner:
    """Runs `command` until it ends for good or is told to stop."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        observer: observation.Observer,
        tracing: telemetry.Telemetry,
        restart: bool,
        grace: float,
    ) -> None:
        self._command = tuple(command)
        self._observer = observer
        self._tracing = tracing
        self._budget = restarts.RestartBudget() if restart else None
        self._grace = grace
        self._current: process.Supervisor | None = None
        self.starts = 0

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on to the proxy, if one runs."""
        if self._current is not None:
            self._current.send(number)

    async def run(self, stop: asyncio.Event, *, stopping: Callable[[], None]) -> int:
        """The exit code: 0 after a stop that was asked for, else the proxy's last one.

        `stopping` is called before the proxy is told to end.
        """
        while not stop.is_set():
            code = await self._run_once(stop, stopping)
            if stop.is_set():
                break
            _LOG.error("envoy ended", code=code, hint=process.exit_hint(code))
            delay = self._next_delay(code)
            if delay is None:
                return code
            _LOG.warning("envoy is started again", after=delay)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await stop.wait()
        stopping()
        return 0

    def _next_delay(self, code: int) -> float | None:
        if self._budget is None or code == 0:
            return None
        delay = self._budget.next_delay(self._observer.changes)
        if delay is None:
            _LOG.error("envoy failed too often, giving up", attempts=restarts.ATTEMPTS)
        return delay

    async def _run_once(self, stop: asyncio.Event, stopping: Callable[[], None]) -> int:
        supervisor = process.Supervisor(self._command)
        self._observer.proxy_started()
        with self._tracing.span("envoy.start", attributes={"command": self._command[0]}):
            await supervisor.start()
        self._current = supervisor
        self.starts += 1
        _LOG.info("envoy started", pid=supervisor.pid)

        async def end_when_told() -> None:
            await stop.wait()
            stopping()
            code = await supervisor.stop(self._grace)
            _LOG.info("envoy stopped", code=code)

        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(end_when_told(), name="stop the proxy")
                code = await supervisor.wait()
                if not stop.is_set():
                    watcher.cancel()
            return code
        finally:
            self._current = None
            if supervisor.returncode is None:
                await supervisor.stop(0)
