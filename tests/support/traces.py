# SPDX-License-Identifier: Apache-2.0
"""Spans as a collector got them: who did what, below what."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

Spans = Sequence[tuple[str, Span]]


def attributes(span: Span) -> dict[str, Any]:
    """Its attributes; texts, whole numbers and lists of texts."""
    return {
        one.key: [each.string_value for each in one.value.array_value.values]
        if one.value.HasField("array_value")
        else one.value.string_value or one.value.int_value
        for one in span.attributes
    }


def way(spans: Spans, last: Span) -> list[tuple[str, str]]:
    """(service, name) of every span from the first one of the trace to `last`.

    AssertionError when a parent is missing, or is of another trace.
    """
    known = {span.span_id: (service, span) for service, span in spans}
    found: list[tuple[str, str]] = []
    next_id = last.span_id
    while next_id:
        assert next_id in known, f"the parent of {found[0]} is missing"
        service, span = known[next_id]
        assert span.trace_id == last.trace_id, f"{span.name} is of another trace"
        found.insert(0, (service, span.name))
        next_id = span.parent_span_id
    return found


def way_if_whole(spans: Spans, last: Span) -> list[tuple[str, str]]:
    """As `way`; empty while a parent has not arrived."""
    try:
        return way(spans, last)
    except AssertionError:
        return []


def ways(spans: Spans, name: str) -> list[list[tuple[str, str]]]:
    """The ways to every span of a name, as far as their parents have arrived."""
    return [
        found for _, span in spans if span.name == name and (found := way_if_whole(spans, span))
    ]


def listed(spans: Spans) -> str:
    """Every span in a line, for the message of a test that fails."""
    return "\n".join(
        f"{span.trace_id.hex()[:8]} {span.parent_span_id.hex() or '-' * 16} > "
        f"{span.span_id.hex()} {service} {span.name} {attributes(span)}"
        for service, span in spans
    )
