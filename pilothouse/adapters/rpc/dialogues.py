# SPDX-License-Identifier: Apache-2.0
"""Calls in which the client speaks and the server answers each message, or some of them.

Nobody cancels a read, as in `streams`: it ends by itself when the call does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf import message

from pilothouse.xds import requests

_LOG = structlog.get_logger(__name__)
Status = tuple[grpc.StatusCode, str]
_STOPPING: Status = (grpc.StatusCode.UNAVAILABLE, "the server is stopping")
_DEAD = (grpc.aio.BaseError, asyncio.InvalidStateError)

Q_contra = TypeVar("Q_contra", bound=message.Message, contravariant=True)
A_co = TypeVar("A_co", bound=message.Message, covariant=True)


class Dialogue(Protocol[Q_contra, A_co]):
    """One call."""

    def receive(self, request: Q_contra) -> A_co | None:
        """Take a message; give the answer, if there is one.

        Raises:
            requests.ProtocolError: the call must end with this status.
        """

    def closed(self) -> None:
        """The call is over, for whatever reason; called once."""


class Dialogues:
    """The running calls of a server, of any kind."""

    def __init__(self) -> None:
        """Begin with none."""
        self._calls: set[asyncio.Task[Status | None]] = set()
        self._draining = asyncio.Event()

    def handler(
        self, begin: Callable[[], Dialogue[Any, Any]], request: type[message.Message]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """The handler of a method; ``begin`` is called for each call."""

        async def serve(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            dialogue = begin()
            talking = asyncio.create_task(_talk(dialogue, context), name="dialogue")
            drained = asyncio.create_task(self._draining.wait(), name="dialogue end")
            self._calls.add(talking)
            talking.add_done_callback(self._calls.discard)
            try:
                await asyncio.wait((talking, drained), return_when=asyncio.FIRST_COMPLETED)
            finally:
                drained.cancel()
                dialogue.closed()
            ending = talking.result() if talking.done() else _STOPPING
            if ending is not None:
                await context.abort(*ending)

        return grpc.stream_stream_rpc_method_handler(
            serve,
            request_deserializer=request.FromString,
            response_serializer=_encode,
        )

    def drain(self) -> None:
        """End every call with UNAVAILABLE, also those that come."""
        self._draining.set()


def _encode(answer: message.Message) -> bytes:
    return answer.SerializeToString()


async def _talk(
    dialogue: Dialogue[Any, Any], context: grpc.aio.ServicerContext[Any, Any]
) -> Status | None:
    """Take messages in until the client is gone; give the status to end with, if it is an error."""
    try:
        while (request := await context.read()) is not grpc.aio.EOF:
            answer = dialogue.receive(request)
            if answer is not None:
                await context.write(answer)
    except requests.ProtocolError as error:
        _LOG.warning("protocol broken", peer=context.peer(), reason=str(error))
        return grpc.StatusCode[error.code], str(error)
    except _DEAD as error:
        _LOG.debug("call died", peer=context.peer(), reason=repr(error))
    return None
