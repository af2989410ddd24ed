# SPDX-License-Identifier: Apache-2.0
"""HTTP clients that let a test say everything: the server name beside the host, one connection for
several hosts, the address to connect from, and bytes before the first.
"""

import asyncio
import contextlib
import dataclasses
import json
import ssl
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

import h2.config
import h2.connection
import h2.events
from aioquic.asyncio import client as quic_client
from aioquic.asyncio import protocol as quic_protocol
from aioquic.h3 import connection as h3_connection
from aioquic.h3 import events as h3_events
from aioquic.quic import configuration as quic_configuration
from aioquic.quic import events as quic_events

from tests.support import certificates

_DEADLINE = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An answer; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def seen(self) -> dict[str, Any]:
        """What a `backends.Backend` tells of the request."""
        found: dict[str, Any] = json.loads(self.body)
        return found


def anyone(*protocols: str) -> ssl.SSLContext:
    """A client that trusts everybody, and offers these protocols."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


@contextlib.asynccontextmanager
async def opened(
    address: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    source: str | None = None,
    before: bytes = b"",
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection; `before` is sent in the clear ahead of everything, the handshake too."""
    local = None if source is None else (source, 0)
    at_once = tls is not None and not before
    options: dict[str, Any] = {"ssl": tls, "server_hostname": server_name or ""} if at_once else {}
    async with asyncio.timeout(_DEADLINE):
        reader, writer = await asyncio.open_connection(address, port, local_addr=local, **options)
    try:
        writer.write(before)
        if tls is not None and not at_once:
            async with asyncio.timeout(_DEADLINE):
                await writer.start_tls(tls, server_hostname=server_name or "")
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def http1(
    address: str,
    port: int,
    host: str,
    path: str = "/",
    *,
    headers: Mapping[str, str] | None = None,
    **connection: Any,
) -> Answer:
    """One GET over HTTP/1.1; ConnectionError or ssl.SSLError when it is not answered."""
    async with opened(address, port, **connection) as (reader, writer):
        given = {"host": host, "connection": "close", **(headers or {})}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        async with asyncio.timeout(_DEADLINE):
            raw = await reader.read()
    if not raw:
        raise ConnectionResetError("closed without an answer")
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    found = dict(line.split(": ", 1) for line in rest)
    answered = {name.lower(): value for name, value in found.items()}
    if answered.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Answer(int(first.split(" ")[1]), answered, body)


def _joined(chunked: bytes) -> bytes:
    body = b""
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        body, chunked = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        if not int(size, 16):
            break
    return body


@dataclasses.dataclass(slots=True)
class Http2:
    """A connection of HTTP/2; one request at a time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    state: h2.connection.H2Connection

    async def get(self, host: str, path: str = "/", *, scheme: str = "https") -> Answer:
        """A GET for any host."""
        head = [(":method", "GET"), (":scheme", scheme), (":authority", host), (":path", path)]
        status, headers, body = await self.exchange(head)
        return Answer(status, dict(headers), body)

    async def exchange(
        self, head: list[tuple[str, str]]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """A request without a body; status, headers and body of the answer."""
        stream = self.state.get_next_available_stream_id()
        self.state.send_headers(stream, head, end_stream=True)
        self.writer.write(self.state.data_to_send())
        headers: list[tuple[str, str]] = []
        body = b""
        async with asyncio.timeout(_DEADLINE):
            while True:
                data = await self.reader.read(65_536)
                if not data:
                    raise ConnectionResetError("closed before the answer")
                for event in self.state.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        headers = [(_text(name), _text(value)) for name, value in event.headers]
                    elif isinstance(event, h2.events.DataReceived):
                        body += event.data
                        self.state.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                    elif isinstance(event, h2.events.StreamReset):
                        raise ConnectionResetError("the stream was reset")
                    elif isinstance(event, h2.events.StreamEnded):
                        return int(dict(headers)[":status"]), headers, body
                self.writer.write(self.state.data_to_send())


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


@contextlib.asynccontextmanager
async def http2(address: str, port: int, **connection: Any) -> AsyncIterator[Http2]:
    """A connection of HTTP/2, by ALPN where there is TLS, else by prior knowledge."""
    async with opened(address, port, **connection) as (reader, writer):
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        state.initiate_connection()
        writer.write(state.data_to_send())
        yield Http2(reader, writer, state)


class Http3(quic_protocol.QuicConnectionProtocol):
    """A connection of HTTP/3; one request at a time."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._http = h3_connection.H3Connection(self._quic)
        self._events: deque[h3_events.H3Event] = deque()
        self._news = asyncio.Event()
        self._ended = False

    def quic_event_received(self, event: quic_events.QuicEvent) -> None:
        """Called by aioquic."""
        self._ended |= isinstance(event, quic_events.ConnectionTerminated)
        self._events.extend(self._http.handle_event(event))
        self._news.set()

    async def get(self, host: str, path: str = "/") -> Answer:
        """A GET for any host; ConnectionError when the connection ends before the answer."""
        stream = self._quic.get_next_available_stream_id()
        head = {":method": "GET", ":scheme": "https", ":authority": host, ":path": path}
        encoded = [(name.encode(), value.encode()) for name, value in head.items()]
        self._http.send_headers(stream, encoded, end_stream=True)
        self.transmit()
        headers: dict[str, str] = {}
        body = b""
        async with asyncio.timeout(_DEADLINE):
            while True:
                await self._news.wait()
                self._news.clear()
                while self._events:
                    event = self._events.popleft()
                    if isinstance(event, h3_events.HeadersReceived):
                        headers |= {_text(name): _text(value) for name, value in event.headers}
                    elif isinstance(event, h3_events.DataReceived):
                        body += event.data
                    if getattr(event, "stream_ended", False):
                        return Answer(int(headers[":status"]), headers, body)
                if self._ended:
                    raise ConnectionResetError("closed before the answer")


@contextlib.asynccontextmanager
async def http3(
    address: str, port: int, *, server_name: str, certificate: certificates.Pair | None = None
) -> AsyncIterator[Http3]:
    """A connection of HTTP/3 that trusts everybody, and may show a certificate.

    ConnectionError when there is none.
    """
    configuration = quic_configuration.QuicConfiguration(
        is_client=True,
        alpn_protocols=h3_connection.H3_ALPN,
        server_name=server_name,
        verify_mode=ssl.CERT_NONE,
        idle_timeout=5.0,
    )
    if certificate is not None:
        with (
            tempfile.NamedTemporaryFile("w") as chain,
            tempfile.NamedTemporaryFile("w") as key,
        ):
            chain.write(certificate.certificate)
            key.write(certificate.private_key)
            chain.flush()
            key.flush()
            configuration.load_cert_chain(chain.name, key.name)
    async with quic_client.connect(
        address, port, configuration=configuration, create_protocol=Http3
    ) as made:
        assert isinstance(made, Http3)
        yield made
