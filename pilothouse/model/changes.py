# SPDX-License-Identifier: Apache-2.0
"""A change: the news that something is to be looked at again, and the trace it belongs to.

A change carries no state: whoever hears of one reads the store or registry it came from.
"""

from __future__ import annotations

import dataclasses

from pilothouse.model import keys


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something changed at a source."""

    source: str
    """Name of the store, registry or config source that saw it."""
    keys: tuple[keys.ObjectKey, ...] = ()
    """The objects concerned, sorted; for spans and logs only, never to limit what is read."""
    traceparent: str = ""
    """W3C trace context of the span that saw the change; empty when tracing is off."""
