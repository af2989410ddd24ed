# SPDX-License-Identifier: Apache-2.0
"""A real agent as a child process of the test, with its log, its status page and its Envoy."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import eventually


def free_port() -> int:
    """A port of 127.0.0.1 that is free, and that the kernel gives to nobody by itself.

    Between this and its use a second may pass. What port 0 gives is from the range of outgoing
    connections, and on a busy machine somebody else's, once in some hundred times. The system's
    randomness, because pytest-randomly seeds Python's alike for every test: two workers would agree
    on the port.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@dataclass(slots=True)
class Agent:
    """A running agent. `log_path` is its stderr, which Envoy shares."""

    process: asyncio.subprocess.Process
    log_path: Path

    def log(self, event: str = "") -> list[dict[str, Any]]:
        """The JSON lines logged so far, all or those of one event."""
        lines = [line for line in self.log_path.read_text().splitlines() if line.startswith("{")]
        records = [json.loads(line) for line in lines if line.endswith("}")]
        return [each for each in records if event in ("", each["event"])]

    async def logged(self, event: str, deadline: float = 45.0) -> dict[str, Any]:
        """The latest record of `event`, as soon as there is one."""
        await eventually(lambda: self.log(event), deadline, what=f"{event!r} in {self.log_path}")
        return self.log(event)[-1]

    async def envoy_pid(self) -> int:
        """The process id of the Envoy that was started last."""
        return int((await self.logged("envoy started"))["pid"])

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page of the agent."""
        address = (await self.logged("status page"))["address"]
        return await fetch(f"http://{address}{path}")

    async def readiness(self) -> dict[str, Any]:
        """What /readyz says, with the status code as `code`."""
        code, body = await self.get("/readyz")
        return {**json.loads(body), "code": code}

    async def ready(self, deadline: float = 45.0) -> None:
        """Wait until /readyz answers 200."""

        async def answered() -> bool:
            report = await self.readiness()
            assert report["code"] == 200, report
            return True

        await eventually(answered, deadline, what="ready")

    async def exit(self, deadline: float = 45.0) -> int:
        """Wait for the end; the exit code."""
        async with asyncio.timeout(deadline):
            return await self.process.wait()


async def fetch(url: str) -> tuple[int, str]:
    """Status and body, over a connection of its own; OSError when nobody listens."""
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        return response.status, await response.text()


@contextlib.asynccontextmanager
async def agent(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = (sys.executable, "-m", "pilothouse_agent"),
) -> AsyncIterator[Agent]:
    """An agent with a free status port; whatever happens, it and its Envoy are gone afterwards."""
    log_path = folder / "agent.log"
    identity = ("--ip", "127.0.0.1", "--name", "test", "--status-address", "127.0.0.1:0")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    # A folder for temporary folders: an agent that is killed cannot remove its own. A short path,
    # since sockets lie in there.
    with tempfile.TemporaryDirectory(prefix="pha-", ignore_cleanup_errors=True) as temporary:
        with log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *program,
                *identity,
                *arguments,
                stdout=log,
                stderr=log,
                env={**clean, "TMPDIR": temporary, **(env or {})},
            )
        async with _ended_after(Agent(process, log_path)) as running:
            yield running


@contextlib.asynccontextmanager
async def _ended_after(running: Agent) -> AsyncIterator[Agent]:
    process = running.process
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        # The kernel does this when the agent is killed; a test of that must not leak if it fails.
        for record in running.log("envoy started"):
            if alive(record["pid"]) and "envoy" in _command(record["pid"]):
                os.kill(record["pid"], signal.SIGKILL)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
