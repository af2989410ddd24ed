# SPDX-License-Identifier: Apache-2.0
"""What readers of several kinds of objects share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from google.protobuf import duration_pb2

from pilothouse.config import objects
from pilothouse.routing import plan


def origins(meta: objects.Meta) -> plan.Origins:
    """The object and what it was derived from, sorted."""
    return tuple(sorted({meta.key, *meta.origins}))


def milliseconds(duration: duration_pb2.Duration) -> int:
    """Whole milliseconds, rounded up: a tiny limit must not become 0, which means none."""
    return duration.seconds * 1000 + -(-duration.nanos // 1_000_000)


def hosts(written: Iterable[str]) -> tuple[str, ...]:
    """In the order written (the first one may be asked from DNS), each once, as DNS compares."""
    return tuple(dict.fromkeys(host.lower().rstrip(".") for host in written))


def certificate_hashes(written: Iterable[str]) -> tuple[str, ...]:
    """SHA-256 in hex, each once, sorted: lower case, without colons."""
    return tuple(sorted({one.lower().replace(":", "") for one in written}))


class _Share(Protocol):
    percent: float

    def HasField(self, name: Literal["percent"]) -> bool:  # noqa: N802  protobuf's name
        """Whether it is set."""


def millionths(share: _Share) -> int:
    """A share of requests, of a million; all of them when it is unset."""
    return round(share.percent * 10_000) if share.HasField("percent") else 1_000_000
