# SPDX-License-Identifier: Apache-2.0
"""Listeners of a MeshGateway for TLS, TCP and UDP, through a real Envoy."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import (
    authorities,
    certificates,
    fleet,
    gateway_worlds,
    http_clients,
    meshes,
    tcp_backends,
    waiting,
)
from tests.support.gateway_worlds import PORT, gateway, https, route

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]
TCP_PORT, UDP_PORT, TAKEN_PORT = 19000, 19053, 19099
PASSED = f"name: tls, port: {PORT}, protocol: TLS, tls: {{mode: PASSTHROUGH}}"
TAKEN = f"name: tls, port: {PORT}, protocol: TLS, tls: {{certificates: [{{secret: shop}}]}}"
PLAIN = f"name: tcp, port: {TCP_PORT}, protocol: TCP"
SIGNER = authorities.authority("inside")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=fleet.VARIANTS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[gateway_worlds.World]:
    """An Envoy of each variant; applications in the clear, with TLS (`sealed`), of datagrams."""
    pair = SIGNER.sign("sealed.test")
    async with (
        gateway_worlds.world(
            web=("shop",), lines=("one", "two"), packets=("echo", "other")
        ) as made,
        tcp_backends.tcp_backend("sealed", pair.server()) as sealed,
    ):
        made.lines["sealed"] = sealed
        made.hold("shop", certificate_chain=PAIR.certificate, private_key=PAIR.private_key)
        yield made


PAIR = certificates.make("shop.example.com")


async def reached(
    world: gateway_worlds.World,
    name: str | None = None,
    *,
    port: int = PORT,
    tls: bool = True,
    source: str | None = None,
) -> str:
    """The application that a connection reaches; empty when it is closed."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        async with tcp_backends.stream(
            world.address,
            port,
            tls=http_clients.anyone() if tls else None,
            server_name=name,
            source=source,
        ) as stream:
            return stream.name
    return ""


def to(*names: str, port: int = 9000) -> str:
    shown = ", ".join(f"{{service: {name}, port: {port}}}" for name in names)
    return f"destinations: [{shown}]"


async def test_tls_is_passed_through_by_server_name(world):
    """The application's own certificate arrives; who names nobody's server is closed."""
    await world.apply(
        gateway(f"{PASSED}, hosts: ['*.example.com']"),
        route("a", f"tls: [{{matches: [{{serverNames: [a.example.com]}}], {to('sealed')}}}]"),
    )
    assert await reached(world, "a.example.com") == "sealed"
    assert await reached(world, "b.example.com") == ""
    assert await reached(world, None) == ""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(cadata=SIGNER.certificate)
    trusting.check_hostname = False  # the certificate is for sealed.test
    async with tcp_backends.stream(
        world.address, PORT, tls=trusting, server_name="a.example.com"
    ) as stream:
        assert await stream.echo("hello") == "hello"


async def test_tls_is_terminated_and_sent_on_in_the_clear(world):
    """The listener's certificate arrives, and the application reads what was inside."""
    await world.apply(
        gateway(f"{TAKEN}, hosts: [shop.example.com]"), route("a", f"tls: [{{{to('one')}}}]")
    )
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(cadata=PAIR.certificate)
    async with tcp_backends.stream(
        world.address, PORT, tls=trusting, server_name="shop.example.com"
    ) as stream:
        assert (stream.name, await stream.echo("hello")) == ("one", "hello")


async def test_tls_is_encrypted_anew_where_a_policy_says_so(world):
    """Terminated, and sent on by TLS that the destination's policy describes."""
    inside = SIGNER.certificate.replace("\n", "\\n")
    await world.apply(
        gateway(f"{TAKEN}, hosts: ['*']"),
        route("a", f"tls: [{{{to('sealed')}}}]"),
        meshes.policy(
            "p", f'{{service: sealed, tls: {{sni: sealed.test, caCertificates: "{inside}"}}}}'
        ),
    )
    assert await reached(world, "any.example.com") == "sealed"


async def test_https_and_tls_share_a_port(world):
    """Each has its hosts, and the wider one of a listener takes nothing of the narrower of another,
    whatever its rules say of names."""
    await world.apply(
        gateway(https("web", "*.shop.example.com"), f"{PASSED}, hosts: ['*']"),
        route("web", "http: [{destinations: [{service: shop}]}]", listener="web"),
        route(
            "tls",
            f"tls: [{{matches: [{{serverNames: [a.shop.example.com, b.test]}}], {to('sealed')}}}]",
            listener="tls",
        ),
    )
    assert await reached(world, "b.test") == "sealed"
    answer = await http_clients.http1(
        world.address,
        PORT,
        "a.shop.example.com",
        tls=http_clients.anyone(),
        server_name="a.shop.example.com",
    )
    assert answer.seen["backend"] == "shop"
    async with http_clients.http2(
        world.address, PORT, tls=http_clients.anyone("h2"), server_name="a.shop.example.com"
    ) as connection:
        assert (await connection.get("b.test")).status == 421


async def test_server_names_exact_then_longest_wildcard(world):
    """Whatever the order in which rules are written."""
    await world.apply(
        gateway(PASSED),
        route("w", f"tls: [{{matches: [{{serverNames: ['*.a.test']}}], {to('two')}}}]"),
        route("e", f"tls: [{{matches: [{{serverNames: [x.a.test]}}], {to('sealed')}}}]"),
    )
    assert await reached(world, "x.a.test") == "sealed"
    assert await reached(world, "x.b.a.test") == ""  # `two` does not speak TLS
    assert world.lines["two"].opened > 0


