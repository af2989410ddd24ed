# SPDX-License-Identifier: Apache-2.0
"""Listeners of a MeshGateway for HTTPS, through a real Envoy: names, certificates, clients."""

import contextlib
import ssl
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support import (
    certificates,
    gateway_worlds,
    grpc_health_servers,
    http_clients,
    waiting,
)
from tests.support.gateway_worlds import PORT, gateway, https, route

SERVING = health_pb2.HealthCheckResponse.SERVING
pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[gateway_worlds.World]:
    """One Envoy with two applications, `shop` and `api`."""
    async with gateway_worlds.world(web=("shop", "api")) as made:
        for name in ("shop", "api"):
            pair = certificates.make(f"{name}.example.com", f"*.{name}.example.com")
            made.hold(name, certificate_chain=pair.certificate, private_key=pair.private_key)
        yield made


async def shown(
    world: gateway_worlds.World, name: str | None, context: ssl.SSLContext | None = None
) -> bytes:
    """The certificate that a client gets, DER; ConnectionError or ssl.SSLError without one."""
    tls = context or http_clients.anyone()
    async with http_clients.opened(world.address, PORT, tls=tls, server_name=name) as (_, writer):
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found


def der(world: gateway_worlds.World, name: str) -> bytes:
    """The certificate of a secret."""
    (held,) = (one for key, one in world.wired.held.items() if key.name == name)
    return ssl.PEM_cert_to_DER_cert(held.certificate_chain.decode())


async def two_listeners(world: gateway_worlds.World, *more: str) -> None:
    """One for the shop and one for the API, each with its certificate and rule."""
    await world.apply(
        gateway(
            https("shop", "shop.example.com", "*.shop.example.com"),
            https("api", "api.example.com", certificates=("api",)),
            *more,
        ),
        route("shop", "http: [{destinations: [{service: shop}]}]", listener="shop"),
        route("api", "http: [{destinations: [{service: api}]}]", listener="api"),
    )


async def ask(world: gateway_worlds.World, name: str | None, host: str) -> tuple[int, str]:
    """The status, and who answered."""
    answer = await http_clients.http1(
        world.address, PORT, host, tls=http_clients.anyone(), server_name=name
    )
    return answer.status, answer.seen["backend"] if answer.status == 200 else ""


async def test_each_listener_has_its_hosts_certificates_and_routes(world):
    """The client's server name decides, exact or by wildcard."""
    await two_listeners(world)
    assert await ask(world, "shop.example.com", "shop.example.com") == (200, "shop")
    assert await ask(world, "x.shop.example.com", "x.shop.example.com") == (200, "shop")
    assert await ask(world, "api.example.com", "api.example.com") == (200, "api")
    assert await shown(world, "shop.example.com") == der(world, "shop")
    assert await shown(world, "api.example.com") == der(world, "api")


async def test_a_request_over_a_connection_of_another_listener_is_misdirected(world):
    """421 for a host that another listener serves, over a connection of HTTP/2 that is used again;
    404 for one that nobody serves."""
    await two_listeners(world)
    tls = http_clients.anyone("h2")
    async with http_clients.http2(
        world.address, PORT, tls=tls, server_name="shop.example.com"
    ) as connection:
        assert (await connection.get("shop.example.com")).seen["backend"] == "shop"
        assert (await connection.get("api.example.com")).status == 421
        assert (await connection.get("other.example.com")).status == 404
        assert (await connection.get("x.shop.example.com")).seen["backend"] == "shop"
    assert (await ask(world, "api.example.com", "shop.example.com"))[0] == 421


async def test_a_narrower_listener_has_its_hosts(world):
    """What a wildcard's listener is asked for that is another's is misdirected, and what is its
    own, though another has a wider pattern around it, is not."""
    await world.apply(
        gateway(
            https("all", "*", "own.api.example.com"),
            https("api", "*.api.example.com", certificates=("api",)),
        ),
        route("shop", "http: [{destinations: [{service: shop}]}]", listener="all", hosts="['*']"),
        route("api", "http: [{destinations: [{service: api}]}]", listener="api"),
    )
    assert await ask(world, "any.example.com", "any.example.com") == (200, "shop")
    assert await ask(world, "x.api.example.com", "x.api.example.com") == (200, "api")
    assert (await ask(world, "any.example.com", "x.api.example.com"))[0] == 421
    assert await ask(world, "own.api.example.com", "own.api.example.com") == (200, "shop")
    assert (await ask(world, "x.api.example.com", "own.api.example.com"))[0] == 421


