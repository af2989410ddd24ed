# SPDX-License-Identifier: Apache-2.0
"""How much is asked of each service, as clients report it.

A client counts by cluster and locality and reports at an interval; here it is summed up by service,
for as long as the process lives. What a client says of a service that nobody knows is summed up
under one name, so that no client can make the list grow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import prometheus_client

from pilothouse.api.envoy.config.endpoint.v3 import load_report_pb2
from pilothouse.envoy import bootstrap, names
from pilothouse.model import keys, services
from pilothouse.routing import plan

UNKNOWN: Final = "unknown"
_OWN: Final = frozenset({bootstrap.XDS_CLUSTER, bootstrap.PEERS_CLUSTER})
"""Clusters that Envoy has from its bootstrap."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Counts:
    """What has been reported so far."""

    issued: int = 0
    succeeded: int = 0
    failed: int = 0

    def add(self, reported: load_report_pb2.UpstreamLocalityStats) -> None:
        """Add one report."""
        self.issued += reported.total_issued_requests
        self.succeeded += reported.total_successful_requests
        self.failed += reported.total_error_requests


@dataclasses.dataclass(slots=True)
class Load:
    """The load of one service."""

    dropped: int = 0
    """Requests that clients did not send, for a limit or as they were told."""
    counts: Counts = dataclasses.field(default_factory=Counts)
    by_locality: dict[services.Locality, Counts] = dataclasses.field(default_factory=dict)
    """By where the endpoints are."""
    in_progress: dict[object, int] = dataclasses.field(default_factory=dict)
    """By client: the newest report says it, and it ends with the client."""


class Loads:
    """The load of every service."""

    def __init__(
        self,
        known: Callable[[keys.ServiceKey, bool], bool],
        registry: prometheus_client.CollectorRegistry,
    ) -> None:
        """Begin with none.

        Args:
            known: tells whether there is such a service, or external service if the second argument
                is True.
            registry: takes the metrics.
        """
        self._known = known
        self._loads: dict[str, Load] = {}
        self._requests = prometheus_client.Counter(
            "pilothouse_load_requests",
            "Requests to a service, as its clients report them",
            ["service", "outcome"],
            registry=registry,
        )
        self._in_progress = prometheus_client.Gauge(
            "pilothouse_load_requests_in_progress",
            "Requests to a service without an answer, by the newest reports",
            ["service"],
            registry=registry,
        )

    def add(self, client: object, reported: Iterable[load_report_pb2.ClusterStats]) -> None:
        """Take what a client reports; ``client`` tells it from others."""
        running: dict[str, int] = {}
        for cluster in reported:
            service = self._service(cluster.cluster_name)
            if service is None:
                continue
            load = self._loads.setdefault(service, Load())
            load.dropped += cluster.total_dropped_requests
            self._requests.labels(service, "dropped").inc(cluster.total_dropped_requests)
            running.setdefault(service, 0)
            for one in cluster.upstream_locality_stats:
                load.counts.add(one)
                place = services.Locality(
                    region=one.locality.region,
                    zone=one.locality.zone,
                    sub_zone=one.locality.sub_zone,
                )
                load.by_locality.setdefault(place, Counts()).add(one)
                self._requests.labels(service, "succeeded").inc(one.total_successful_requests)
                self._requests.labels(service, "failed").inc(one.total_error_requests)
                running[service] += one.total_requests_in_progress
        for service, number in running.items():
            self._loads[service].in_progress[client] = number
            self._tell(service)

    def gone(self, client: object) -> None:
        """A client reports no more."""
        for service, load in self._loads.items():
            if load.in_progress.pop(client, None) is not None:
                self._tell(service)

    def _tell(self, service: str) -> None:
        running = sum(self._loads[service].in_progress.values())
        self._in_progress.labels(service).set(running)

    def _service(self, cluster: str) -> str | None:
        """Whose cluster it is; None for what is no service's.

        That is the application beside the proxy, discovery, and hosts that nobody speaks for.
        """
        if cluster in _OWN:
            return None
        try:
            key = names.parse_cluster(cluster)
        except ValueError:
            return UNKNOWN
        if key.direction is plan.Direction.INBOUND or key.service is None:
            return None
        if not self._known(key.service, key.external):
            return UNKNOWN
        return f"{'external:' if key.external else ''}{key.service.name}.{key.service.namespace}"

    def page(self) -> list[dict[str, Any]]:
        """The loads of all services, as JSON, by name."""
        return [
            {
                "service": service,
                "inProgress": sum(load.in_progress.values()),
                "dropped": load.dropped,
                **_counts(load.counts),
                "localities": [
                    {
                        "region": place.region,
                        "zone": place.zone,
                        "subZone": place.sub_zone,
                        **_counts(counts),
                    }
                    for place, counts in sorted(load.by_locality.items(), key=_place)
                ],
            }
            for service, load in sorted(self._loads.items())
        ]


def _counts(counts: Counts) -> Mapping[str, int]:
    return {"issued": counts.issued, "succeeded": counts.succeeded, "failed": counts.failed}


def _place(item: tuple[services.Locality, Counts]) -> tuple[str, str, str]:
    place = item[0]
    return place.region, place.zone, place.sub_zone
