# SPDX-License-Identifier: Apache-2.0
"""An OTLP collector inside the test: spans sent to `endpoint` appear in `spans`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


@dataclass(slots=True)
class OtlpReceiver:
    """What has arrived so far. `spans` holds (service.name, span) in order of arrival."""

    endpoint: str = ""
    spans: list[tuple[str, Span]] = field(default_factory=list)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def environment(self) -> dict[str, str]:
        """The variables that make a child process send its spans here, and soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    async def wait(
        self,
        predicate: Callable[[Sequence[tuple[str, Span]]], bool],
        deadline: float = 30.0,
    ) -> list[tuple[str, Span]]:
        """Return the spans as soon as `predicate` holds for them; TimeoutError after `deadline`."""
        async with asyncio.timeout(deadline), self._arrived:
            await self._arrived.wait_for(lambda: predicate(self.spans))
            return list(self.spans)

    async def _export(
        self, request: ExportTraceServiceRequest, _context: object
    ) -> ExportTraceServiceResponse:
        async with self._arrived:
            for each in request.resource_spans:
                names = [
                    a.value.string_value
                    for a in each.resource.attributes
                    if a.key == "service.name"
                ]
                for scope in each.scope_spans:
                    self.spans.extend(("".join(names), span) for span in scope.spans)
            self._arrived.notify_all()
        return ExportTraceServiceResponse()


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[OtlpReceiver]:
    """A receiver on a free port of this machine, for as long as the block runs."""
    receiver = OtlpReceiver()
    server = grpc.aio.server()
    export = grpc.unary_unary_rpc_method_handler(
        receiver._export,
        request_deserializer=ExportTraceServiceRequest.FromString,
        response_serializer=ExportTraceServiceResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {"Export": export}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    receiver.endpoint = f"http://127.0.0.1:{port}"
    await server.start()
    try:
        yield receiver
    finally:
        await server.stop(grace=None)
