# SPDX-License-Identifier: Apache-2.0
"""Calls that a worker passes on to the parent, which knows about every client.

Messages go through as bytes, in both directions, with metadata and status: nothing is understood
here, so that whatever the parent serves is served by its workers. Nobody cancels a read: it ends by
itself when the call does (https://github.com/grpc/grpc/issues/43360).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final

import grpc
import grpc.aio
import structlog

_LOG = structlog.get_logger(__name__)

_DEAD: Final = (grpc.aio.BaseError, asyncio.InvalidStateError)
_OWN: Final = ("grpc-", ":")
"""How metadata begins that belongs to one connection."""
_OF_CONNECTION: Final = frozenset({"user-agent", "content-type", "te"})
"""More of it."""
_DETAILS: Final = "grpc-status-details-bin"
"""This is the caller's all the same."""


class Passing(grpc.GenericRpcHandler):
    """Handles every method of some services by asking elsewhere."""

    def __init__(self, channel: grpc.aio.Channel, services: Collection[str]) -> None:
        """Pass the calls of these services, by full name, on to whoever is behind the channel."""
        self._channel = channel
        self._services = frozenset(services)
        self._reading: set[asyncio.Task[None]] = set()

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """The handler of a method; None for one that is not passed on."""
        method: Any = handler_call_details.method
        if method.split("/")[1] not in self._services:
            return None

        async def serve(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await self._serve(method, context)

        # On the wire a call with one message is a stream of one.
        return grpc.stream_stream_rpc_method_handler(serve)

    async def _serve(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        metadata = _pairs(context.invocation_metadata())
        call: Any = self._channel.stream_stream(method)(
            timeout=context.time_remaining(), metadata=metadata
        )
        reading = asyncio.create_task(_pass_up(context, call), name="passing")
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)
        try:
            async for answer in call:
                await context.write(answer)
            code, text = await call.code(), await call.details()
            trailing = await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            code, text, trailing = error.code(), error.details(), error.trailing_metadata()
        except _DEAD as error:
            _LOG.debug("nobody left to answer", method=method, reason=repr(error))
            return
        finally:
            call.cancel()
        if code is grpc.StatusCode.OK:
            context.set_trailing_metadata(tuple(_pairs(trailing)))
        else:
            await context.abort(code, text or "", tuple(_pairs(trailing)))


def _pairs(metadata: Any) -> list[tuple[str, Any]]:
    pairs: Iterable[tuple[str, Any]] = metadata or ()
    return [
        (key, value)
        for key, value in pairs
        if key == _DETAILS or not (key.startswith(_OWN) or key in _OF_CONNECTION)
    ]


async def _pass_up(context: grpc.aio.ServicerContext[Any, Any], call: Any) -> None:
    try:
        while isinstance(request := await context.read(), bytes):
            await call.write(request)
        await call.done_writing()
    except _DEAD as error:
        _LOG.debug("call is over", reason=repr(error))