async def test_clients_that_name_no_server(world):
    """They get the listener for every host, else the first; who names an unknown one is refused."""
    await two_listeners(world)
    assert await ask(world, None, "shop.example.com") == (200, "shop")
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await ask(world, "other.example.com", "other.example.com")
    await two_listeners(world, https("all", "*", certificates=("api",)))
    assert await shown(world, None) == der(world, "api")
    assert await shown(world, "other.example.com") == der(world, "api")
    assert (await ask(world, None, "shop.example.com"))[0] == 421


async def test_of_two_certificates_for_a_name_a_client_gets_what_it_can_check(world):
    """One with an RSA and one with an ECDSA key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pair = certificates.make("shop.example.com", key=key)
    world.hold("rsa", certificate_chain=pair.certificate, private_key=pair.private_key)
    await world.apply(gateway(https("both", "*", certificates=("shop", "rsa"))))
    for suite, name in (
        ("ECDHE-ECDSA-AES128-GCM-SHA256", "shop"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "rsa"),
    ):
        context = http_clients.anyone()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(suite)
        assert await shown(world, "shop.example.com", context) == der(world, name)


@pytest.mark.parametrize("missing", ["shop", "rsa"])
async def test_a_missing_certificate_takes_nothing_from_its_neighbours(world, missing):
    """Of two the other is served; a listener that has none is closed, and the next one is not."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pair = certificates.make("shop.example.com", key=key)
    world.hold("rsa", certificate_chain=pair.certificate, private_key=pair.private_key)
    held = {name: one for name, one in world.wired.held.items() if name.name != missing}
    before, world.wired.held = world.wired.held, held
    try:
        await world.apply(
            gateway(
                https("shop", "shop.example.com", certificates=("shop", "rsa")),
                https("gone", "gone.example.com", certificates=(missing,)),
                https("all", "*", certificates=("api",)),
            )
        )
        left = "rsa" if missing == "shop" else "shop"
        assert await shown(world, "shop.example.com") == der(world, left)
        assert await shown(world, "other.example.com") == der(world, "api")
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await shown(world, "gone.example.com")
    finally:
        world.wired.held = before


@pytest.mark.parametrize(
    ("least", "most", "taken"),
    [
        ("", "", {"1.2", "1.3"}),
        ("TLS_1_0", "", {"1.0", "1.1", "1.2", "1.3"}),
        ("TLS_1_3", "", {"1.3"}),
        ("", "TLS_1_2", {"1.2"}),
        ("TLS_1_1", "TLS_1_1", {"1.1"}),
    ],
)
async def test_versions_of_tls(world, least, most, taken):
    """Those between the two, and no others."""
    said = (f", minVersion: {least}" if least else "") + (f", maxVersion: {most}" if most else "")
    await world.apply(gateway(https("all", "*", tls=said)))
    versions = {
        "1.0": ssl.TLSVersion.TLSv1,
        "1.1": ssl.TLSVersion.TLSv1_1,
        "1.2": ssl.TLSVersion.TLSv1_2,
        "1.3": ssl.TLSVersion.TLSv1_3,
    }
    found = set()
    for name, version in versions.items():
        context = http_clients.anyone()
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns() if name in ("1.0", "1.1") else contextlib.nullcontext():
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.maximum_version = version
            context.minimum_version = version
        try:
            await shown(world, None, context)
        except (ConnectionError, ssl.SSLError):
            continue
        found.add(name)
    assert found == taken


async def test_cipher_suites(world):
    """Those that are listed, in the listener's order, whatever the client likes best."""
    listed = ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256")
    said = f", maxVersion: TLS_1_2, cipherSuites: [{', '.join(listed)}]"
    await world.apply(gateway(https("all", "*", tls=said)))
    context = http_clients.anyone()
    context.set_ciphers(":".join(reversed(listed)))
    async with http_clients.opened(world.address, PORT, tls=context) as (_, writer):
        assert writer.get_extra_info("ssl_object").cipher()[0] == listed[0]
    context.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await shown(world, None, context)


async def test_a_change_of_one_listener_leaves_the_connections_of_others(world):
    """Another listener comes with its certificate, and goes: a connection lives through it."""
    await two_listeners(world)
    tls = http_clients.anyone("h2")
    async with http_clients.http2(
        world.address, PORT, tls=tls, server_name="shop.example.com"
    ) as connection:
        await connection.get("shop.example.com")
        await two_listeners(world, https("more", "more.example.com", certificates=("api",)))
        assert await shown(world, "more.example.com") == der(world, "api")
        await two_listeners(world)
        assert (await connection.get("shop.example.com")).seen["backend"] == "shop"


