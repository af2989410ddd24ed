# SPDX-License-Identifier: Apache-2.0
"""A real Envoy that asks for virtual hosts when requests come for them, on their own service (P57).

Nothing of ours makes virtual hosts yet; this is the protocol alone.
"""

from __future__ import annotations

import aiohttp
import pytest
from google.protobuf import any_pb2

from pilothouse.api.envoy.config.core.v3 import config_source_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.filters.http.router.v3 import router_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.envoy import bootstrap, wire
from pilothouse.model import proxy
from pilothouse.xds import resources, types
from tests.support import fleet, waiting, xds_server

pytestmark = pytest.mark.envoy
PORT = 18083
ON_DEMAND = any_pb2.Any(
    type_url="type.googleapis.com/envoy.extensions.filters.http.on_demand.v3.OnDemand"
)


def _listener(address: str) -> resources.Resource:
    manager = http_connection_manager_pb2.HttpConnectionManager(stat_prefix="http")
    manager.rds.config_source.CopyFrom(wire.ADS)
    manager.rds.route_config_name = "r"
    manager.http_filters.add(name="envoy.filters.http.on_demand", typed_config=ON_DEMAND)
    manager.http_filters.add(
        name="envoy.filters.http.router", typed_config=wire.packed(router_pb2.Router())
    )
    made = listener_pb2.Listener(name="l", address=wire.address(address, PORT))
    made.filter_chains.add().filters.add(
        name="envoy.filters.network.http_connection_manager", typed_config=wire.packed(manager)
    )
    return resources.Resource.of(types.LISTENER.type_url, "l", wire.encode(made))


def _routes(content: str) -> resources.Resource:
    """A route configuration without hosts of its own."""
    made = route_pb2.RouteConfiguration(name="r")
    made.response_headers_to_add.add().header.key = f"x-{content}"
    made.response_headers_to_add[0].header.value = "yes"
    source = made.vhds.config_source
    source.resource_api_version = config_source_pb2.V3
    # Envoy first asks for nothing, and its listener waits for an answer to that.
    source.initial_fetch_timeout.FromMilliseconds(200)
    source.api_config_source.api_type = config_source_pb2.ApiConfigSource.DELTA_GRPC
    source.api_config_source.transport_api_version = config_source_pb2.V3
    grpc = source.api_config_source.grpc_services.add().envoy_grpc
    grpc.cluster_name = bootstrap.XDS_CLUSTER
    return resources.Resource.of(types.ROUTE.type_url, "r", wire.encode(made))


def _host(name: str) -> resources.Resource:
    made = route_components_pb2.VirtualHost(name=name, domains=[name])
    route = made.routes.add(match=route_components_pb2.RouteMatch(prefix="/"))
    route.direct_response.status = 200
    return resources.Resource.of(types.VIRTUAL_HOST.type_url, f"r/{name}", wire.encode(made))


async def test_p57_envoy_gets_hosts_when_it_needs_them() -> None:
    """One that exists answers; one that does not gives 404 at once; both survive new routes."""
    async with fleet.fleet() as made:
        address = f"127.{made.block.number}.3.1"
        host = xds_server.Host()
        listener = _listener(address)
        host.set(listener, _routes("old"), _host("a"))
        async with (
            xds_server.serving_xds(host, made.grpc),
            made.envoy("hosts-delta", proxy.Role.GATEWAY, address=address, port=PORT),
            # Envoy's own time to wait for an answer is 15 s.
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as client,
        ):

            async def ask(name: str) -> tuple[int, set[str]]:
                url = f"http://{address}:{PORT}/"
                async with client.get(url, headers={"host": name}) as answer:
                    return answer.status, {key for key in answer.headers if key.startswith("x-")}

            async def is_new() -> bool:
                return (await ask("a")) == (200, {"x-new"})

            assert await ask("a") == (200, {"x-old"})
            assert (await ask("nobody"))[0] == 404
            host.set(listener, _routes("new"), _host("a"))
            await waiting.eventually(is_new)
            assert (await ask("nobody"))[0] == 404
            host.set(listener, _routes("new"), _host("a"), _host("nobody"))
            await waiting.eventually(lambda: host.in_sync)
            assert await ask("nobody") == (200, {"x-new"})
        assert host.refused == []
