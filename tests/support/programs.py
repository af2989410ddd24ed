# SPDX-License-Identifier: Apache-2.0
"""A service of ours as a child process of the test, with its log and its pages."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import eventually

_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class Program:
    """A running program whose log is JSON lines on stderr."""

    process: asyncio.subprocess.Process
    log_path: Path

    def log(self, event: str = "") -> list[dict[str, Any]]:
        """The lines logged so far, all or those of one event."""
        lines = self.log_path.read_text().splitlines()
        records = [json.loads(line) for line in lines if line.startswith("{") and line[-1] == "}"]
        return [each for each in records if event in ("", each["event"])]

    async def logged(self, event: str, deadline: float = 45.0) -> dict[str, Any]:
        """The latest line of `event`, as soon as there is one."""
        await eventually(lambda: self.log(event), deadline, what=f"{event!r} in {self.log_path}")
        return self.log(event)[-1]

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and body of a page; JSON is read."""
        address = (await self.logged("serving"))["http"]
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://{address}{path}") as answer,
        ):
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())

    async def ready(self, deadline: float = 45.0) -> None:
        """Wait until /readyz answers 200."""

        async def answered() -> bool:
            status, body = await self.get("/readyz")
            assert status == 200, body
            return True

        await eventually(answered, deadline, what="ready")

    async def stop(self, number: int = signal.SIGTERM, deadline: float = 45.0) -> int:
        """Send a signal, wait for the end; the exit code."""
        self.process.send_signal(number)
        return await self.exit(deadline)

    async def exit(self, deadline: float = 45.0) -> int:
        """Wait for the end; the exit code."""
        async with asyncio.timeout(deadline):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def run(
    module: str, *flags: str, folder: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """`python -m MODULE FLAGS` inside the block; whatever is left at its end is killed.

    `folder` takes the log; the program sees no variable of Pilothouse's or OpenTelemetry's but
    those of `environment`.
    """
    log_path = folder / f"{module}.{next(_NUMBERS)}.log"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PILOTHOUSE_", "OTEL_"))}
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", module, *flags),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**clean, **(environment or {})},
        )
    try:
        yield Program(process, log_path)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
