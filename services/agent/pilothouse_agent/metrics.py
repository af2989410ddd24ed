# SPDX-License-Identifier: Apache-2.0
"""The agent's own metrics, read from the parts at the moment somebody scrapes."""

from collections.abc import Iterable
from dataclasses import dataclass

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pilothouse_agent import observation, proxy_runner, readiness, relay

_PREFIX = "pilothouse_agent"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts(Collector):
    """What there is to tell."""

    observer: observation.Observer
    relay: relay.Relay
    readiness: readiness.Readiness
    runner: proxy_runner.ProxyRunner
    build: dict[str, str]

    def collect(self) -> Iterable[Metric]:
        """The values of this moment."""
        build = GaugeMetricFamily(f"{_PREFIX}_build_info", "What runs.", labels=list(self.build))
        build.add_metric(list(self.build.values()), 1)
        yield build
        yield GaugeMetricFamily(
            f"{_PREFIX}_ready", "1 when the proxy may be given traffic.", int(self.readiness.ready)
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}_discovery_connected",
            "1 when there is a connection to discovery.",
            int(self.relay.connected),
        )
        yield CounterMetricFamily(
            f"{_PREFIX}_xds_streams", "Streams that Envoy opened.", self.observer.streams
        )
        yield CounterMetricFamily(
            f"{_PREFIX}_proxy_starts", "Starts of the proxy.", self.runner.starts
        )
        responses = CounterMetricFamily(
            f"{_PREFIX}_xds_responses",
            "Responses of discovery, by what Envoy made of them.",
            labels=["type", "result"],
        )
        for name, status in sorted(self.observer.types.items()):
            responses.add_metric([name, "accepted"], status.accepted)
            responses.add_metric([name, "rejected"], status.rejected)
        yield responses


def registry(parts: Parts) -> prometheus_client.CollectorRegistry:
    """A registry of this agent: its own metrics, and its process's CPU and memory."""
    own = prometheus_client.CollectorRegistry(auto_describe=False)
    own.register(parts)
    prometheus_client.ProcessCollector(registry=own)
    return own
