# SPDX-License-Identifier: Apache-2.0
"""Requests that flow while something is changed, and what became of each of them.

`Load` sends and notes; `Allowed` knows which answers were right at which time.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import aiohttp

from pilothouse.model import proxy
from tests.support import fleet, waiting


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request. Times are those of `time.monotonic`."""

    proxy: str
    began: float
    ended: float
    status: int
    """0 when there was no answer."""
    backend: str
    """Who answered; else what went wrong."""

    @property
    def good(self) -> bool:
        """Whether an application answered."""
        return self.status == 200


class Load:
    """Workers that send one request after another to a service, through several proxies."""

    def __init__(self, service: str, through: Iterable[fleet.Proxy]) -> None:
        self._service = service
        self.proxies = tuple(through)
        self.answers: list[Answer] = []

    async def _worker(self, via: fleet.Proxy, session: aiohttp.ClientSession) -> None:
        url, options = target(self._service, via)
        while True:
            began = time.monotonic()
            status, backend = 0, ""
            try:
                async with session.get(url, **options) as answer:
                    status = answer.status
                    body = await answer.json(content_type=None) if status == 200 else {}
                    backend = body.get("backend", "") or await answer.text()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                backend = repr(error)
            self.answers.append(Answer(via.name, began, time.monotonic(), status, backend))
            # Room for the others on this loop, and an even pace.
            await asyncio.sleep(0.002)

    @contextlib.asynccontextmanager
    async def flowing(self, *, workers: int = 2) -> AsyncIterator[Load]:
        """Send while the block runs; begins when each proxy has answered well once."""
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            tasks = [
                asyncio.create_task(self._worker(via, session))
                for via in self.proxies
                for _ in range(workers)
            ]
            try:
                await waiting.eventually(lambda: self.good() >= set(self._names), what="traffic")
                self.answers.clear()
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    @property
    def _names(self) -> list[str]:
        return [via.name for via in self.proxies]

    def good(self) -> set[str]:
        """Names of proxies through which a request has succeeded."""
        return {answer.proxy for answer in self.answers if answer.good}

    async def some(self, count: int = 30) -> list[Answer]:
        """Wait for this many answers of each proxy to requests that begin from now on; those."""
        start, now = len(self.answers), time.monotonic()

        def later() -> list[Answer]:
            return [answer for answer in self.answers[start:] if answer.began > now]

        def enough() -> bool:
            seen = collections.Counter(answer.proxy for answer in later())
            return all(seen[name] >= count for name in self._names)

        await waiting.eventually(enough, 20, what=f"{count} answers of each proxy")
        return later()

    async def until(self, answered: Callable[[Answer], bool], deadline: float = 10.0) -> None:
        """Wait until each proxy has had an answer like this from now on."""
        start = len(self.answers)
        await waiting.eventually(
            lambda: (
                {one.proxy for one in self.answers[start:] if answered(one)} >= set(self._names)
            ),
            deadline,
        )

    def failed(self) -> list[Answer]:
        """Requests that no application answered."""
        return [answer for answer in self.answers if not answer.good]


def target(service: str, via: fleet.Proxy) -> tuple[str, dict[str, Any]]:
    """URL and options of a request to a service through a proxy."""
    at = f"http://{via.address}:{via.port}"
    if via.role is proxy.Role.SIDECAR:
        return f"http://{service}/", {"proxy": at}
    return f"{at}/", {"headers": {"host": f"{service}.example"}}


class Allowed:
    """Which backends may answer at which time: those of any rule that may be in force."""

    def __init__(self, *backends: str) -> None:
        """Begin with the backends of the rule that is in force."""
        self._rules: list[tuple[float, frozenset[str]]] = [(0.0, frozenset(backends))]
        self._settled: list[tuple[float, int]] = [(0.0, 0)]

    def change(self, *backends: str) -> None:
        """A rule with these backends is about to be written."""
        self._rules.append((time.monotonic(), frozenset(backends)))

    def settled(self) -> None:
        """Every proxy has acknowledged the newest rule: the older ones are no excuse any more."""
        self._settled.append((time.monotonic(), len(self._rules) - 1))

    def wrong(self, answers: Iterable[Answer]) -> list[Answer]:
        """Good answers of a backend that no rule allowed at the time."""
        return [one for one in answers if one.good and one.backend not in self._at(one)]

    def _at(self, answer: Answer) -> set[str]:
        oldest = max(index for at, index in self._settled if at <= answer.began)
        return set().union(*(names for at, names in self._rules[oldest:] if at <= answer.ended))
