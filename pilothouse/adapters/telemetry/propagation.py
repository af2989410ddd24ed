# SPDX-License-Identifier: Apache-2.0
"""A trace crosses a hop as one W3C `traceparent` string, in a header or in a field of a message.

The flags of a traceparent are bits (`03` is "sampled, random id"): nobody here compares them.
"""

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_HEADER = "traceparent"


def inject(context: Context | None = None) -> str:
    """The traceparent of `context` (of the current one, if None); "" when it has no span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return carrier.get(_HEADER, "")


def current_traceparent() -> str:
    """The traceparent of the span that is current here, or ""."""
    return inject()


def extract(traceparent: str) -> Context:
    """The context that `traceparent` names; an empty or unreadable one gives an empty context."""
    return _PROPAGATOR.extract({_HEADER: traceparent}, Context())


def span_context(traceparent: str) -> trace.SpanContext | None:
    """The span that `traceparent` names, as links want it; None when it names none."""
    found = trace.get_current_span(extract(traceparent)).get_span_context()
    return found if found.is_valid else None
