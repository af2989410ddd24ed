# SPDX-License-Identifier: Apache-2.0
"""Servers under test: started as processes, measured through /proc, stopped at the end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import AsyncIterator

import aiohttp

from pilothouse.adapters import process

_TICKS = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    pid: int

    def cpu_seconds(self) -> float:
        """User and system time that it has used so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_bytes(self) -> int:
        """Resident memory."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


@contextlib.asynccontextmanager
async def discovery(
    config: pathlib.Path, *, grpc: str, http: str, log: pathlib.Path
) -> AsyncIterator[Server]:
    """A ``pilothouse-discovery`` for the time of the block."""
    command = (
        *(sys.executable, "-m", "pilothouse_discovery", "--config", str(config)),
        *("--grpc-address", grpc, "--http-address", http, "--log-level", "warning"),
    )
    with log.open("wb") as output:
        supervisor = process.Supervisor(command, output=output.fileno())
        await supervisor.start()
    try:
        await _ready(f"http://{http}/readyz", supervisor, log)
        yield Server(supervisor.pid)
    finally:
        await supervisor.stop(5.0)


async def _ready(url: str, supervisor: process.Supervisor, log: pathlib.Path) -> None:
    deadline = asyncio.get_running_loop().time() + READY_SECONDS
    async with aiohttp.ClientSession() as session:
        while asyncio.get_running_loop().time() < deadline and supervisor.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.05)
    msg = f"the server did not become ready:\n{_end_of(log)}"
    raise RuntimeError(msg)


def _end_of(log: pathlib.Path) -> str:
    return log.read_text(errors="replace")[-2000:]
