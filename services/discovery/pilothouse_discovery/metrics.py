# SPDX-License-Identifier: Apache-2.0
"""What discovery counts.

Names follow istiod's where the meaning is the same, so that existing dashboards read them. Times
have buckets from a millisecond on, and a change has converged when the last proxy acknowledged it,
not when it was sent.
"""

from __future__ import annotations

import prometheus_client

from pilothouse import buildinfo
from pilothouse.xds import types

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BYTES = (1_000, 10_000, 100_000, 1_000_000, 4_000_000, 10_000_000, 40_000_000)


class Metrics:
    """The metrics of one server.

    In a registry of its own, so that a process may hold several servers.
    """

    def __init__(self) -> None:
        """Make the metrics, all at zero."""
        self.registry = prometheus_client.CollectorRegistry()
        self.info = prometheus_client.Gauge(
            "pilot_info", "The version, as a label", ["version"], registry=self.registry
        )
        self.info.labels(version=buildinfo.version()).set(1)
        self.clients = self._gauge("pilot_xds", "Connected xDS clients", "role")
        self.rejects = self._counter(
            "pilot_total_xds_rejects", "Responses that a client refused", "type"
        )
        self.stale = self._counter(
            "pilot_xds_expired_nonce", "Answers to a response that was not the newest", "type"
        )
        self.write_timeouts = self._counter(
            "pilot_xds_write_timeout", "Streams given up because the client did not read"
        )
        self.internal_errors = self._counter(
            "pilot_total_xds_internal_errors", "Streams ended by a mistake of the server"
        )
        self.triggers = self._counter(
            "pilot_push_triggers", "Changes that led to a build, by where they came from", "type"
        )
        self.builds = self._times(
            "pilothouse_build_seconds", "Time to compute the configuration after a change"
        )
        self.convergence = self._times(
            "pilot_proxy_convergence_time",
            "Time from a push to the last acknowledgement of all proxies concerned",
        )
        self.services = self._gauge("pilot_services", "Services known")
        self.route_rules = self._gauge("pilot_virt_services", "RouteRules in force")
        self.problems = self._gauge(
            "pilothouse_source_problems", "Documents that the sources could not read as objects"
        )
        self.rejected_configs = self._gauge(
            "pilot_total_rejected_configs", "Objects whose newest generation is not in force"
        )
        self.faults = self._gauge(
            "pilothouse_gate_faults",
            "Mistakes in what would be published for which no object can be held; left out",
        )
        self.large = self._gauge(
            "pilothouse_large_resources",
            "Resources so large that proxies stand still while they read them",
        )
        self.longest_hold = self._gauge(
            "pilothouse_loop_longest_hold_seconds",
            "Longest time that the streams' loop was held since the start, while there was work",
        )
        self._pushes = self._counter("pilot_xds_pushes", "Responses written", "type")
        self._sizes = prometheus_client.Histogram(
            "pilot_xds_config_size_bytes",
            "Size of responses",
            ["type"],
            buckets=_BYTES,
            registry=self.registry,
        )
        self._longest = 0.0
        self._of_type: dict[str, tuple[prometheus_client.Counter, prometheus_client.Histogram]] = {}

    def pushed(self, type_url: str, size: int) -> None:
        """Count a response of so many bytes; what a type has is looked up once, for 2 us each."""
        found = self._of_type.get(type_url)
        if found is None:
            short = types.of(type_url).short
            found = (self._pushes.labels(type=type_url), self._sizes.labels(type=short))
            self._of_type[type_url] = found
        counter, sizes = found
        counter.inc()
        sizes.observe(size)

    def held(self, seconds: float) -> None:
        """A loop that serves streams was held for so long."""
        if seconds > self._longest:
            self._longest = seconds
            self.longest_hold.set(seconds)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(name, about, labels, registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, about, labels, registry=self.registry)

    def _times(self, name: str, about: str) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(name, about, buckets=_SECONDS, registry=self.registry)
