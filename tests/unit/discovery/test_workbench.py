# SPDX-License-Identifier: Apache-2.0
"""Work beside the loop: one piece at a time, and none after the end."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator

import pytest

from pilothouse_discovery import workbench


async def test_work_is_done_in_order_on_one_thread_within_what_is_around() -> None:
    """Results and errors come back; each piece of work has what is around it to itself."""
    seen: list[str] = []

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        seen.append("in")
        try:
            yield
        finally:
            seen.append("out")

    def work(number: int) -> str:
        seen.append(str(number))
        if number == 2:
            raise ValueError("two")
        return threading.current_thread().name

    async with workbench.opened("bench", around) as bench:
        first, second, third = await asyncio.gather(
            *(bench.do(work, number) for number in (1, 2, 3)), return_exceptions=True
        )
    assert (first, repr(second), third) == ("bench", "ValueError('two')", "bench")
    assert seen == ["in", "1", "out", "in", "2", "out", "in", "3", "out"]


async def test_no_error_leaves_whoever_waits_alone() -> None:
    """Also one that is not meant to be caught is raised where the work was asked for."""

    def work() -> None:
        raise SystemExit(3)

    async with workbench.opened("bench") as bench:
        with pytest.raises(SystemExit):
            await bench.do(work)
        assert await bench.do(int, "7") == 7


async def test_work_without_an_end_does_not_outlive_its_bench() -> None:
    """The end interrupts what is being done, and drops what was to be done after it."""
    begun, after = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def endless() -> None:
        loop.call_soon_threadsafe(begun.set)
        while True:
            try:
                sum(range(100))
            except Exception:  # noqa: BLE001  as a builder does for each proxy
                after.append("swallowed")

    async with asyncio.timeout(60):
        async with workbench.opened("endless", gc_off) as bench:
            tasks = [asyncio.create_task(bench.do(endless))]
            tasks.append(asyncio.create_task(bench.do(after.append, "done")))
            await begun.wait()
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert after == []
    assert "endless" not in {thread.name for thread in threading.enumerate()}
    assert gc.isenabled()


async def test_an_end_in_the_midst_of_a_finalizer_is_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python drops what is raised while an object is finalized; so it is raised once more."""
    dropped: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", dropped.append)
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Stubborn:
        def __del__(self) -> None:
            loop.call_soon_threadsafe(begun.set)
            while True:
                sum(range(100))

    def work() -> None:
        Stubborn()
        while True:
            sum(range(100))

    async with asyncio.timeout(60):
        async with workbench.opened("finalizing") as bench:
            task = asyncio.create_task(bench.do(work))
            await begun.wait()
            task.cancel()
        await asyncio.wait([task])
    assert len(dropped) == 1
    assert "finalizing" not in {thread.name for thread in threading.enumerate()}


@contextlib.contextmanager
def gc_off() -> Iterator[None]:
    """No searches for cycles meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
