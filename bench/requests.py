# SPDX-License-Identifier: Apache-2.0
"""Requests and an application to answer them, for next to no CPU.

What a benchmark sends while something else is measured runs on the same cores. A library for HTTP
takes about a millisecond for a request and its answer, so one client after another keeps a core
busy; these take a tenth of that. They know as much of HTTP/1.1 as is spoken here: GET without a
body, and answers that say how long they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Final

_END: Final = b"\r\n\r\n"
_ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")


class Client:
    """One connection, one request after another."""

    def __init__(self, address: str) -> None:
        """``address`` is HOST:PORT; nothing is opened before the first request."""
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, host: str, path: str) -> bool:
        """Ask a host for a path; True when the answer is 200."""
        try:
            return await self._get(host, path)
        except (OSError, EOFError, ValueError):
            self.close()
            return False

    async def _get(self, host: str, path: str) -> bool:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(_END)
        status, length = _STATUS.match(head), _LENGTH.search(head)
        if status is None or length is None:
            raise ValueError(f"an answer that this does not understand: {head!r}")
        await reader.readexactly(int(length[1]))
        return status[1] == b"200"

    def close(self) -> None:
        """Give the connection up; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


@contextlib.asynccontextmanager
async def application() -> AsyncIterator[int]:
    """An application that answers everything; the value is its port on loopback."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            await reader.readuntil(_END)
            writer.write(_ANSWER)
    writer.close()
