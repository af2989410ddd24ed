# SPDX-License-Identifier: Apache-2.0
"""Applications for tests that speak no HTTP: they say who they are, and send back what they get."""

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator
from typing import Any, cast

LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(slots=True)
class TcpBackend:
    """A TCP server. It greets each client with a line, its name; every line comes back."""

    name: str
    port: int = 0
    opened: int = 0
    """Connections so far."""
    heads: list[bytes] = dataclasses.field(default_factory=list)
    """The first line of each connection that sent any."""
    writers: set[asyncio.StreamWriter] = dataclasses.field(default_factory=set)
    """Of connections that are open."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        self.opened += 1
        self.writers.add(writer)
        first = True
        with contextlib.suppress(ConnectionError):
            writer.write(f"{self.name}\n".encode())
            while line := await reader.readline():
                if first:
                    self.heads.append(line)
                first = False
                writer.write(line)
                await writer.drain()
        self.writers.discard(writer)
        writer.close()


@contextlib.asynccontextmanager
async def tcp_backend(name: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[TcpBackend]:
    """A TCP server on a free port of 127.0.0.1; it serves TLS when it is given a context."""
    made = TcpBackend(name)
    server = await asyncio.start_server(made.answer, LOOPBACK, 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in made.writers:
            writer.close()
        await server.wait_closed()


@dataclasses.dataclass(slots=True)
class Stream:
    """A client's connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    name: str
    """The backend that greeted."""

    async def echo(self, text: str) -> str:
        """Send a line, and the line that comes back."""
        self.writer.write(f"{text}\n".encode())
        async with asyncio.timeout(20):
            return (await self.reader.readline()).decode().rstrip("\n")


@contextlib.asynccontextmanager
async def stream(
    address: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    source: str | None = None,
    before: bytes = b"",
) -> AsyncIterator[Stream]:
    """A connection that was greeted; ConnectionError or ssl.SSLError when it is refused.

    Args:
        address: whom to connect to.
        port: where.
        tls: for a handshake.
        server_name: for SNI.
        source: address to connect from.
        before: what to send before anything else.
    """
    options: dict[str, Any] = {} if tls is None else {"server_hostname": server_name or ""}
    local = None if source is None else (source, 0)
    reader, writer = await asyncio.open_connection(
        address, port, local_addr=local, ssl=tls, **options
    )
    try:
        writer.write(before)
        async with asyncio.timeout(20):
            greeting = await reader.readline()
        if not greeting:
            raise ConnectionResetError("closed before the greeting")
        yield Stream(reader, writer, greeting.decode().rstrip("\n"))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@dataclasses.dataclass(slots=True)
class UdpBackend(asyncio.DatagramProtocol):
    """A UDP server: each datagram comes back, with its name before it."""

    name: str
    port: int = 0
    _transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # Before Python 3.12 the loop's own transport is no subclass.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Send a datagram back."""
        assert self._transport is not None
        self._transport.sendto(self.name.encode() + b":" + data, addr)


@contextlib.asynccontextmanager
async def udp_backend(name: str) -> AsyncIterator[UdpBackend]:
    """A UDP server on a free port of 127.0.0.1."""
    loop = asyncio.get_running_loop()
    made = UdpBackend(name)
    transport, _ = await loop.create_datagram_endpoint(lambda: made, local_addr=(LOOPBACK, 0))
    made.port = transport.get_extra_info("sockname")[1]
    try:
        yield made
    finally:
        transport.close()


@dataclasses.dataclass(slots=True)
class Datagrams(asyncio.DatagramProtocol):
    """A UDP client: one address and port, so one session."""

    _transport: asyncio.DatagramTransport | None = None
    _received: asyncio.Queue[bytes] = dataclasses.field(default_factory=asyncio.Queue)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # Before Python 3.12 the loop's own transport is no subclass.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Keep an answer."""
        del addr
        self._received.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens: as if the datagram were lost."""
        del exc

    async def ask(self, text: str) -> str | None:
        """Send a datagram: the answer, or None when none comes within half a second."""
        assert self._transport is not None
        while not self._received.empty():
            self._received.get_nowait()
        self._transport.sendto(text.encode())
        try:
            async with asyncio.timeout(0.5):
                return (await self._received.get()).decode()
        except TimeoutError:
            return None


@contextlib.asynccontextmanager
async def datagrams(address: str, port: int) -> AsyncIterator[Datagrams]:
    """A UDP client of one server."""
    loop = asyncio.get_running_loop()
    transport, made = await loop.create_datagram_endpoint(Datagrams, remote_addr=(address, port))
    try:
        yield made
    finally:
        transport.close()
