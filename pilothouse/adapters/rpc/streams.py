# SPDX-License-Identifier: Apache-2.0
"""xDS streams on a `grpc.aio` server: bytes in, bytes out, and nothing kept waiting.

Rules of this file:
- Each stream has one task that reads and one that writes. The writer sleeps until something may be
  written, then writes what the protocol's `poll` gives, built from the newest state; there is no
  queue, so a slow client costs one response of memory and delays nobody.
- A write has a deadline. A client that does not read in time is given up at once; its call ends
  when the client notices.
- Nobody cancels a read: it ends by itself when the call does (cancelling it leaks in grpc.aio,
  https://github.com/grpc/grpc/issues/43360). Only the writer sends a status.
- What is served to whom is the business of the `StreamHost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import grpc
import grpc.aio
import structlog

from pilothouse.adapters.rpc import admission, deadlines, services, serving, trace_metadata
from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import delta, framing, requests, resources, sotw, streams

_LOG = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, bytes]
# What reading and writing raise when the call is over, by whichever side.
_DEAD = (grpc.aio.BaseError, asyncio.InvalidStateError)
_LARGE = 1_000_000
"""Bytes of a response that takes about a millisecond to make, or to pass on."""


class Session:
    """One stream, from its first request to its end. Compared by identity."""

    def __init__(self, stream: streams.Stream, *, peer: str, metadata: Sequence[Any] = ()) -> None:
        self.stream = stream
        """The protocol's state, for reading. `push` is how it gets a target."""
        self.peer = peer
        """The client's address in gRPC's form, for people."""
        self.metadata = metadata
        """Metadata of the call, as (key, value) pairs."""
        self.ending: tuple[grpc.StatusCode, str] | None = None
        """The status it is about to end with, once `end` was called."""
        self.wake = asyncio.Event()
        """Set when its writer shall look whether there is something to write."""
        self._trace = ""

    @property
    def node(self) -> base_pb2.Node:
        """Who the client is, by its first request."""
        node = self.stream.node
        if node is None:
            raise RuntimeError("the client has not said who it is: the session is not open yet")
        return node

    def push(self, snapshot: resources.Snapshot, *, traceparent: str = "") -> None:
        """Make `snapshot` what the client shall hold; what it lacks is written soon.

        `traceparent` is the trace of what is removed; what is new or different has its own.
        """
        self._trace = traceparent or self._trace
        self.stream.update(snapshot)
        if self.stream.ready:
            self.wake.set()

    def encoded(self, response: streams.Response) -> bytes:
        """A response as it is written: with the trace of what it removes, if it can carry one."""
        if not (response.removed and self._trace and isinstance(self.stream, delta.DeltaStream)):
            return response.body
        # Of two values of a field the last one counts.
        version = trace_metadata.mark(response.version, self._trace)
        return response.body + framing.field(1, version.encode())

    def end(self, code: grpc.StatusCode, message: str) -> None:
        """End the stream with a status, once the running write is done; the first call counts."""
        if self.ending is None:
            self.ending = (code, message)
        self.wake.set()


class StreamHost(Protocol):
    """Whom streams are served for. All calls come on the event loop, and must not block it."""

    def opened(self, session: Session) -> None:
        """A client has said who it is; `session.push` and `session.end` may be called from here."""

    def events(self, session: Session, events: tuple[streams.Event, ...]) -> None:
        """A request of an opened session was taken in; `events` may be empty."""

    def sent(self, session: Session, response: streams.Response) -> None:
        """A response was written."""

    def closed(self, session: Session) -> None:
        """An opened session is over, for whatever reason; called once."""


