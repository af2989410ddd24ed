# SPDX-License-Identifier: Apache-2.0
"""gRPC interceptors that make spans of unary calls, and keep off streams.

OpenTelemetry's own server interceptor breaks a handler that reads with `context.read()`, and turns
a stream that lives for a day into one span that is exported after a day. So streams pass untouched;
those who serve them make short spans themselves.
"""

from typing import Any

import grpc
import grpc.aio

from pilothouse.adapters.telemetry.tracing import Telemetry


class _UnaryOnly(grpc.aio.ServerInterceptor):
    """Hands unary calls to `inner` and everything else straight on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def intercept_service(
        self, continuation: Any, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming or handler.response_streaming:
            return handler

        async def known(_details: grpc.HandlerCallDetails) -> Any:
            return handler

        return await self._inner.intercept_service(known, handler_call_details)


def server_interceptors(telemetry: Telemetry) -> list[grpc.aio.ServerInterceptor]:
    """For `grpc.aio.server(interceptors=...)`; empty when tracing is off, so it costs nothing."""
    if not telemetry.enabled:
        return []
    # Not a module import: with tracing off the instrumentation need not be loaded at all.
    from opentelemetry.instrumentation.grpc import aio_server_interceptor  # noqa: PLC0415

    inner = aio_server_interceptor(tracer_provider=telemetry.provider)  # type: ignore[no-untyped-call]
    return [_UnaryOnly(inner)]


def client_interceptors(telemetry: Telemetry) -> list[grpc.aio.ClientInterceptor]:
    """For `grpc.aio.insecure_channel(interceptors=...)`; empty when tracing is off."""
    if not telemetry.enabled:
        return []
    from opentelemetry.instrumentation.grpc import aio_client_interceptors  # noqa: PLC0415

    made = aio_client_interceptors(tracer_provider=telemetry.provider)  # type: ignore[no-untyped-call]
    return [each for each in made if isinstance(each, grpc.aio.UnaryUnaryClientInterceptor)]
