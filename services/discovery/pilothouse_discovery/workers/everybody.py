# SPDX-License-Identifier: Apache-2.0
"""Envoy's client status service, for the clients of all workers.

Each worker tells of its own, and the answers are put together, by node id.
"""

from __future__ import annotations

import marshal
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from pilothouse.adapters.rpc import serving, unary
from pilothouse.api.envoy.service.status.v3 import csds_pb2
from pilothouse_discovery import client_status
from pilothouse_discovery.workers import pool

_Context = grpc.aio.ServicerContext[csds_pb2.ClientStatusRequest, csds_pb2.ClientStatusResponse]


class EveryClientStatus:
    """The service."""

    def __init__(self, workers: pool.Pool) -> None:
        """Wire it."""
        self._workers = workers

    def add_to(self, server: serving.GrpcServer) -> None:
        """Serve both methods, for reflection too."""
        codec: dict[str, Any] = {
            "request_deserializer": csds_pb2.ClientStatusRequest.FromString,
            "response_serializer": csds_pb2.ClientStatusResponse.SerializeToString,
        }
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "StreamClientStatus": grpc.stream_stream_rpc_method_handler(self._stream, **codec),
            "FetchClientStatus": grpc.unary_unary_rpc_method_handler(self._fetch, **codec),
        }
        generic = grpc.method_handlers_generic_handler(client_status.SERVICE, handlers)
        server.server.add_generic_rpc_handlers((generic,))
        server.announce(client_status.SERVICE)

    async def _stream(
        self, asked: AsyncIterator[csds_pb2.ClientStatusRequest], context: _Context
    ) -> AsyncIterator[csds_pb2.ClientStatusResponse]:
        async for request in asked:
            yield await self._fetch(request, context)

    async def _fetch(
        self, request: csds_pb2.ClientStatusRequest, context: _Context
    ) -> csds_pb2.ClientStatusResponse:
        answers = await self._workers.ask("client status", request.SerializeToString())
        found: list[csds_pb2.ClientConfig] = []
        for answer in answers:
            code, text, body = marshal.loads(answer)  # noqa: S302  from our own child
            if code:
                await unary.abort(context, grpc.StatusCode[code], text, reason="UNKNOWN_MATCHER")
            found += csds_pb2.ClientStatusResponse.FromString(body).config
        found.sort(key=lambda config: config.node.id)
        return csds_pb2.ClientStatusResponse(config=found)
