# SPDX-License-Identifier: Apache-2.0
"""One gRPC call with messages in both directions, on a connection of its own: HTTP/2 (RFC 9113) in
the clear, and no more of it than that takes.

Thousands of clients share the machine with the server that they measure. With `grpc.aio` to read a
small message and to write its answer cost a client 110 to 170 us, as much as it costs the server;
here it is a tenth of that, and what is measured is more of the server. No TLS, no compression, no
second call, no trailers made out: whoever wants to know why a call ended sees their bytes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, cast

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_ACK: Final = 1
_END_STREAM: Final = 1
_PADDED: Final = 8
_END_HEADERS: Final = 4
_NO_PUSH, _INITIAL_WINDOW = 2, 4  # settings
_HEAD: Final = 9
_FRAME: Final = 16_384
"""Bytes that every peer takes in a frame."""
_DEFAULT_WINDOW: Final = 65_535
_OUR_WINDOW: Final = 16 * 1024 * 1024
"""What the server may send before it hears that it was read: Envoy's own default."""
_MESSAGE: Final = struct.Struct(">BI")
_STREAM: Final = 1
_CONNECTION: Final = 0


class Kind:
    """Of frames."""

    DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8


class EndedError(Exception):
    """The call is over, and the server ended it."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def _window(stream: int, size: int) -> bytes:
    return _frame(Kind.WINDOW, 0, stream, size.to_bytes(4, "big"))


def _beginning(method: str, authority: str) -> bytes:
    """Everything before the first message; fields are literals that no table keeps (RFC 7541)."""

    def text(value: str) -> bytes:
        encoded = value.encode()
        assert len(encoded) < 127
        return bytes((len(encoded),)) + encoded

    fields = (
        b"\x83\x86",  # POST, http
        *(b"\x04", text(method), b"\x01", text(authority)),
        *(b"\x0f\x10", text("application/grpc"), b"\x00", text("te"), text("trailers")),
    )
    settings = struct.pack(">HIHI", _NO_PUSH, 0, _INITIAL_WINDOW, _OUR_WINDOW)
    return b"".join(
        (
            _PREFACE,
            _frame(Kind.SETTINGS, 0, _CONNECTION, settings),
            _window(_CONNECTION, _OUR_WINDOW - _DEFAULT_WINDOW),
            _frame(Kind.HEADERS, _END_HEADERS, _STREAM, b"".join(fields)),
        )
    )


class Call(asyncio.Protocol):
    """A call, from the connection to its end."""

    def __init__(self, method: str, authority: str, message: Callable[[Call, bytes], None]) -> None:
        """A call that is yet to be connected.

        Args:
            method: what to call, as ``/package.Service/Method``.
            authority: HOST:PORT of the server.
            message: is called with each message of the server's, on the loop.
        """
        self._beginning = _beginning(method, authority)
        self._message = message
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._parts: list[bytes] = []
        self._wanted = -1
        """Bytes of the message that is being read; -1 before its head was."""
        self._gathered = 0
        self._read = 0
        """Bytes since the server was told last that it may send more."""
        self._unsent = bytearray()
        self._windows = [_DEFAULT_WINDOW, _DEFAULT_WINDOW]
        """What the server takes: on the connection, and in this call."""
        self._initial = _DEFAULT_WINDOW
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the reason once the call is over, unless `close` ended it."""

    def send(self, message: bytes) -> None:
        """Send a message, as soon as the server takes it."""
        self._unsent += _MESSAGE.pack(0, len(message))
        self._unsent += message
        self._pump()

    def close(self) -> None:
        """Hang up."""
        if not self.ended.done():
            self.ended.set_result(None)
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin at once: a server's first words may come soon, and are answered."""
        self._transport = cast("asyncio.Transport", transport)
        self._write(self._beginning)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server is gone."""
        self._end(f"the connection was closed: {exc}")

    def data_received(self, data: bytes) -> None:
        """Take frames in."""
        if self._unread:
            self._unread += data
            data = bytes(self._unread)
            self._unread.clear()
        start, size = 0, len(data)
        while size - start >= _HEAD and not self.ended.done():
            head, flags = int.from_bytes(data[start : start + 4], "big"), data[start + 4]
            end = start + _HEAD + (head >> 8)
            if end > size:
                break
            self._take(head & 255, flags, data[start + 5 : start + 9], data[start + _HEAD : end])
            start = end
        if start < size:
            self._unread += memoryview(data)[start:]

    # Frames

    def _take(self, kind: int, flags: int, stream: bytes, payload: bytes) -> None:
        if kind == Kind.DATA:
            self._data(flags, payload)
            return
        match kind, flags & _ACK:
            case Kind.HEADERS, _ if flags & _END_STREAM:
                self._end(f"trailers {payload!r}")
            case ((Kind.RESET | Kind.GOAWAY), _):
                self._end(f"reset {payload!r}")
            case Kind.SETTINGS, 0:
                self._settings(payload)
            case Kind.PING, 0:
                self._write(_frame(Kind.PING, _ACK, _CONNECTION, payload))
            case Kind.WINDOW, _:
                which = int.from_bytes(stream, "big") != _CONNECTION
                self._windows[which] += int.from_bytes(payload, "big")
                self._pump()
            case _:
                pass  # nothing that matters to us

    def _data(self, flags: int, payload: bytes) -> None:
        assert not flags & _PADDED
        self._read += len(payload)
        if self._read > _OUR_WINDOW // 2:
            self._write(_window(_CONNECTION, self._read) + _window(_STREAM, self._read))
            self._read = 0
        self._parts.append(payload)
        self._gathered += len(payload)
        while self._whole():
            pass
        if flags & _END_STREAM:
            self._end("the server has said all")

    def _whole(self) -> bool:
        """Give a message to whoever waits for it; False when there is none."""
        if self._wanted < 0:
            if self._gathered < _MESSAGE.size:
                return False
            self._join()
            compressed, self._wanted = _MESSAGE.unpack_from(self._parts[0])
            assert not compressed
        end = _MESSAGE.size + self._wanted
        if self._gathered < end:
            return False
        self._join()
        data = self._parts[0]
        self._parts = [data[end:]] if len(data) > end else []
        self._gathered -= end
        self._wanted = -1
        self._message(self, data[_MESSAGE.size : end])
        return bool(self._parts)

    def _join(self) -> None:
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]

    def _settings(self, payload: bytes) -> None:
        for key, value in struct.iter_unpack(">HI", payload):
            if key == _INITIAL_WINDOW:
                self._windows[1] += value - self._initial
                self._initial = value
        self._write(_frame(Kind.SETTINGS, _ACK, _CONNECTION, b""))
        self._pump()

    def _pump(self) -> None:
        """Send what the server takes now."""
        while self._unsent and (size := min(_FRAME, len(self._unsent), *self._windows)) > 0:
            self._windows = [window - size for window in self._windows]
            self._write(_frame(Kind.DATA, 0, _STREAM, bytes(self._unsent[:size])))
            del self._unsent[:size]

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self.ended.done():
            self._transport.write(data)

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(EndedError(reason))
        if self._transport is not None:
            self._transport.abort()


async def call(address: str, method: str, message: Callable[[Call, bytes], None]) -> Call:
    """A call to a server at HOST:PORT that has just begun.

    Raises:
        OSError: nobody listens there.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, begun = await loop.create_connection(lambda: Call(method, address, message), host, int(port))
    return begun
