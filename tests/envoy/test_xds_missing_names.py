# SPDX-License-Identifier: Apache-2.0
"""What a real Envoy makes of names that are told to be missing, in both variants (P38)."""

from __future__ import annotations

import functools

import aiohttp
import pytest

from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.envoy import clusters, endpoints, listeners, routes
from pilothouse.model import keys, proxy, secrets
from pilothouse.routing import plan
from pilothouse.xds import resources, types
from tests.support import envoy_plans, fleet, waiting, xds_server

pytestmark = pytest.mark.envoy
EXISTING, WANTED = 18081, 18082
SECRET = secrets.SecretKey(namespace="default", name="absent")


def _cluster(name: str) -> resources.Resource:
    key = plan.ClusterKey(
        direction=plan.Direction.OUTBOUND,
        port=80,
        service=keys.ServiceKey(namespace="default", name=name),
    )
    return clusters.resource(plan.Cluster(key=key))


def _assignment(name: str) -> resources.Resource:
    key = plan.ClusterKey(
        direction=plan.Direction.OUTBOUND,
        port=80,
        service=keys.ServiceKey(namespace="default", name=name),
    )
    return endpoints.resource(plan.ClusterEndpoints(key=key))


def _listener(
    name: str, address: str, port: int, *certificates: secrets.SecretKey
) -> resources.Resource:
    made = listeners.Served(
        envoy_plans.listener(name, address=address, port=port, certificates=certificates)
    ).resource()
    assert listener_pb2.Listener.FromString(made.body).name == name
    return made


def _routes(name: str) -> resources.Resource:
    route = plan.Route(
        name="all", match=plan.RouteMatch(), action=plan.DirectResponse(status=200, body=name)
    )
    host = plan.VirtualHost(name="all", domains=("*",), routes=(route,))
    return routes.resource(name, [routes.chunk(host)])


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_p38_envoy_bears_errors_and_takes_what_comes_later(variant: str) -> None:
    """Endpoints, routes and a certificate are missing: nothing is refused, the stream goes on, the
    rest works, and each of them is taken once it exists."""
    host = xds_server.Host()
    async with fleet.fleet() as made, xds_server.serving_xds(host, made.grpc):
        async with made.envoy(f"sidecar-{variant}", proxy.Role.SIDECAR) as envoy:
            there = [
                _cluster("there"),
                _assignment("there"),
                _listener("there", envoy.address, EXISTING),
                _routes("there"),
            ]
            host.set(*there)
            await waiting.eventually(lambda: host.in_sync)
            wanted = [
                _listener("wanted", envoy.address, WANTED),
                _listener("secret", envoy.address, 18083, SECRET),
                _routes("secret"),
            ]
            host.set(*there, *wanted)
            for kind in (types.ROUTE, types.SECRET):
                await waiting.eventually(
                    functools.partial(host.missing.__getitem__, kind.type_url),
                    what=f"{kind.short} is told",
                )
            # Later, since in state of the world Envoy keeps everything else back meanwhile.
            wanted.append(_cluster("wanted"))
            host.set(*there, *wanted)
            await waiting.eventually(lambda: host.missing[types.ENDPOINT.type_url])
            async with aiohttp.ClientSession() as client:
                url = f"http://{envoy.address}"
                async with client.get(f"{url}:{EXISTING}/") as answer:
                    assert (answer.status, await answer.text()) == (200, "there")
                host.set(*there, *wanted, _assignment("wanted"), _routes("wanted"))

                async def served() -> bool:
                    async with client.get(f"{url}:{WANTED}/") as answer:
                        return await answer.text() == "wanted"

                await waiting.eventually(served, what="the new routes are used")
            await waiting.eventually(lambda: host.in_sync)
            assert host.refused == []
            assert len(host.sessions) == 1
            assert await envoy.stat("cluster_manager.cds.update_rejected") == 0
            assert await envoy.stat("listener_manager.lds.update_rejected") == 0
            assert await envoy.stat("control_plane.connected_state") == 1
            assert await envoy.stat("cluster_manager.warming_clusters") == 0
        assert host.missing[types.ENDPOINT.type_url] == 1
        assert host.missing[types.ROUTE.type_url] == 1
        assert host.missing[types.SECRET.type_url] == 1
