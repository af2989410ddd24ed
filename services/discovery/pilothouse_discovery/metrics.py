# SPDX-License-Identifier: Apache-2.0
"""What discovery counts.

Names follow istiod's where the meaning is the same, so that existing dashboards read them.
"""

from __future__ import annotations

import prometheus_client

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The metrics of one server.

    In a registry of its own, so that a process may hold several servers.
    """

    def __init__(self) -> None:
        """Make the metrics, all at zero."""
        self.registry = prometheus_client.CollectorRegistry()
        self.clients = prometheus_client.Gauge(
            "pilot_xds", "Connected xDS clients", ["role"], registry=self.registry
        )
        self.pushes = prometheus_client.Counter(
            "pilot_xds_pushes", "Responses written", ["type"], registry=self.registry
        )
        self.rejects = prometheus_client.Counter(
            "pilot_total_xds_rejects",
            "Responses that a client refused",
            ["type"],
            registry=self.registry,
        )
        self.builds = prometheus_client.Histogram(
            "pilothouse_build_seconds",
            "Time to compute the configuration after a change",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.convergence = prometheus_client.Histogram(
            "pilot_proxy_convergence_time",
            "Time from a push to the last acknowledgement of all proxies concerned",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.services = prometheus_client.Gauge(
            "pilot_services", "Services known", registry=self.registry
        )
        self.problems = prometheus_client.Gauge(
            "pilothouse_source_problems",
            "Documents that the sources could not read as objects",
            registry=self.registry,
        )
        self.longest_hold = prometheus_client.Gauge(
            "pilothouse_loop_longest_hold_seconds",
            "Longest time that the streams' loop was held since the start, while there was work",
            registry=self.registry,
        )

        self._pushes_of: dict[str, prometheus_client.Counter] = {}

    def pushed(self, type_url: str) -> None:
        """Count a response; a counter is looked up by its labels once, as that costs 2 us."""
        counter = self._pushes_of.get(type_url)
        if counter is None:
            counter = self._pushes_of[type_url] = self.pushes.labels(type=type_url)
        counter.inc()

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)
