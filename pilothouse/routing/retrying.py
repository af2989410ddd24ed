# SPDX-License-Identifier: Apache-2.0
"""When a failed request is tried again, in a plan's words."""

from __future__ import annotations

import dataclasses

from pilothouse.routing import header_tests


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failed request is tried again."""

    attempts: int = 2
    per_try_timeout_ms: int | None = None
    retry_on: tuple[str, ...] = ("connect-failure", "refused-stream")
    status_codes: tuple[int, ...] = ()
    """Sorted; for the condition ``retriable-status-codes``."""
    response_headers: tuple[header_tests.HeaderMatch, ...] = ()
    """Sorted, any of them; for the condition ``retriable-headers``."""
    back_off_ms: int | None = None
    """The first step; None for the proxy's own way."""
    max_back_off_ms: int | None = None
    """None means ten times the first step."""
    per_try_idle_timeout_ms: int | None = None
    previous_hosts: bool = False
    """Endpoints that have been tried may be tried again."""
    other_priorities: bool = False


DEFAULT = Retry()
"""Where the request provably was not processed."""
