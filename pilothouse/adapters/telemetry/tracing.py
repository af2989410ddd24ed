# SPDX-License-Identifier: Apache-2.0
"""Where spans go, chosen by OpenTelemetry's standard variables, and the handle on it all.

`OTEL_TRACES_EXPORTER` is a list of `otlp`, `console`, `none`; without it spans go to an OTLP
endpoint if one is named, and nowhere otherwise. `OTEL_SDK_DISABLED`, the resource, sampler, batch
and OTLP variables mean what OpenTelemetry says they mean. With nowhere to go, everything is no-op.
"""

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog
from opentelemetry import trace
from opentelemetry.sdk.resources import (
    SERVICE_NAME,
    SERVICE_VERSION,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
)
from opentelemetry.util.types import AttributeValue

from pilothouse.adapters.telemetry.propagation import extract, span_context

_LOG = structlog.get_logger(__name__)

EXPORTERS = ("otlp", "console", "none")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The tracing of one program: made once at the top, passed down, shut down at the end."""

    provider: trace.TracerProvider
    """What instrumentation libraries ask for; a no-op one when tracing is off."""
    tracer: trace.Tracer
    """Makes the spans of our own code."""
    enabled: bool
    """False means that no span goes anywhere: skip work that serves spans alone."""

    @classmethod
    def off(cls) -> "Telemetry":
        """Tracing that does nothing, for tests and for programs that were given no exporter."""
        provider = trace.NoOpTracerProvider()
        return cls(provider=provider, tracer=provider.get_tracer("pilothouse"), enabled=False)

    @contextmanager
    def span(
        self,
        name: str,
        *,
        parent: str | None = None,
        links: Iterable[str] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> Iterator[trace.Span]:
        """A span that is current inside the block; an exception ends it as an error.

        `parent` is a traceparent: None continues the current span, "" starts a new trace. `links`
        are traceparents too: the changes that were coalesced into this piece of work.
        """
        if not self.enabled:
            yield trace.INVALID_SPAN
            return
        with self.tracer.start_as_current_span(
            name,
            context=None if parent is None else extract(parent),
            links=[trace.Link(found) for each in links if (found := span_context(each))],
            attributes=attributes,
        ) as span:
            yield span

    async def shutdown(self, within: float = 2.0) -> None:
        """Send what is left, but be done after `within` seconds whatever the collector does."""
        if not isinstance(self.provider, TracerProvider):
            return
        provider = self.provider
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def flush() -> None:
            provider.force_flush(int(within * 1000))
            provider.shutdown()
            # The loop is gone when this took longer than anybody waited.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        # A daemon thread of our own: one of asyncio's pool would hold up the end of the program
        # for as long as a dead collector makes the exporter wait.
        threading.Thread(target=flush, name="telemetry-flush", daemon=True).start()
        try:
            async with asyncio.timeout(within):
                await done.wait()
        except TimeoutError:
            _LOG.warning("spans lost: the collector did not take them in time", seconds=within)


def tracer_provider(service_name: str, version: str) -> Telemetry:
    """Tracing as the OTEL_* variables ask; `OTEL_SERVICE_NAME` wins over `service_name`."""
    exporters = _chosen(os.environ)
    if not exporters:
        return Telemetry.off()
    resource = Resource.create({SERVICE_NAME: service_name, SERVICE_VERSION: version})
    # Resource.create lets its argument win; the user's word shall.
    resource = resource.merge(OTELResourceDetector().detect())
    # The composition root calls shutdown, with a bound; the SDK's exit hook has none.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in exporters:
        if name == "console":
            provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
        else:
            provider.add_span_processor(BatchSpanProcessor(_otlp()))
    return Telemetry(
        provider=provider, tracer=provider.get_tracer("pilothouse", version), enabled=True
    )


def _chosen(environ: Mapping[str, str]) -> list[str]:
    """The exporters to use, without repetition; a name we do not know is told and left out."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    default = "otlp" if any(environ.get(each) for each in _ENDPOINTS) else "none"
    asked = environ.get("OTEL_TRACES_EXPORTER", "").strip() or default
    names = dict.fromkeys(each.strip().lower() for each in asked.split(","))
    for unknown in [each for each in names if each not in EXPORTERS]:
        _LOG.warning(
            "trace exporter not known, left out",
            variable="OTEL_TRACES_EXPORTER",
            value=unknown,
            known=list(EXPORTERS),
        )
    chosen = [each for each in names if each in ("otlp", "console")]
    protocol = next((environ[each] for each in _PROTOCOLS if environ.get(each)), "grpc")
    if "otlp" in chosen and protocol != "grpc":
        _LOG.warning(
            "OTLP over this protocol is not built in, spans are dropped: use grpc",
            variable="OTEL_EXPORTER_OTLP_PROTOCOL",
            value=protocol,
        )
        chosen.remove("otlp")
    return chosen


def _otlp() -> SpanExporter:
    # Not a module import: it costs 50 ms and memory that a program without tracing should not pay.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )

    return OTLPSpanExporter()