async def test_a_new_certificate_is_for_new_connections(world):
    """Rotation: the listener stays as it is, and so do connections."""
    objects = (
        gateway(https("shop", "shop.example.com", certificates=("rotated",))),
        route("shop", "http: [{destinations: [{service: shop}]}]"),
    )

    async def rotate() -> None:
        pair = certificates.make("shop.example.com")
        world.hold("rotated", certificate_chain=pair.certificate, private_key=pair.private_key)
        await world.apply(*objects)

    await rotate()
    before = await world.wired.updates()
    tls = http_clients.anyone("h2")
    async with http_clients.http2(
        world.address, PORT, tls=tls, server_name="shop.example.com"
    ) as connection:
        await connection.get("shop.example.com")
        await rotate()

        async def renewed() -> bool:
            return await shown(world, "shop.example.com") == der(world, "rotated")

        await waiting.eventually(renewed, what="the new certificate")
        assert (await connection.get("shop.example.com")).seen["backend"] == "shop"
    assert await world.wired.updates() == before


async def test_http2_without_tls(world):
    """A listener for HTTP speaks HTTP/1.1 and HTTP/2 to clients that begin with it."""
    await world.apply(
        gateway("name: http, port: 18080, protocol: HTTP"),
        route("shop", "http: [{destinations: [{service: shop}]}]"),
    )
    assert (await http_clients.http1(world.address, 18080, "a")).seen["backend"] == "shop"
    async with http_clients.http2(world.address, 18080) as connection:
        assert (await connection.get("a", scheme="http")).seen["backend"] == "shop"


@pytest.mark.parametrize("tls", [False, True])
async def test_grpc(world, tls):
    """Calls and streams, in the clear and over TLS, by a route for gRPC and by one for HTTP."""
    (held,) = (one for key, one in world.wired.held.items() if key.name == "shop")
    async with grpc_health_servers.server() as (servicer, port):
        await servicer.set("", SERVING)
        world.calls["health"] = port
        for routes in ("grpc", "http"):
            await world.apply(
                gateway(
                    "name: http, port: 18080, protocol: HTTP", https("shop", "shop.example.com")
                ),
                route("calls", f"{routes}: [{{destinations: [{{service: health}}]}}]"),
            )
            at = f"{world.address}:{PORT if tls else 18080}"
            named = (("grpc.ssl_target_name_override", "shop.example.com"),)
            trusted = grpc.ssl_channel_credentials(held.certificate_chain)
            channel = (
                grpc.aio.secure_channel(at, trusted, named)
                if tls
                else grpc.aio.insecure_channel(at)
            )
            async with channel:
                stub = health_pb2_grpc.HealthStub(channel)
                asked = health_pb2.HealthCheckRequest()
                assert (await stub.Check(asked, timeout=20)).status == SERVING
                watching = stub.Watch(asked, timeout=20)
                assert (await watching.read()).status == SERVING
                watching.cancel()
        del world.calls["health"]


@pytest.mark.parametrize(
    ("more", "location"),
    [
        ("", "https://shop.example.com/a?b=c"),
        (", httpsPort: 8443", "https://shop.example.com:8443/a?b=c"),
    ],
)
async def test_https_redirect(world, more, location):
    """Every request, whatever rules say; and other listeners of the gateway serve as before."""
    await world.apply(
        gateway(
            f"name: http, port: 18080, protocol: HTTP, httpsRedirect: true{more}",
            https("shop", "shop.example.com"),
        ),
        route("shop", "http: [{destinations: [{service: shop}]}]"),
    )
    answer = await http_clients.http1(world.address, 18080, "shop.example.com", "/a?b=c")
    assert (answer.status, answer.headers["location"]) == (301, location)
    assert await ask(world, "shop.example.com", "shop.example.com") == (200, "shop")


async def test_what_a_younger_gateway_cannot_have(world):
    """The older serves its host; the younger serves the rest of its own, and is told."""
    await world.apply(
        gateway(https("a", "shop.example.com"), name="old", created=1),
        gateway(
            https("b", "shop.example.com", "api.example.com", certificates=("api",)),
            name="young",
            created=2,
        ),
        route("old", "http: [{destinations: [{service: shop}]}]", to="old"),
        route("young", "http: [{destinations: [{service: api}]}]", to="young"),
    )
    assert await ask(world, "shop.example.com", "shop.example.com") == (200, "shop")
    assert await ask(world, "api.example.com", "api.example.com") == (200, "api")
    told = world.condition("MeshGateway", "young", "Conflicted")
    assert told is not None
    assert told.message == (
        "listener b does not serve host shop.example.com: MeshGateway/default/old does on its port"
    )
    assert world.condition("MeshGateway", "old", "Conflicted") is None
