# SPDX-License-Identifier: Apache-2.0
"""How many streams may begin, how long connections live and what they bear, by the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import prometheus_client

from pilothouse.adapters.rpc import admission, serving
from pilothouse_discovery import settings


class Limits(NamedTuple):
    """What each process that serves streams keeps to; plain values. Times are in seconds."""

    new_streams_per_second: float
    """0 for any number."""
    max_age: float
    """0 for any."""
    age_grace: float
    keepalive_time: float
    keepalive_timeout: float
    min_ping_interval: float
    max_request_bytes: int

    @classmethod
    def read(cls, numbers: Sequence[float]) -> Self:
        """Take what another process was told, field by field."""
        *times, size = numbers
        return cls._make((*times, int(size)))

    def options(self, *, reuse_port: bool = False) -> serving.GrpcOptions:
        """For a gRPC server."""
        return serving.GrpcOptions(
            max_receive_bytes=self.max_request_bytes,
            keepalive_time=self.keepalive_time,
            keepalive_timeout=self.keepalive_timeout,
            min_ping_interval=self.min_ping_interval,
            max_connection_age=self.max_age or None,
            max_connection_age_grace=self.age_grace,
            reuse_port=reuse_port,
        )

    def admission(
        self, registry: prometheus_client.CollectorRegistry | None = None
    ) -> admission.Admission | None:
        """For an xDS server, with its metrics in this registry; None where any may begin."""
        if not self.new_streams_per_second:
            return None
        made = admission.Admission(self.new_streams_per_second)
        if registry is not None:
            show(registry, waiting=lambda: made.waiting, refused=lambda: made.refused)
        return made


def show(
    registry: prometheus_client.CollectorRegistry,
    *,
    waiting: Callable[[], int],
    refused: Callable[[], int],
) -> None:
    """Have metrics of the streams that may not begin."""
    prometheus_client.Gauge(
        "pilothouse_xds_streams_waiting",
        "Streams that wait for their turn to begin",
        registry=registry,
    ).set_function(waiting)
    prometheus_client.Gauge(
        "pilothouse_xds_streams_refused",
        "Streams that were refused since the start, as too many began at once",
        registry=registry,
    ).set_function(refused)


def of(chosen: settings.Settings) -> Limits:
    """What the settings say."""
    return Limits(
        new_streams_per_second=chosen.max_new_streams_per_second,
        max_age=chosen.max_connection_age,
        age_grace=chosen.max_connection_age_grace,
        keepalive_time=chosen.keepalive_time,
        keepalive_timeout=chosen.keepalive_timeout,
        min_ping_interval=chosen.min_ping_interval,
        max_request_bytes=chosen.max_request_mebibytes * 1024 * 1024,
    )
