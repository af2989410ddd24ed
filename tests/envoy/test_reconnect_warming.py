# SPDX-License-Identifier: Apache-2.0
"""What a real Envoy asks for when it comes back, and what it need not be sent."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator

import aiohttp
import pytest

from pilothouse.adapters.rpc import streams
from pilothouse.envoy import clusters, endpoints, listeners, routes
from pilothouse.model import keys, proxy
from pilothouse.routing import plan
from pilothouse.xds import delta, resources, types
from pilothouse.xds import streams as xds_streams
from tests.support import envoy_plans, fleet, waiting, xds_server

pytestmark = pytest.mark.envoy
CDS, EDS = types.CLUSTER.type_url, types.ENDPOINT.type_url
LDS, RDS = types.LISTENER.type_url, types.ROUTE.type_url
NAMES = ("a", "b")
PORTS = (18081, 18082)


def _key(name: str) -> plan.ClusterKey:
    service = keys.ServiceKey(namespace="default", name=name)
    return plan.ClusterKey(direction=plan.Direction.OUTBOUND, port=80, service=service)


def _world(*, changed: str = "") -> list[resources.Resource]:
    """Two clusters with endpoints; one of them may be another than before."""
    return [
        *(clusters.resource(plan.Cluster(key=_key(one), http2=one == changed)) for one in NAMES),
        *(endpoints.resource(plan.ClusterEndpoints(key=_key(one))) for one in NAMES),
    ]


class Host(xds_server.Host):
    """A host that remembers in which order types were asked for, and what was sent."""

    def __init__(self, *parts: resources.Resource) -> None:
        super().__init__(resources.Snapshot.of((resources.Layer.of(parts),)))
        self.asked: list[str] = []
        self.written: dict[str, int] = {}

    def events(self, session: streams.Session, events: tuple[xds_streams.Event, ...]) -> None:
        super().events(session, events)
        self.asked += [one.type_url for one in events if isinstance(one, xds_streams.Subscribed)]

    def sent(self, session: streams.Session, response: xds_streams.Response) -> None:
        super().sent(session, response)
        url = response.type_url
        self.written[url] = self.written.get(url, 0) + response.resources


@contextlib.asynccontextmanager
async def _came_back(
    monkeypatch: pytest.MonkeyPatch, *, warming: bool
) -> AsyncIterator[tuple[Host, fleet.Proxy]]:
    """A server that an Envoy has come back to, from one that stopped while a cluster was warming.

    Both servers have the same resources.
    """
    async with fleet.fleet() as made:
        before, after = Host(*_world()), _world(changed="a" if warming else "")
        async with contextlib.AsyncExitStack() as stack:
            async with xds_server.serving_xds(before, made.grpc):
                envoy = await stack.enter_async_context(
                    made.envoy("sidecar-delta", proxy.Role.SIDECAR)
                )
                await waiting.eventually(lambda: before.in_sync)
                if warming:
                    # So that the changed cluster waits for its endpoints, as if they were lost.
                    monkeypatch.setattr(delta.DeltaStream, "_warm", lambda *_: None)
                    before.set(*after)
                    await waiting.eventually(
                        functools.partial(envoy.stat, "cluster_manager.warming_clusters")
                    )
            monkeypatch.undo()
            server = Host(*after)
            async with xds_server.serving_xds(server, made.grpc):
                # Its own timer would end the warming after 15 s.
                await waiting.eventually(lambda: server.in_sync and CDS in server.asked, 12)
                yield server, envoy


async def test_envoy_asks_for_clusters_first_when_none_is_warming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So nothing waits for endpoints, and none are sent again."""
    async with _came_back(monkeypatch, warming=False) as (server, envoy):
        await waiting.eventually(lambda: EDS in server.asked)
        assert server.asked.index(CDS) < server.asked.index(EDS)
        await waiting.eventually(lambda: server.in_sync)
        assert server.written.get(EDS, 0) == 0
        # It takes what comes later, as ever.
        server.set(*_world(changed="b"))
        await waiting.eventually(lambda: server.written.get(EDS) == 1 and server.in_sync)
        assert await envoy.stat("cluster_manager.warming_clusters") == 0


async def test_envoy_asks_for_endpoints_first_while_a_cluster_is_warming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says that it holds them, and is warm at once when they are sent again all the same."""
    async with _came_back(monkeypatch, warming=True) as (server, envoy):
        assert server.asked.index(EDS) < server.asked.index(CDS)
        assert server.written[EDS] == len(NAMES)
        assert server.written.get(CDS, 0) == 0
        assert await envoy.stat("cluster_manager.warming_clusters") == 0


def _listened(address: str, port: int) -> list[resources.Resource]:
    """A listener on this port, and its routes."""
    answer = plan.DirectResponse(status=200, body="here")
    route = plan.Route(name="all", match=plan.RouteMatch(), action=answer)
    host = plan.VirtualHost(name="all", domains=("*",), routes=(route,))
    served = listeners.Served(envoy_plans.listener("web", address=address, port=port))
    return [served.resource(), routes.resource("web", [routes.chunk(host)])]


async def test_a_changed_listener_takes_the_routes_that_envoy_holds() -> None:
    """They are not sent again to an Envoy that comes back, and the new listener has them."""
    async with fleet.fleet() as made, contextlib.AsyncExitStack() as stack:
        before = Host(*_world())
        async with xds_server.serving_xds(before, made.grpc):
            envoy = await stack.enter_async_context(made.envoy("sidecar-delta", proxy.Role.SIDECAR))
            before.set(*_world(), *_listened(envoy.address, PORTS[0]))
            await waiting.eventually(lambda: before.in_sync and before.written.get(RDS))
        server = Host(*_world(), *_listened(envoy.address, PORTS[1]))
        async with xds_server.serving_xds(server, made.grpc), aiohttp.ClientSession() as client:

            async def served() -> bool:
                async with client.get(f"http://{envoy.address}:{PORTS[1]}/") as answer:
                    return await answer.text() == "here"

            # A timer would end the warming after 15 s.
            await waiting.eventually(served, 12)
            await waiting.eventually(lambda: server.in_sync and RDS in server.asked)
            assert server.written == {LDS: 1}
