# SPDX-License-Identifier: Apache-2.0
"""StatusService and RegistryService: what discovery knows, for people and programs. Read only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import grpc

from pilothouse.api.registry.v1alpha1 import registry_service_pb2, registry_service_pb2_grpc
from pilothouse.api.status.v1alpha1 import status_service_pb2, status_service_pb2_grpc
from pilothouse.config import status
from pilothouse.model import keys
from pilothouse_discovery import clients, engine, progress, statuses, views


class StatusServicer(status_service_pb2_grpc.StatusServiceServicer):
    """Who is connected, and how far each object has travelled."""

    def __init__(
        self,
        *,
        connected: clients.Clients,
        tracker: progress.Progress,
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Wire the servicer.

        ``refresh`` brings up to date how each client's types stand, where other processes know it.
        """
        self._clients = connected
        self._refresh = refresh
        self._progress = tracker

    async def ListProxies(
        self,
        request: status_service_pb2.ListProxiesRequest,
        context: grpc.aio.ServicerContext[
            status_service_pb2.ListProxiesRequest, status_service_pb2.ListProxiesResponse
        ],
    ) -> status_service_pb2.ListProxiesResponse:
        """List the connected clients by node id."""
        del request, context
        if self._refresh is not None:
            await self._refresh()
        listed = sorted(self._clients, key=lambda client: (str(client.proxy.id), client.id))
        return status_service_pb2.ListProxiesResponse(proxies=[_proxy(client) for client in listed])

    async def ListObjectStatuses(
        self,
        request: status_service_pb2.ListObjectStatusesRequest,
        context: grpc.aio.ServicerContext[
            status_service_pb2.ListObjectStatusesRequest,
            status_service_pb2.ListObjectStatusesResponse,
        ],
    ) -> status_service_pb2.ListObjectStatusesResponse:
        """List the statuses asked for."""
        del context
        wanted = _select(self._progress.states, kind=request.kind, namespace=request.namespace)
        return status_service_pb2.ListObjectStatusesResponse(
            objects=[views.message(state) for state in wanted.values()]
        )

    async def WatchObjectStatuses(
        self,
        request: status_service_pb2.WatchObjectStatusesRequest,
        context: grpc.aio.ServicerContext[
            status_service_pb2.WatchObjectStatusesRequest,
            status_service_pb2.WatchObjectStatusesResponse,
        ],
    ) -> AsyncIterator[status_service_pb2.WatchObjectStatusesResponse]:
        """First everything, then what changes.

        States that nobody waited for are skipped, never queued.
        """
        del context
        news = asyncio.Event()
        news.set()
        end = self._progress.subscribe(news.set)
        seen: progress.States = {}
        first = True
        try:
            while True:
                await news.wait()
                news.clear()
                wanted = _select(
                    self._progress.states, kind=request.kind, namespace=request.namespace
                )
                changed, gone = statuses.difference(seen, wanted)
                if first or changed or gone:
                    yield status_service_pb2.WatchObjectStatusesResponse(
                        objects=[views.message(state) for state in changed],
                        removed=[status.reference(key) for key in gone],
                    )
                seen, first = wanted, False
        finally:
            end()


def _select(
    states: progress.States, *, kind: str, namespace: str
) -> Mapping[keys.ObjectKey, statuses.ObjectState]:
    return {
        key: state
        for key, state in states.items()
        if kind in ("", key.kind) and namespace in ("", key.namespace)
    }


def _proxy(client: clients.Client) -> status_service_pb2.ProxyStatus:
    return status_service_pb2.ProxyStatus(
        node_id=str(client.proxy.id),
        role=str(client.proxy.id.role),
        in_sync=client.in_sync and not client.waiting_for,
        types=[
            status_service_pb2.TypeStatus(
                type_url=one.type_url,
                resources=one.resources,
                sent_version=one.sent_version,
                acked_version=one.acked_version,
                error=client.refusals.get(one.type_url, ""),
            )
            for one in client.session.stream.types()
        ],
    )


class RegistryServicer(registry_service_pb2_grpc.RegistryServiceServicer):
    """The services and endpoints of all registries together."""

    def __init__(self, *, builder: engine.Engine) -> None:
        """Wire the servicer."""
        self._engine = builder

    async def ListServices(
        self,
        request: registry_service_pb2.ListServicesRequest,
        context: grpc.aio.ServicerContext[
            registry_service_pb2.ListServicesRequest, registry_service_pb2.ListServicesResponse
        ],
    ) -> registry_service_pb2.ListServicesResponse:
        """List services by namespace and name."""
        del context
        if self._engine.world is None:
            return registry_service_pb2.ListServicesResponse()
        state = self._engine.world.state
        return registry_service_pb2.ListServicesResponse(
            services=[
                registry_service_pb2.Service(
                    name=key.name,
                    namespace=key.namespace,
                    cluster_ips=service.cluster_ips,
                    ports=[
                        registry_service_pb2.ServicePort(
                            name=port.name, number=port.number, protocol=str(port.protocol)
                        )
                        for port in service.ports
                    ],
                    endpoints=[
                        registry_service_pb2.Endpoint(
                            address=one.address,
                            port=one.port,
                            port_name=one.port_name,
                            labels=dict(one.labels),
                            ready=one.ready,
                        )
                        for one in state.endpoints.get(key, ())
                    ],
                )
                for key, service in state.services.items()
                if request.namespace in ("", key.namespace)
            ]
        )
