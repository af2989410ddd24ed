# SPDX-License-Identifier: Apache-2.0
"""Services of type ExternalName as destinations of rules, at a sidecar and at a gateway."""

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from pilothouse.model import services
from tests.support import backends, gateway_worlds, http_clients, meshes, tcp_backends

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]
HTTP_PORT, LINES = 18080, 19000
NAMES = ("web", "api", "plain")


class Place(NamedTuple):
    """A gateway, and the applications that aliases stand for."""

    world: gateway_worlds.World
    ports: dict[str, int]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    """One Envoy, three applications of HTTP and one of TCP."""
    async with contextlib.AsyncExitStack() as stack:
        ports = {
            name: (await stack.enter_async_context(backends.backend(name))).port for name in NAMES
        }
        line = await stack.enter_async_context(tcp_backends.tcp_backend("line"))
        ports["line"] = line.port
        yield Place(await stack.enter_async_context(gateway_worlds.world()), ports)


def alias(name: str, of: str, *ports: services.Port) -> services.Service:
    return services.Service(key=meshes.service_key(name), ports=ports, external_name=of)


def rule(name: str, to: str) -> gateway_worlds.Objects:
    return gateway_worlds.route(
        name,
        f"http: [{{destinations: [{{service: {to}, namespace: default}}]}}]",
        hosts=f"[{name}.example.com]",
    )


async def give(place: Place) -> None:
    """Aliases of a service, of an external service, and of a host outside; a rule for each."""
    ports, world = place.ports, place.world
    whole = meshes.mesh(
        meshes.service("web", 80),
        alias("old", "WEB.default.svc."),
        alias("far", "api.example.com"),
        alias("plain", "localhost", meshes.port(ports["plain"])),
        alias("line", "localhost", meshes.port(ports["line"], "tcp", services.AppProtocol.TCP)),
        alias("round", "round.default", meshes.port(80)),
        meshes.external(
            "api",
            f"{{hosts: [api.example.com], ports: [{{number: 80, targetPort: {ports['api']}}}],"
            " resolution: STATIC, endpoints: [{address: 127.0.0.1}]}",
        ),
        gateway_worlds.gateway(
            f"name: http, port: {HTTP_PORT}, protocol: HTTP",
            f"name: lines, port: {LINES}, protocol: TCP",
        ),
        *(rule(name, name) for name in ("old", "far", "plain", "round")),
        gateway_worlds.route("lines", "tcp: [{destinations: [{service: line}]}]"),
        endpoints={"web": [meshes.endpoint("127.0.0.1", ports["web"], "http-80")]},
    )
    world.mesh = whole
    edge = meshes.edge(address=world.address, bind_address=world.address)
    await world.wired.give(*meshes.planned(whole, edge).layers)


async def test_a_destination_may_be_an_alias(place: Place) -> None:
    """It is what it stands for; a host outside is asked from DNS, and gets the `Host` as it is."""
    await give(place)
    for name, backend in (("old", "web"), ("far", "api"), ("plain", "plain")):
        answer = await http_clients.http1(place.world.address, HTTP_PORT, f"{name}.example.com")
        assert (answer.status, answer.seen["backend"]) == (200, backend)
        assert answer.seen["headers"]["host"] == f"{name}.example.com"
        resolved = place.world.condition("RouteRule", name, "ResolvedRefs")
        assert resolved is not None
        assert resolved.status


async def test_connections_to_an_alias(place: Place) -> None:
    """At its port."""
    await give(place)
    async with tcp_backends.stream(place.world.address, LINES) as stream:
        assert stream.name == "line"


async def test_an_alias_of_itself_leads_nowhere(place: Place) -> None:
    """And the rule is told."""
    await give(place)
    answer = await http_clients.http1(place.world.address, HTTP_PORT, "round.example.com")
    assert answer.status == 500
    resolved = place.world.condition("RouteRule", "round", "ResolvedRefs")
    assert resolved is not None
    assert (resolved.status, resolved.reason) == (False, "UnsupportedValue")
    assert "stands for nothing" in resolved.message
