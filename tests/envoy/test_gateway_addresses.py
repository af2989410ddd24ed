# SPDX-License-Identifier: Apache-2.0
"""Where a gateway takes the addresses of clients from, and HTTP/3, through a real Envoy."""

import contextlib
import ipaddress
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import certificates, gateway_worlds, http_clients, tcp_backends, waiting
from tests.support.gateway_worlds import PORT, gateway, https, route

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]
HTTP_PORT, TCP_PORT = 18080, 19000
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[gateway_worlds.World]:
    """One Envoy, and applications of HTTP and TCP."""
    async with gateway_worlds.world(web=("shop",), lines=("one", "two")) as made:
        pair = certificates.make("shop.example.com")
        made.hold("shop", certificate_chain=pair.certificate, private_key=pair.private_key)
        yield made


RULE = route("shop", "http: [{destinations: [{service: shop}]}]")


def version_1(client: str) -> bytes:
    """A header in text: https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt, 2.1."""
    return f"PROXY TCP4 {client} 192.0.2.1 40000 443\r\n".encode()


def version_2(client: str) -> bytes:
    """A header in bytes: the same, 2.2; PROXY, TCP over IPv4."""
    addresses = ipaddress.ip_address(client).packed + ipaddress.ip_address("192.0.2.1").packed
    ports = (40_000).to_bytes(2, "big") + (443).to_bytes(2, "big")
    return SIGNATURE + b"\x21\x11\x00\x0c" + addresses + ports


@pytest.mark.parametrize("header", [version_1, version_2])
@pytest.mark.parametrize("tls", [False, True])
async def test_the_proxy_protocol_tells_the_client(world, header, tls):
    """Of both versions, ahead of a handshake too; the application reads it in X-Forwarded-For."""
    said = ", clientAddress: {proxyProtocol: true}"
    plain = f"name: http, port: {HTTP_PORT}, protocol: HTTP{said}"
    await world.apply(gateway(plain, https("tls", "*", more=said)), RULE)
    answer = await http_clients.http1(
        world.address,
        PORT if tls else HTTP_PORT,
        "shop.example.com",
        tls=http_clients.anyone() if tls else None,
        server_name="shop.example.com",
        before=header("203.0.113.9"),
    )
    assert answer.seen["headers"]["x-forwarded-for"] == "203.0.113.9"


async def test_a_connection_without_a_header_is_closed(world):
    """Whoever could come without one could claim to be anybody."""
    said = ", clientAddress: {proxyProtocol: true}"
    await world.apply(gateway(f"name: http, port: {HTTP_PORT}, protocol: HTTP{said}"), RULE)
    with pytest.raises(ConnectionError):
        await http_clients.http1(world.address, HTTP_PORT, "a")


async def test_networks_of_clients_are_those_that_the_header_tells(world):
    """A TCP route chooses by the address in it."""
    said = ", clientAddress: {proxyProtocol: true}"
    await world.apply(
        gateway(f"name: tcp, port: {TCP_PORT}, protocol: TCP{said}"),
        route(
            "a",
            "tcp: [{matches: [{sourceCidrs: [203.0.113.0/24]}],"
            " destinations: [{service: one, port: 9000}]},"
            " {destinations: [{service: two, port: 9000}]}]",
        ),
    )
    for client, name in (("203.0.113.9", "one"), ("198.51.100.1", "two")):
        async with tcp_backends.stream(world.address, TCP_PORT, before=version_1(client)) as stream:
            assert stream.name == name


@pytest.mark.parametrize(
    ("hops", "client"), [(1, "198.51.100.7"), (2, "203.0.113.5"), (3, "192.0.2.77")]
)
async def test_trusted_hops(world, hops, client):
    """With one trusted proxy the client is whom that one wrote, the last; with two the last but
    one. Envoy tells applications whom it takes for the client."""
    said = f", clientAddress: {{trustedHops: {hops}}}"
    await world.apply(gateway(f"name: http, port: {HTTP_PORT}, protocol: HTTP{said}"), RULE)
    forwarded = {"x-forwarded-for": "192.0.2.77, 203.0.113.5, 198.51.100.7"}
    answer = await http_clients.http1(world.address, HTTP_PORT, "a", headers=forwarded)
    assert answer.seen["headers"]["x-envoy-external-address"] == client


async def test_without_trusted_hops_the_client_is_the_connection(world):
    """Whatever a client claims."""
    await world.apply(gateway(f"name: http, port: {HTTP_PORT}, protocol: HTTP"), RULE)
    forwarded = {"x-forwarded-for": "203.0.113.5"}
    answer = await http_clients.http1(
        world.address, HTTP_PORT, "a", headers=forwarded, source="127.9.9.9"
    )
    assert answer.seen["headers"]["x-envoy-external-address"] == "127.9.9.9"


async def test_http3(world):
    """The same hosts and routes over QUIC, which answers over TCP tell of; and it goes again."""
    await world.apply(gateway(https("shop", "shop.example.com", more=", http3: true")), RULE)
    answer = await http_clients.http1(
        world.address,
        PORT,
        "shop.example.com",
        tls=http_clients.anyone(),
        server_name="shop.example.com",
    )
    assert answer.headers["alt-svc"] == f'h3=":{PORT}"; ma=86400'

    async def over_quic() -> http_clients.Answer | None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with http_clients.http3(
                world.address, PORT, server_name="shop.example.com"
            ) as connection:
                found = await connection.get("shop.example.com", "/a")
                assert (await connection.get("other.example.com")).status == 404
                return found
        return None

    found = await waiting.eventually(over_quic, what="an answer over HTTP/3")
    assert (found.status, found.seen["path"]) == (200, "/a")
    assert found.seen["headers"]["x-forwarded-proto"] == "https"
    assert world.wired.host.refused == []
    await world.apply(gateway(https("shop", "shop.example.com")), RULE)
    again = await http_clients.http1(
        world.address,
        PORT,
        "shop.example.com",
        tls=http_clients.anyone(),
        server_name="shop.example.com",
    )
    assert "alt-svc" not in again.headers
