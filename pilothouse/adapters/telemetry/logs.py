# SPDX-License-Identifier: Apache-2.0
"""Structured logs on stderr: one JSON object a line, the standard library's records included.

`structlog.get_logger()` is what our code logs with; events are short lower-case phrases, the rest
are keys. Context (node, stream, ...) comes from `structlog.contextvars.bind_contextvars`.
"""

import logging
import sys
from collections.abc import Sequence
from typing import Literal

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["json", "console"]
LEVELS = ("debug", "info", "warning", "error", "critical")


class _OurHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic in stubs only
    """Marks the handler as ours, so that a second configuration replaces it and no other."""


def configure_logging(
    service: str,
    level: str = "info",
    *,
    format: LogFormat = "json",  # noqa: A002 - the word that the settings use
) -> None:
    """Send every record of this process to stderr, stamped with `service`.

    Raises ValueError for a level that is none of `LEVELS`. May be called again.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    shared = _shared_processors(service)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        # A cached logger escapes `structlog.testing.capture_logs`, and binding costs little.
        cache_logger_on_first_use=False,
    )
    handler = _OurHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(format),
            ],
        )
    )
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _OurHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


def _shared_processors(service: str) -> Sequence[Processor]:
    """What happens to a record whoever made it."""

    def stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        return event

    return (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        stamp,
        _add_trace,
    )


def _add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Name the span in which the record was made, so that log and trace find each other."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _renderers(log_format: LogFormat) -> Sequence[Processor]:
    if log_format == "console":
        return (structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),)
    return (structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str))
