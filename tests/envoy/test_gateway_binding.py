# SPDX-License-Identifier: Apache-2.0
"""The addresses that a gateway's ports are opened at, through a real Envoy."""

import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import (
    certificates,
    fleet,
    gateway_worlds,
    http_clients,
    tcp_backends,
    waiting,
)
from tests.support.gateway_worlds import PORT, gateway, https, route

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]
HTTP_PORT, LINES = 18080, 19000
RULE = route("shop", "http: [{destinations: [{service: shop}]}]")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=fleet.VARIANTS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[gateway_worlds.World]:
    """An Envoy of each variant, and an application of each kind."""
    async with gateway_worlds.world(
        web=("shop",), lines=("line",), packets=("echo",), variant=request.param
    ) as made:
        pair = certificates.make("shop.example.com")
        made.hold("shop", certificate_chain=pair.certificate, private_key=pair.private_key)
        yield made


def other(world: gateway_worlds.World, *, last: int = 0) -> str:
    """Another address of the machine, and of the same block."""
    return str(ipaddress.ip_address(world.address) + 256 + last)


async def status(address: str, port: int = HTTP_PORT, tls: ssl.SSLContext | None = None) -> int:
    """What an application answers there; 0 where nobody listens."""
    with contextlib.suppress(ConnectionError):
        answer = await http_clients.http1(
            address, port, "shop.example.com", tls=tls, server_name="shop.example.com"
        )
        return answer.status
    return 0


def http(address: str = "") -> str:
    said = f", address: '{address}'" if address else ""
    return f"name: http, port: {HTTP_PORT}, protocol: HTTP{said}"


async def test_a_port_is_opened_where_its_listener_says(world: gateway_worlds.World) -> None:
    """And nowhere else; it may move, and back to where the proxy opens ports by default."""
    for address in (other(world), other(world, last=1), ""):
        await world.apply(gateway(http(address)), RULE)
        opened = address or world.address
        for one in (world.address, other(world), other(world, last=1)):

            async def as_said(one: str = one, opened: str = opened) -> bool:
                return await status(one) == (200 if one == opened else 0)

            await waiting.eventually(as_said, what=f"{one} is as {opened} says")


async def test_a_port_may_be_opened_at_all_addresses(world: gateway_worlds.World) -> None:
    """Those that the machine has."""
    await world.apply(gateway(http("0.0.0.0")), RULE)
    for one in (world.address, other(world)):
        assert await status(one) == 200


async def test_ports_of_every_kind_have_their_addresses(world: gateway_worlds.World) -> None:
    """TLS, HTTP/3 at the same port, and TCP beside UDP of one number, each at its own."""
    there, elsewhere = other(world), other(world, last=1)
    await world.apply(
        gateway(
            https("shop", "shop.example.com", more=f", http3: true, address: '{there}'"),
            f"name: lines, port: {LINES}, protocol: TCP, address: '{there}'",
            f"name: packets, port: {LINES}, protocol: UDP, address: '{elsewhere}'",
        ),
        RULE,
        route("lines", "tcp: [{destinations: [{service: line, port: 9000}]}]"),
        route("packets", "udp: [{destinations: [{service: echo, port: 53}]}]"),
    )
    assert await status(there, PORT, http_clients.anyone()) == 200
    assert await status(world.address, PORT, http_clients.anyone()) == 0

    async def over_quic() -> bool:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with http_clients.http3(
                there, PORT, server_name="shop.example.com"
            ) as connection:
                return (await connection.get("shop.example.com")).status == 200
        return False

    await waiting.eventually(over_quic, what="an answer over HTTP/3")
    async with tcp_backends.stream(there, LINES) as stream:
        assert stream.name == "line"

    async def echoed() -> bool:
        async with tcp_backends.datagrams(elsewhere, LINES) as client:
            return await client.ask("hello") == "echo:hello"

    await waiting.eventually(echoed, what="an answer over UDP")


async def test_an_address_that_the_machine_does_not_have(world: gateway_worlds.World) -> None:
    """The proxy refuses that listener; others are opened, and go on."""
    await world.apply(gateway(http()), RULE)
    lines = f"name: lines, port: {LINES}, protocol: TCP, address: 192.0.2.1"
    await world.apply(gateway(http(), lines), RULE, wait=False)
    await waiting.eventually(lambda: world.wired.host.refused, what="the listener is refused")
    assert await status(world.address) == 200
    world.wired.host.refused.clear()
    await world.apply(gateway(http()), RULE)
    assert await status(world.address) == 200


async def test_one_port_at_two_addresses(world: gateway_worlds.World) -> None:
    """It is the older gateway's, also where the younger could share it otherwise."""
    rule = route("shop", "http: [{destinations: [{service: shop}]}]", to="old")
    young = gateway(http(world.address), name="young", created=2)
    await world.apply(gateway(http(other(world)), name="old", created=1), young, rule)
    assert await status(other(world)) == 200
    assert await status(world.address) == 0
    condition = world.condition("MeshGateway", "young", "Conflicted")
    assert condition is not None
    assert condition.message == (
        "listener http is not opened: MeshGateway/default/old opens its port at another address"
    )
