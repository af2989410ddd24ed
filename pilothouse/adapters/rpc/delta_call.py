# SPDX-License-Identifier: Apache-2.0
"""The client's I/O of a delta stream: connect, read, answer, and connect again, for ever.

What was accepted stays while there is no connection; that is `pilothouse.xds.client`'s doing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog

from pilothouse.adapters.rpc import backoff, services
from pilothouse.xds import client

_LOG = structlog.get_logger(__name__)

Call = grpc.aio.StreamStreamCall[Any, Any]

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A peer that vanished without a word is found out within 40 s, no sooner than it allows.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # The back-off is ours: each try is a channel of its own, and connects at once.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 5_000),
)


class DeltaCall:
    """Keeps one `DeltaClient` connected to an address."""

    def __init__(
        self,
        *,
        peer: str,
        address: str,
        delta: client.DeltaClient,
        take: Callable[[client.ClientUpdate], None],
        credentials: grpc.ChannelCredentials | None = None,
        delays: backoff.Backoff | None = None,
    ) -> None:
        """Connect to nobody yet.

        Args:
            peer: what the other side is called, for logs.
            address: HOST:PORT.
            delta: the client's half of the protocol, with its subscriptions.
            take: called with every update before it is acknowledged.
            credentials: None speaks plain text.
            delays: how long to wait between tries.
        """
        self._peer = peer
        self._address = address
        self._delta = delta
        self._take = take
        self._credentials = credentials
        self._backoff = delays or backoff.Backoff()
        self.connected = False
        """True from the first response of a stream to the stream's end."""
        self.error = ""
        """Why there is no connection, in the words of the last try; empty when there is one."""

    async def run(self) -> NoReturn:
        """Be connected, until cancelled."""
        while True:
            try:
                await self._stream()
                self._lost("the stream was ended")
            except grpc.aio.AioRpcError as error:
                self._lost(f"{error.code().name}: {error.details()}")
            except (grpc.aio.BaseError, asyncio.InvalidStateError, ValueError) as error:
                self._lost(str(error))
            await asyncio.sleep(self._backoff.next())

    async def _stream(self) -> None:
        channel = (
            grpc.aio.insecure_channel(self._address, options=_OPTIONS)
            if self._credentials is None
            else grpc.aio.secure_channel(self._address, self._credentials, options=_OPTIONS)
        )
        async with channel:
            call: Call = channel.stream_stream(services.ADS.delta_path)()
            try:
                for request in self._delta.connect():
                    await call.write(request)
                while True:
                    response = await call.read()
                    if not isinstance(response, bytes):
                        return
                    update = self._delta.receive(response)
                    self._found()
                    self._take(update)
                    for request in update.requests:
                        await call.write(request)
            finally:
                # grpc.aio does not end a call that is merely forgotten.
                call.cancel()

    def _found(self) -> None:
        if not self.connected:
            _LOG.info("connected", peer=self._peer, address=self._address)
        self.connected = True
        self.error = ""
        self._backoff.reset()

    def _lost(self, reason: str) -> None:
        # Told when it changes, not at every try.
        if self.connected or self.error != reason:
            _LOG.warning("not connected", peer=self._peer, address=self._address, reason=reason)
        self.connected = False
        self.error = reason
