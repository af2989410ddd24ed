# SPDX-License-Identifier: Apache-2.0
"""Envoy's load reporting service: clients say who they are, are told what to report, and report.

Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/load_stats/v3/lrs.proto
"""

from __future__ import annotations

from typing import Any, Final

import grpc

from pilothouse.adapters.rpc import dialogues, serving
from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.load_stats.v3 import lrs_pb2
from pilothouse.envoy import wire
from pilothouse.xds import requests, types
from pilothouse_discovery import clients, loads

SERVICE: Final = lrs_pb2.DESCRIPTOR.services_by_name["LoadReportingService"].full_name
_SENDS_ALL: Final = "envoy.lrs.supports_send_all_clusters"


class LoadReports:
    """The service."""

    def __init__(self, tally: loads.Loads, connected: clients.Clients, *, interval: float) -> None:
        """Wire it; ``interval`` is in seconds."""
        self._loads = tally
        self._clients = connected
        self._interval = interval

    def add_to(self, server: serving.GrpcServer, calls: dialogues.Dialogues) -> None:
        """Serve it, for reflection too."""
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "StreamLoadStats": calls.handler(lambda: _Reporter(self), lrs_pb2.LoadStatsRequest)
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        server.server.add_generic_rpc_handlers((generic,))
        server.announce(SERVICE)

    def wanted(self, node: base_pb2.Node) -> lrs_pb2.LoadStatsResponse:
        """What a client is to report: all of its clusters."""
        made = lrs_pb2.LoadStatsResponse(
            load_reporting_interval=wire.duration(round(self._interval * 1000))
        )
        if _SENDS_ALL in node.client_features:
            made.send_all_clusters = True
            return made
        found: set[str] = set()
        for client in self._clients:
            target = client.session.stream.target
            if client.session.node.id == node.id and target is not None:
                found.update(target.resources(types.CLUSTER.type_url))
        made.clusters.extend(sorted(found))
        return made

    def take(self, reporter: object, report: lrs_pb2.LoadStatsRequest) -> None:
        """Count a report."""
        self._loads.add(reporter, report.cluster_stats)

    def gone(self, reporter: object) -> None:
        """Forget what a client has in progress."""
        self._loads.gone(reporter)


class _Reporter:
    """One client's stream."""

    def __init__(self, service: LoadReports) -> None:
        self._service = service
        self._introduced = False

    def receive(self, request: lrs_pb2.LoadStatsRequest) -> lrs_pb2.LoadStatsResponse | None:
        """The first message says who it is, those that follow how much it does."""
        if self._introduced:
            self._service.take(self, request)
            return None
        if not request.node.id:
            raise requests.ProtocolError(
                "INVALID_ARGUMENT", "the first request must carry a node with an id"
            )
        self._introduced = True
        self._service.take(self, request)
        return self._service.wanted(request.node)

    def closed(self) -> None:
        self._service.gone(self)