class XdsServer:
    """Serves the aggregated discovery service, and those of one type if asked to."""

    def __init__(
        self,
        host: StreamHost,
        *,
        write_timeout: float = 30.0,
        per_type: bool = False,
        admitting: admission.Admission | None = None,
    ) -> None:
        """Make a server without connections.

        Args:
            host: decides what each stream is to hold.
            write_timeout: seconds that a client has to read what fills its buffers.
            per_type: serve each type of Envoy's on a service of its own too.
            admitting: how many streams may begin in a second; None for any number.
        """
        self._admission = admitting
        self._host = host
        self._deadlines = deadlines.Deadlines(write_timeout, late=_Call.give_up)
        self._per_type = per_type
        self._sessions: set[Session] = set()
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The streams that exist, in no order; some may not have said who they are."""
        return tuple(self._sessions)

    def add_to(self, server: serving.GrpcServer) -> None:
        """Register the services, for health and reflection too."""
        served: tuple[services.Service, ...] = (services.ADS,)
        if self._per_type:
            services.load_descriptors()
            served += services.PER_TYPE
        for service in served:
            handlers = {service.delta: self._handler(delta.DeltaStream, service)}
            if service.sotw is not None:
                handlers[service.sotw] = self._handler(sotw.SotwStream, service)
            generic = grpc.method_handlers_generic_handler(service.name, handlers)
            server.server.add_generic_rpc_handlers((generic,))
            server.announce(service.name)

    async def drain(self, *, message: str = "the server is stopping", within: float = 1.0) -> None:
        """End every stream with UNAVAILABLE, and refuse new ones.

        Returns when all have ended, or after `within` seconds: a client that does not read cannot
        be told.
        """
        self._draining = True
        for session in self.sessions:
            session.end(grpc.StatusCode.UNAVAILABLE, message)
        try:
            async with asyncio.timeout(within):
                await self._idle.wait()
        except TimeoutError:
            _LOG.info("streams are left whose clients do not read", streams=len(self._sessions))

    def _handler(
        self, variant: type[sotw.SotwStream | delta.DeltaStream], service: services.Service
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def serve(_requests: object, context: Context) -> None:
            if self._admission is not None and not await self._admission.admit():
                text = "too many streams begin at once: try again later, or another replica"
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            if self._draining:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
            session = Session(
                variant(default_type=service.type_url),
                peer=context.peer(),
                metadata=tuple(context.invocation_metadata() or ()),
            )
            self._sessions.add(session)
            self._idle.clear()
            call = _Call(session, context, self._host, write_deadlines=self._deadlines)
            try:
                await call.run()
            finally:
                self._sessions.discard(session)
                if not self._sessions:
                    self._idle.set()

        # Without (de)serialisers gRPC hands bytes through.
        return grpc.stream_stream_rpc_method_handler(serve)


class _Call:
    """The two tasks of one stream."""

    def __init__(
        self,
        session: Session,
        context: Context,
        host: StreamHost,
        *,
        write_deadlines: deadlines.Deadlines[_Call],
    ) -> None:
        self._session = session
        self._context = context
        self._host = host
        self._deadlines = write_deadlines
        self._writer: asyncio.Task[None] | None = None
        self._opened = False
        self._over = False
        self._late = False

    def give_up(self) -> None:
        """The running write takes too long."""
        self._late = True
        if self._writer is not None:
            self._writer.cancel()

    async def run(self) -> None:
        """Serve the stream to its end."""
        reading = asyncio.create_task(self._read(), name="xds read")
        writing = self._writer = asyncio.create_task(self._write(), name="xds write")
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Come here by cancellation, the call is dead, and both end by themselves.
            self._close()
            await asyncio.wait((reading, writing))
            failures = [each.exception() for each in (reading, writing) if not each.cancelled()]
        # gRPC wants to see the exception that `abort` raised come out of the handler.
        for failure in failures:
            if failure is not None:
                raise failure

    def _close(self) -> None:
        if self._over:
            return
        self._over = True
        self._session.wake.set()
        if self._opened:
            self._host.closed(self._session)

    async def _read(self) -> None:
        """Take requests in until the client is gone or the stream is to end."""
        session = self._session
        while not self._over and session.ending is None:
            try:
                request = await self._context.read()
            except _DEAD as error:
                _LOG.debug("read failed", peer=session.peer, reason=repr(error))
                return
            if not isinstance(request, bytes):
                return  # gRPC's mark of the end
            self._take(request)

    def _take(self, request: bytes) -> None:
        session = self._session
        try:
            events = session.stream.receive(request)
            if not self._opened:
                self._opened = True
                self._host.opened(session)
            if session.ending is None:
                self._host.events(session, events)
        except requests.ProtocolError as error:
            _LOG.warning("protocol broken", peer=session.peer, node=_id(session), reason=str(error))
            session.end(grpc.StatusCode[error.code], str(error))
        except Exception:  # noqa: BLE001 - a mistake of ours costs this stream, and is told
            _LOG.exception("request not handled", peer=session.peer, node=_id(session))
            session.end(grpc.StatusCode.INTERNAL, "internal error")
        if session.stream.ready:
            session.wake.set()

    async def _write(self) -> None:
        """Write whatever there is to write, then sleep until there may be more."""
        session = self._session
        try:
            # Otherwise gRPC sends it with the first response, and cannot end the call while that
            # one is stuck.
            await self._context.send_initial_metadata(())
        except _DEAD as error:
            _LOG.debug("call died young", peer=session.peer, reason=repr(error))
            return
        while True:
            await session.wake.wait()
            session.wake.clear()
            if session.ending is not None:
                await self._abort(*session.ending)
                return
            if self._over:
                return
            try:
                await self._flush()
            except _DEAD as error:
                _LOG.debug("write failed", peer=session.peer, reason=repr(error))
                return
            except Exception:  # noqa: BLE001 - as above
                _LOG.exception("response not written", peer=session.peer, node=_id(session))
                session.end(grpc.StatusCode.INTERNAL, "internal error")

    async def _abort(self, code: grpc.StatusCode, message: str) -> None:
        try:
            await self._context.abort(code, message)
        except grpc.aio.AbortError:
            raise  # how gRPC learns that this was meant
        except _DEAD as error:
            _LOG.debug("nobody left to tell", peer=self._session.peer, reason=repr(error))

    async def _flush(self) -> None:
        session = self._session
        while session.ending is None and not self._over:
            if session.stream.prepare():
                await asyncio.sleep(0)  # a large response: others have a turn
                continue
            response = session.stream.poll()
            if response is None:
                return
            if len(response.body) > _LARGE:
                await asyncio.sleep(0)  # putting it together took its time, and gRPC copies it
            self._deadlines.begin(self)
            try:
                await self._context.write(session.encoded(response))
            except asyncio.CancelledError:
                if not self._late or (self._writer is not None and self._writer.uncancel()):
                    raise
                self._stuck()
                return
            finally:
                self._deadlines.end(self)
            self._host.sent(session, response)

    def _stuck(self) -> None:
        session = self._session
        text = f"nothing was read for {self._deadlines.seconds:g} s"
        _LOG.warning("client is stuck", peer=session.peer, node=_id(session), reason=text)
        session.end(grpc.StatusCode.DEADLINE_EXCEEDED, text)
        # The status waits behind what is not read: be done with the client before that.
        self._close()


def _id(session: Session) -> str:
    return session.stream.node.id if session.stream.node is not None else ""
