# SPDX-License-Identifier: Apache-2.0
"""Waiting for something to become true, with a deadline: what tests use instead of sleeping."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

_INTERVAL = 0.02


@overload
async def eventually(
    predicate: Callable[[], Awaitable[T]], deadline: float = 30.0, *, what: str = ""
) -> T: ...


@overload
async def eventually(
    predicate: Callable[[], T], deadline: float = 30.0, *, what: str = ""
) -> T: ...


async def eventually(
    predicate: Callable[[], Any], deadline: float = 30.0, *, what: str = ""
) -> Any:
    """Poll `predicate` until it gives something true, and return that.

    An AssertionError or OSError that it raises means "not yet"; the last one is the cause of the
    AssertionError raised when `deadline` seconds are over. `what` names the hope in that error.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline
    last: object = None
    while True:
        cause: BaseException | None = None
        try:
            value = predicate()
            result = await value if inspect.isawaitable(value) else value
            if result:
                return result
            last = result
        except (AssertionError, OSError) as error:
            cause = error
            last = error
        if loop.time() >= end:
            hope = what or getattr(predicate, "__name__", "the condition")
            raise AssertionError(f"not within {deadline} s: {hope} (last: {last!r})") from cause
        await asyncio.sleep(_INTERVAL)
