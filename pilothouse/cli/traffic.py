# SPDX-License-Identifier: Apache-2.0
"""Requests through a gateway, counted by who answered, against the split asked for."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

SIGMAS = 5.0
"""A share further from the one asked for than so many standard deviations is wrong: chance does it
once in 1.7 million."""
_TIMEOUT = aiohttp.ClientTimeout(total=15)


@dataclasses.dataclass(slots=True, kw_only=True)
class Tally:
    """What a series of requests met."""

    answers: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failures: list[str] = dataclasses.field(default_factory=list)

    @property
    def requests(self) -> int:
        """How many were sent."""
        return sum(self.answers.values()) + len(self.failures)

    def fits(self, asked: Mapping[str, float]) -> bool:
        """True when every share is as near to the one asked for as chance allows.

        Nobody may answer who was not asked.
        """
        total = sum(self.answers.values())
        if not total or set(self.answers) - set(asked):
            return False
        return all(
            abs(self.answers[name] - total * share)
            <= SIGMAS * math.sqrt(total * share * (1 - share))
            for name, share in asked.items()
        )


Describe = Callable[[Mapping[str, Any]], str]


class Client:
    """Sends requests to one gateway for one host."""

    def __init__(self, session: aiohttp.ClientSession, *, base: str, host: str) -> None:
        """``base`` is the gateway's URL, ``host`` the Host header."""
        self._session = session
        self._base = base
        self._host = host

    @staticmethod
    def session() -> aiohttp.ClientSession:
        """A session that suits many requests to one address."""
        return aiohttp.ClientSession(timeout=_TIMEOUT, connector=aiohttp.TCPConnector(limit=64))

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """One answer's JSON.

        Raises:
            aiohttp.ClientError: no answer, or one with a status other than 200.
        """
        async with self._session.get(
            self._base + path, headers={**(headers or {}), "Host": self._host}
        ) as response:
            if response.status != 200:
                text = (await response.text())[:200]
                raise aiohttp.ClientResponseError(
                    response.request_info, response.history, status=response.status, message=text
                )
            answer: Mapping[str, Any] = await response.json()
            return answer

    async def one(
        self, tally: Tally, path: str, who: Describe, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send one request and count it."""
        try:
            answer = await self.get(path, headers)
            tally.answers[who(answer)] += 1
        except (aiohttp.ClientError, TimeoutError, KeyError, TypeError) as error:
            tally.failures.append(f"GET {path}: {type(error).__name__}: {error}")

    async def many(
        self,
        count: int,
        path: str,
        who: Describe,
        *,
        headers: Mapping[str, str] | None = None,
        concurrency: int = 8,
    ) -> Tally:
        """Send ``count`` requests, ``concurrency`` at a time."""
        tally = Tally()
        left = iter(range(count))

        async def worker() -> None:
            for _ in left:
                await self.one(tally, path, who, headers)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
        return tally

    async def until(
        self, stop: asyncio.Event, path: str, who: Describe, *, concurrency: int = 4
    ) -> Tally:
        """Send requests until ``stop`` is set."""
        tally = Tally()

        async def worker() -> None:
            while not stop.is_set():
                await self.one(tally, path, who)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
        return tally
