# SPDX-License-Identifier: Apache-2.0
"""The loop around the proxy, with small programs in the proxy's place."""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pilothouse.adapters import telemetry
from pilothouse_agent import observation, proxy_runner, restarts
from tests.support.agent import alive
from tests.support.waiting import eventually


def runner(
    command: Sequence[str], *, restart: bool = False, observer: observation.Observer | None = None
) -> proxy_runner.ProxyRunner:
    return proxy_runner.ProxyRunner(
        command,
        observer=observer or observation.Observer(),
        tracing=telemetry.Telemetry.off(),
        restart=restart,
        grace=5,
    )


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


def no_matter() -> None:
    """For tests in which nobody is told of a stop."""


async def test_without_restart_the_first_end_is_the_end():
    running = runner(python("raise SystemExit(7)"))
    assert await running.run(asyncio.Event(), stopping=no_matter) == 7
    assert running.starts == 1


async def test_an_end_that_is_no_failure_is_not_tried_again():
    running = runner(python("pass"), restart=True)
    assert await running.run(asyncio.Event(), stopping=no_matter) == 0
    assert running.starts == 1


async def test_it_gives_up_with_the_last_code_when_the_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(restarts, "FIRST_DELAY", 1e-6)
    running = runner(python("raise SystemExit(3)"), restart=True)
    assert await running.run(asyncio.Event(), stopping=no_matter) == 3
    assert running.starts == 11


async def test_a_stop_between_two_tries_is_a_clean_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(restarts, "FIRST_DELAY", 3600)
    stop, told = asyncio.Event(), asyncio.Event()
    running = runner(python("raise SystemExit(3)"), restart=True)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(running.run(stop, stopping=told.set))
        await eventually(lambda: running.starts == 1)
        stop.set()
    assert task.result() == 0
    assert told.is_set()
    assert running.starts == 1


async def test_a_stop_before_the_start_starts_nothing():
    stop = asyncio.Event()
    stop.set()
    running = runner(python("pass"))
    assert await running.run(stop, stopping=no_matter) == 0
    assert running.starts == 0


def sleeper(out: Path) -> tuple[str, ...]:
    return python(
        "import os, signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9));"
        f"open({str(out)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )


async def test_stopping_is_told_before_the_proxy_is(tmp_path: Path):
    out, stop = tmp_path / "pid", asyncio.Event()
    still_alive: list[bool] = []
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = runner(sleeper(out))
        task = group.create_task(
            running.run(stop, stopping=lambda: still_alive.append(alive(int(out.read_text()))))
        )
        await eventually(written(out))
        stop.set()
    assert task.result() == 0
    assert still_alive[0] is True
    assert not alive(int(out.read_text()))


async def test_a_signal_is_passed_on_to_the_proxy(tmp_path: Path):
    out = tmp_path / "pid"
    running = runner(sleeper(out))
    running.send(signal.SIGUSR1)  # nobody there yet: nothing happens
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(running.run(asyncio.Event(), stopping=no_matter))
        await eventually(written(out))
        running.send(signal.SIGUSR1)
    assert task.result() == 9


async def test_when_cancelled_it_leaves_no_proxy_behind(tmp_path: Path):
    out = tmp_path / "pid"
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(runner(sleeper(out)).run(asyncio.Event(), stopping=no_matter))
        await eventually(written(out))
        task.cancel()
    assert not alive(int(out.read_text()))


def written(path: Path) -> Callable[[], bool]:
    return lambda: path.exists() and path.read_text() != ""


async def test_each_start_begins_with_nothing_accepted():
    observer = observation.Observer()
    status = observer.status("type.googleapis.com/envoy.config.cluster.v3.Cluster")
    status.in_force = True
    await runner(python("pass"), observer=observer).run(asyncio.Event(), stopping=no_matter)
    assert not status.in_force
