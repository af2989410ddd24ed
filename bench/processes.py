# SPDX-License-Identifier: Apache-2.0
"""Servers under test: started as processes, measured from outside, stopped at the end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence

import aiohttp

from pilothouse.adapters import process

READY_SECONDS = 120.0
QUIET_CPU = 0.002
"""Seconds of CPU that count as nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    pid: int
    address: str
    """HOST:PORT of its gRPC server."""
    http: str = dataclasses.field(default="", kw_only=True)
    """HOST:PORT of its metrics; empty for one that has none."""

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far, to the nanosecond.

        The kernel's clock for another process: the complement of its id, shifted, and 2 for what
        the scheduler counted (linux/posix-timers.h); /proc has hundredths only.
        """
        return time.clock_gettime(~self.pid << 3 | 2)

    def memory_bytes(self) -> int:
        """Resident memory."""
        return self._status("VmRSS")

    def peak_memory_bytes(self) -> int:
        """The most resident memory that it ever had."""
        return self._status("VmHWM")

    async def quiet(self, seconds: float = 0.15) -> None:
        """Wait until it has used next to no CPU for so many seconds; gives up after ten."""
        deadline = time.monotonic() + 10.0
        before = self.cpu_seconds()
        while time.monotonic() < deadline:
            await asyncio.sleep(seconds)
            now = self.cpu_seconds()
            if now - before < QUIET_CPU:
                return
            before = now

    async def metric(self, name: str) -> float:
        """The present value of a metric without labels.

        Raises:
            RuntimeError: the server has none of that name.
        """
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.http}/metrics") as response,
        ):
            text = await response.text()
        for line in text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise RuntimeError(f"{self.http} has no metric {name}")

    def workers(self) -> list[Server]:
        """The processes that it has started, as servers: for their CPU and memory."""
        listed = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [Server(int(pid), self.address) for pid in listed.split()]

    def _status(self, key: str) -> int:
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"process {self.pid} has no {key}")


def free_address() -> str:
    """A loopback address that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextlib.asynccontextmanager
async def discovery(
    config: pathlib.Path, *, address: str = "", workers: int = 1
) -> AsyncIterator[Server]:
    """A ``pilothouse-discovery`` on a folder, for the time of the block; it is ready."""
    address, http = address or free_address(), free_address()
    log = config.parent / "discovery.log"
    command = (
        *(sys.executable, "-m", "pilothouse_discovery", "--config", str(config)),
        *("--grpc-address", address, "--http-address", http, "--log-level", "warning"),
        *("--workers", str(workers)),
    )
    with log.open("wb") as output:
        supervisor = process.Supervisor(command, output=output.fileno())
        await supervisor.start()
    try:
        await _ready(f"http://{http}/readyz", supervisor, log)
        yield Server(supervisor.pid, address, http=http)
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
            await asyncio.sleep(0.02)
    raise RuntimeError(f"the server did not become ready:\n{_end_of(log)}")


def _end_of(log: pathlib.Path) -> str:
    return log.read_text(errors="replace")[-2000:]


@dataclasses.dataclass(frozen=True, slots=True)
class Peer(Server):
    """A server that takes each line of its standard input as the name of a file to serve."""

    input: asyncio.StreamWriter

    def replace(self, path: pathlib.Path) -> None:
        """Serve the resource in this file instead of the one of that name."""
        self.input.write(f"{path}\n".encode())


@contextlib.asynccontextmanager
async def peer(command: Sequence[str], resources: pathlib.Path) -> AsyncIterator[Peer]:
    """A server to compare with, for the time of the block. It ends with its standard input."""
    address = free_address()
    child = await asyncio.create_subprocess_exec(
        *command,
        *("-address", address, "-resources", str(resources)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        async with asyncio.timeout(READY_SECONDS):
            if await child.stdout.readline() != b"ready\n":
                raise RuntimeError(f"{command[0]} did not start")
        yield Peer(child.pid, address, child.stdin)
    finally:
        child.stdin.close()
        try:
            async with asyncio.timeout(5.0):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
