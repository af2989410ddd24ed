# SPDX-License-Identifier: Apache-2.0
"""The xDS relay: Envoy speaks to it over a Unix socket, it speaks to discovery.

Rules: one stream to discovery for each stream of Envoy, with nothing left over from an earlier one.
Messages pass as the bytes they are. The end of discovery's stream is passed on, so that Envoy
begins again with its full requests. Envoy's requests are taken without limit, at most one response
is under way: with bounds on both sides, each would wait for the other to read. Load reports pass
likewise.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

import grpc
import grpc.aio
import structlog

from pilothouse.envoy import bootstrap
from pilothouse_agent import observation

_LOG = structlog.get_logger(__name__)

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_SOTW = "StreamAggregatedResources"
_DELTA = "DeltaAggregatedResources"
_LOADS_SERVICE = "envoy.service.load_stats.v3.LoadReportingService"
_LOADS = "StreamLoadStats"

_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_CHANNEL_OPTIONS = (
    *_UNLIMITED,
    # A discovery that died without a word is noticed.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),  # without it gRPC stops after two
    # gRPC adds jitter of 20 %. Its own maximum of two minutes is long for a mesh coming back.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 10_000),
)
_SERVER_OPTIONS = (
    *_UNLIMITED,
    # Envoy pings us every 30 s; gRPC's servers take a ping in 5 minutes, and hang up on more.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
)

_Context = grpc.aio.ServicerContext[bytes, bytes]
_Call = grpc.aio.StreamStreamCall[bytes, bytes]
_Method = grpc.aio.StreamStreamMultiCallable[bytes, bytes]


class _Observer(Protocol):
    """Sees what passes."""

    def request(self, data: bytes) -> None: ...

    def response(self, data: bytes) -> None: ...


class _Nobody:
    """Takes no note."""

    def request(self, data: bytes) -> None:
        pass

    def response(self, data: bytes) -> None:
        pass


class Relay:
    """Serves both variants of ADS and load reports on `listen`, from discovery at `upstream`."""

    def __init__(
        self,
        *,
        listen: bootstrap.UnixSocket,
        upstream: bootstrap.Address,
        observer: observation.Observer,
    ) -> None:
        self._listen = listen
        self._upstream = upstream
        self._observer = observer
        self._channel: grpc.aio.Channel | None = None
        self.connected = False
        """Whether there is a connection to discovery at this moment."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve for as long as the block runs."""
        channel = grpc.aio.insecure_channel(str(self._upstream), options=_CHANNEL_OPTIONS)
        self._channel = channel
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            _SOTW: grpc.stream_stream_rpc_method_handler(self._sotw),
            _DELTA: grpc.stream_stream_rpc_method_handler(self._delta),
        }
        reports: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            _LOADS: grpc.stream_stream_rpc_method_handler(self._loads)
        }
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(_SERVICE, handlers),
                grpc.method_handlers_generic_handler(_LOADS_SERVICE, reports),
            )
        )
        server.add_insecure_port(str(self._listen))
        await server.start()
        try:
            yield
        finally:
            await server.stop(grace=None)
            await channel.close()

    async def watch(self) -> None:
        """Keep connected to discovery, and log once whenever that begins or ends to work."""
        channel = self._open_channel
        told: bool | None = None
        while True:
            state = channel.get_state(try_to_connect=True)
            self.connected = state is grpc.ChannelConnectivity.READY
            if self.connected and told is not True:
                told = True
                _LOG.info("discovery connected", address=str(self._upstream))
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and told is not False:
                told = False
                _LOG.warning(
                    "discovery unreachable, trying on; Envoy keeps what it has",
                    address=str(self._upstream),
                    setting="--discovery-address",
                )
            await channel.wait_for_state_change(state)

    @property
    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise RuntimeError("the relay is not serving")
        return self._channel

    async def _sotw(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        observer = self._observer.stream(delta=False)
        await self._relay(f"/{_SERVICE}/{_SOTW}", requests, context, observer)

    async def _delta(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        observer = self._observer.stream(delta=True)
        await self._relay(f"/{_SERVICE}/{_DELTA}", requests, context, observer)

    async def _loads(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        await self._relay(f"/{_LOADS_SERVICE}/{_LOADS}", requests, context, _Nobody())

    async def _relay(
        self,
        method: str,
        requests: AsyncIterator[bytes],
        context: _Context,
        observer: _Observer,
    ) -> None:
        open_call: _Method = self._open_channel.stream_stream(method)
        # Wait for a connection rather than fail: the channel has a back-off, one is enough.
        call: _Call = open_call(wait_for_ready=True)
        _LOG.debug("stream opened", method=method)
        try:
            code, details = await _pump(call, requests, context, observer)
        finally:
            call.cancel()
        _LOG.info("discovery ended the stream", method=method, code=code.name, details=details)
        if code is not grpc.StatusCode.OK:
            await context.abort(code, details)


async def _pump(
    call: _Call,
    requests: AsyncIterator[bytes],
    context: _Context,
    observer: _Observer,
) -> tuple[grpc.StatusCode, str]:
    """Move messages both ways until discovery ends the stream; with which status.

    Envoy's end comes as a cancellation.
    """
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def take() -> None:
        async for request in requests:
            observer.request(request)
            waiting.put_nowait(request)
        waiting.put_nowait(None)

    async def pass_up() -> None:
        # When the stream has ended, its reader below is told why; here it is no news.
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while (request := await waiting.get()) is not None:
                await call.write(request)
            await call.done_writing()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(take()), group.create_task(pass_up())]
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                assert isinstance(response, bytes)  # noqa: S101 - EOF is excluded, tell mypy
                observer.response(response)
                await context.write(response)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        finally:
            for task in tasks:
                task.cancel()
    return grpc.StatusCode.OK, ""
