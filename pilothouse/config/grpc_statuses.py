# SPDX-License-Identifier: Apache-2.0
"""The statuses of gRPC: https://grpc.io/docs/guides/status-codes/."""

from __future__ import annotations

from typing import Final

_NAMES: Final = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
NUMBERS: Final = {name: number for number, name in enumerate(_NAMES)}
"""By name, ``OK`` too."""
ERRORS: Final = _NAMES[1:]