async def test_tcp_goes_where_its_rule_says(world):
    """By weight; and in the clear, whatever the bytes are."""
    weighted = "destinations: [{service: one, port: 9000, weight: 3}, {service: two, port: 9000}]"
    await world.apply(gateway(PLAIN), route("a", f"tcp: [{{{weighted}}}]"))
    found = [await reached(world, port=TCP_PORT, tls=False) for _ in range(120)]
    assert set(found) == {"one", "two"}
    assert found.count("two") == pytest.approx(30, abs=28)


async def test_tcp_by_networks(world):
    """Of the client, and of the address that it connects to; the smaller network goes first."""
    block = world.address.rpartition(".")[0]
    await world.apply(
        gateway(PLAIN),
        route("a", f"tcp: [{{matches: [{{destinationCidrs: [{block}.0/24]}}], {to('one')}}}]"),
        route(
            "b",
            f"tcp: [{{matches: [{{destinationCidrs: [{world.address}], sourceCidrs:"
            f" [127.9.9.0/24]}}], {to('two')}}}]",
        ),
    )
    assert await reached(world, port=TCP_PORT, tls=False) == "one"
    assert await reached(world, port=TCP_PORT, tls=False, source="127.9.9.9") == "two"


async def test_a_tcp_connection_without_a_route_is_closed(world):
    """The port stays open: a rule that comes counts for the next connection, and one that is there
    goes on when its rule is gone."""
    rule = route("a", f"tcp: [{{{to('one')}}}]")
    await world.apply(gateway(PLAIN))
    assert await reached(world, port=TCP_PORT, tls=False) == ""
    before = await world.wired.updates()
    await world.apply(gateway(PLAIN), rule)
    async with tcp_backends.stream(world.address, TCP_PORT) as stream:
        weighted = route("a", "tcp: [{destinations: [{service: two, port: 9000}]}]")
        await world.apply(gateway(PLAIN), weighted)
        assert await stream.echo("still there") == "still there"
        assert await reached(world, port=TCP_PORT, tls=False) == "two"
    after = await world.wired.updates()
    assert after["added"] == before["added"]


async def test_udp_goes_to_one_destination(world):
    """A session has one endpoint; without a rule the port is not there, and it comes and goes."""
    udp = f"name: udp, port: {UDP_PORT}, protocol: UDP"
    await world.apply(gateway(udp))
    async with tcp_backends.datagrams(world.address, UDP_PORT) as client:
        assert await client.ask("a") is None
    for name in ("echo", "other"):
        await world.apply(
            gateway(udp), route("a", f"udp: [{{{to(name, port=53)}, idleTimeout: 5s}}]")
        )
        async with tcp_backends.datagrams(world.address, UDP_PORT) as client:

            async def answered(client=client) -> str | None:
                return await client.ask("hello")

            assert await waiting.eventually(answered, what="an answer") == f"{name}:hello"
            assert await client.ask("again") == f"{name}:again"


async def test_udp_and_tcp_of_one_number(world):
    """They are two ports."""
    await world.apply(
        gateway(PLAIN, f"name: udp, port: {TCP_PORT}, protocol: UDP"),
        route("a", f"tcp: [{{{to('one')}}}], udp: [{{{to('echo', port=53)}}}]"),
    )
    assert await reached(world, port=TCP_PORT, tls=False) == "one"
    async with tcp_backends.datagrams(world.address, TCP_PORT) as client:
        assert await client.ask("hello") == "echo:hello"


async def test_a_port_that_an_older_gateway_has(world):
    """The younger is told, and its other listeners are opened."""
    await world.apply(
        gateway(PLAIN, name="old", created=1),
        gateway(
            f"name: http, port: {TCP_PORT}, protocol: HTTP",
            "name: other, port: 18080, protocol: HTTP",
            name="young",
            created=2,
        ),
        route("a", f"tcp: [{{{to('one')}}}]", to="old"),
        route("b", "http: [{destinations: [{service: shop}]}]", to="young"),
    )
    assert await reached(world, port=TCP_PORT, tls=False) == "one"
    assert (await http_clients.http1(world.address, 18080, "a")).status == 200
    told = world.condition("MeshGateway", "young", "Conflicted")
    assert told is not None
    assert told.message == (
        "listener http is not opened: MeshGateway/default/old speaks another protocol on its port"
    )


async def test_a_port_that_cannot_be_opened_harms_no_other(world):
    """Something else has the port: Envoy refuses the listener by name, and opens its neighbour."""
    await world.apply(gateway(PLAIN))
    taken = await asyncio.start_server(lambda *_: None, world.address, TAKEN_PORT)
    try:
        await world.apply(
            gateway(
                f"name: taken, port: {TAKEN_PORT}, protocol: HTTP",
                "name: other, port: 18080, protocol: HTTP",
            ),
            route("a", "http: [{destinations: [{service: shop}]}]"),
            wait=False,
        )
        refused = world.wired.host.refused
        await waiting.eventually(lambda: refused, what="a refusal")
        assert f"gateway|{TAKEN_PORT}" in refused[0]
        assert "gateway|18080" not in refused[0]

        async def answered() -> bool:
            with contextlib.suppress(ConnectionError):
                return (await http_clients.http1(world.address, 18080, "a")).status == 200
            return False

        await waiting.eventually(answered, what="the neighbour answers")
    finally:
        taken.close()
        await taken.wait_closed()
        world.wired.host.refused.clear()
