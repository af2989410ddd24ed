# SPDX-License-Identifier: Apache-2.0
"""Logs and spans of every service: how they are set up, and how a trace crosses a hop.

Rules: nothing here is global but the logging of the process, which Python makes global anyway. The
tracer is a value, made in a composition root and passed down, so that tests may hold several.
"""

from pilothouse.adapters.telemetry.interceptors import client_interceptors, server_interceptors
from pilothouse.adapters.telemetry.logs import configure_logging
from pilothouse.adapters.telemetry.propagation import current_traceparent, extract, inject
from pilothouse.adapters.telemetry.tracing import Telemetry, tracer_provider

__all__ = [
    "Telemetry",
    "client_interceptors",
    "configure_logging",
    "current_traceparent",
    "extract",
    "inject",
    "server_interceptors",
    "tracer_provider",
]
