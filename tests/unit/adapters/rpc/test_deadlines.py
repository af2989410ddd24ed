# SPDX-License-Identifier: Apache-2.0
"""Deadlines of writes, in virtual time."""

import asyncio

import pytest

from pilothouse.adapters.rpc import deadlines

pytestmark = pytest.mark.looptime


async def test_each_late_write_is_told_of_once_and_in_time():
    """Every writer has the full time from its own beginning."""
    loop = asyncio.get_running_loop()
    told: list[tuple[str, float]] = []
    began = loop.time()
    watch = deadlines.Deadlines[str](10.0, late=lambda who: told.append((who, loop.time() - began)))
    watch.begin("first")
    await asyncio.sleep(4)
    watch.begin("second")
    await asyncio.sleep(100)
    assert told == [("first", 10.0), ("second", 14.0)]


async def test_a_write_that_ends_in_time_is_not_told_of():
    """What ends, or ends and begins again, is not late."""
    told: list[str] = []
    watch = deadlines.Deadlines[str](10.0, late=told.append)
    for _ in range(5):
        watch.begin("writer")
        await asyncio.sleep(6)
        watch.end("writer")
    await asyncio.sleep(100)
    assert told == []


async def test_nothing_is_scheduled_while_nobody_writes():
    """A server whose clients are idle does nothing at all."""
    watch = deadlines.Deadlines[str](10.0, late=lambda _: None)
    watch.begin("writer")
    watch.end("writer")
    await asyncio.sleep(11)
    assert watch._timer is None
