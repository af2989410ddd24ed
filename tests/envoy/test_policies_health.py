# SPDX-License-Identifier: Apache-2.0
"""Active health checks of DestinationPolicies, as a real Envoy does them."""

import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from grpc_health.v1 import _async as health
from grpc_health.v1 import health_pb2

from pilothouse.model import services
from tests.support import backends, envoy_plans, grpc_health_servers, meshes, policy_worlds, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

OFTEN = "interval: 50ms, idleInterval: 50ms, unhealthyThreshold: 2, healthyThreshold: 2"
TURNS = "loadBalancer: {policy: ROUND_ROBIN}"
POLICIES = {
    "http": f"{TURNS}, healthCheck: {{http: {{path: '/healthz?deep=1'}}, {OFTEN}}}",
    "statuses": (
        "healthCheck: {http: {path: /status/404, host: me.example,"
        f" statuses: [{{first: 400, last: 404}}]}}, {OFTEN}}}"
    ),
    "tcp": f"{TURNS}, healthCheck: {{tcp: {{}}, {OFTEN}}}",
    "grpc": f"healthCheck: {{grpc: {{service: shop.Cart}}, {OFTEN}}}",
    "grpc-over-http1": f"healthCheck: {{grpc: {{}}, {OFTEN}}}",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Checked(policy_worlds.World):
    """A world whose endpoints are asked how they are."""

    backends: dict[str, backends.Backend]
    grpc: dict[str, health.HealthServicer]

    async def become_healthy(self, service: str, count: int) -> None:
        """Wait until so many endpoints of a service are well."""

        async def so_many() -> bool:
            return await self.counter(service, "membership_healthy") == count

        await waiting.eventually(so_many, what=f"{count} healthy endpoints of {service}")

    async def become_shared(self, service: str, **tally: int) -> None:
        """Wait until so many requests, one after another, reach these backends.

        The gauge is ahead of the workers, which choose endpoints.
        """

        async def so() -> bool:
            return await self.tally(service, sum(tally.values())) == tally

        await waiting.eventually(so, what=f"{service} shared as {tally}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[Checked]:
    async with contextlib.AsyncExitStack() as stack:
        served = {
            name: await stack.enter_async_context(backends.backend(name)) for name in ("a", "b")
        }
        servers = {
            name: await stack.enter_async_context(grpc_health_servers.server())
            for name in ("one", "two")
        }
        for servicer, _ in servers.values():
            await servicer.set("shop.Cart", health_pb2.HealthCheckResponse.SERVING)
        # Bound and not listening: whoever connects is refused, for as long as we hold it.
        refusing = stack.enter_context(socket.socket())
        refusing.bind((envoy_plans.LOOPBACK, 0))
        both = [one.port for one in served.values()]
        inside = await stack.enter_async_context(
            policy_worlds.running(
                {
                    "http": both,
                    "statuses": both,
                    "tcp": [*both, refusing.getsockname()[1]],
                    "grpc": [port for _, port in servers.values()],
                    "grpc-over-http1": both,
                },
                POLICIES,
                meshes.service(
                    "grpc", meshes.port(policy_worlds.PORT, protocol=services.AppProtocol.GRPC)
                ),
            )
        )
        asked = {name: servicer for name, (servicer, _) in servers.items()}
        yield Checked(inside.envoy, inside.client, served, asked)


async def test_an_endpoint_that_says_it_is_unwell_gets_no_requests(world: Checked):
    """Until it says often enough that it is well again; no request is lost to find out."""
    await world.become_healthy("http", 2)
    assert "GET /healthz?deep=1" in world.backends["b"].requests
    world.backends["b"].status = 503
    await world.become_shared("http", a=20)
    world.backends["b"].status = 200
    await world.become_shared("http", a=10, b=10)


async def test_which_answers_are_good_is_for_the_policy_to_say(world: Checked):
    """Here 404 is; and the request has the host that the policy names."""
    await world.become_healthy("statuses", 2)
    assert await world.counter("statuses", "health_check.failure") == 0


async def test_a_port_that_refuses_connections_gets_no_requests(world: Checked):
    """Two of three accept them, and take turns."""
    await world.become_shared("tcp", a=10, b=10)
    assert await world.counter("tcp", "upstream_cx_connect_fail") == 0


async def test_a_grpc_server_is_asked_for_the_service(world: Checked):
    """What it answers for that service counts, whatever it says of others."""
    await world.become_healthy("grpc", 2)
    await world.grpc["two"].set("shop.Cart", health_pb2.HealthCheckResponse.NOT_SERVING)
    await world.become_healthy("grpc", 1)
    await world.grpc["two"].set("shop.Cart", health_pb2.HealthCheckResponse.SERVING)
    await world.become_healthy("grpc", 2)


async def test_without_http2_a_grpc_check_opens_a_connection(world: Checked):
    """A policy that Envoy would refuse for one port must not cost the others."""
    await world.become_healthy("grpc-over-http1", 2)
