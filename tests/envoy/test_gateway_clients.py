# SPDX-License-Identifier: Apache-2.0
"""Certificates of clients at a gateway's listener, through a real Envoy."""

import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import authorities, certificates, gateway_worlds, http_clients, waiting
from tests.support.gateway_worlds import PORT, gateway, https, route

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

OURS, THEIRS = authorities.authority("ours"), authorities.authority("theirs")
GOOD, OTHER, STRANGER = OURS.sign("good.test"), OURS.sign("other.test"), THEIRS.sign("good.test")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[gateway_worlds.World]:
    """One Envoy, an application, and an authority."""
    async with gateway_worlds.world(web=("shop",)) as made:
        pair = certificates.make("shop.example.com")
        made.hold("shop", certificate_chain=pair.certificate, private_key=pair.private_key)
        made.hold("ca", authorities=OURS.certificate)
        made.hold("revoking", authorities=OURS.certificate, revocations=OURS.revoke(OTHER))
        yield made


async def asking(world: gateway_worlds.World, said: str, *, ca: str = "ca") -> None:
    """A listener that asks clients for certificates, and one beside it that does not."""
    clients = f", clientValidation: {{caCertificates: [{{secret: {ca}}}]{said}}}"
    await world.apply(
        gateway(https("shop", "shop.example.com", tls=clients), https("open", "open.example.com")),
        route("shop", "http: [{destinations: [{service: shop}]}]"),
    )


async def let_in(
    world: gateway_worlds.World, pair: certificates.Pair | None, name: str = "shop.example.com"
) -> bool:
    """Whether a client that shows a certificate gets an answer."""
    context = http_clients.anyone()
    if pair is not None:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(pair.certificate + pair.private_key)
            file.flush()
            context.load_cert_chain(file.name)
    try:
        answer = await http_clients.http1(world.address, PORT, name, tls=context, server_name=name)
    except (ConnectionError, ssl.SSLError):
        return False
    assert answer.status == 200
    return True


async def test_required(world):
    """Who shows one that the authority signed; nobody else, and the neighbour asks for none."""
    await asking(world, "")
    assert await let_in(world, GOOD)
    assert not await let_in(world, STRANGER)
    assert not await let_in(world, None)
    assert await let_in(world, None, "open.example.com")


async def test_optional(world):
    """Who shows none is let in too; one that is shown must be good."""
    await asking(world, ", optional: true")
    assert await let_in(world, None)
    assert await let_in(world, GOOD)
    assert not await let_in(world, STRANGER)


async def test_names(world):
    """One of these must be on it, whole."""
    await asking(world, ", subjectAltNames: [good.test, 'spiffe://a/b']")
    assert await let_in(world, GOOD)
    assert not await let_in(world, OTHER)
    await asking(world, ", subjectAltNames: [test]")
    assert not await let_in(world, GOOD)


async def test_public_keys(world):
    """Its key must be one of these, and it must be signed all the same."""
    await asking(world, f", publicKeyHashes: ['{authorities.key_hash(GOOD)}']")
    assert await let_in(world, GOOD)
    assert not await let_in(world, OTHER)
    await asking(world, f", publicKeyHashes: ['{authorities.key_hash(STRANGER)}']")
    assert not await let_in(world, STRANGER)


async def test_certificates_by_hash(world):
    """It must be one of these, and signed all the same; one that either list has will do."""
    good, stranger = map(authorities.certificate_hash, (GOOD, STRANGER))
    await asking(world, f", certificateHashes: ['{good}', '{stranger}']")
    assert await let_in(world, GOOD)
    assert not await let_in(world, OTHER)
    assert not await let_in(world, STRANGER)
    plain, key = good.replace(":", "").lower(), authorities.key_hash(OTHER)
    await asking(world, f", certificateHashes: ['{plain}'], publicKeyHashes: ['{key}']")
    assert await let_in(world, GOOD)
    assert await let_in(world, OTHER)
    await asking(world, f", certificateHashes: ['{'0' * 64}']")
    assert not await let_in(world, GOOD)


async def test_revoked(world):
    """What the secret's list names is refused, and the rest is not."""
    await asking(world, "", ca="revoking")
    assert await let_in(world, GOOD)
    assert not await let_in(world, OTHER)


@pytest.mark.parametrize("optional", [False, True])
async def test_over_http3(world, optional):
    """The same rules over QUIC."""
    clients = ", clientValidation: {caCertificates: [{secret: ca}]"
    clients += ", optional: true}" if optional else "}"
    await world.apply(
        gateway(https("shop", "shop.example.com", tls=clients, more=", http3: true")),
        route("shop", "http: [{destinations: [{service: shop}]}]"),
    )

    async def answered(pair: certificates.Pair | None) -> bool:
        with contextlib.suppress(ConnectionError):
            async with http_clients.http3(
                world.address, PORT, server_name="shop.example.com", certificate=pair
            ) as connection:
                return (await connection.get("shop.example.com")).status == 200
        return False

    await waiting.eventually(lambda: answered(GOOD), what="an answer over HTTP/3")
    assert not await answered(STRANGER)
    assert await answered(None) is optional


async def test_without_its_authority_a_listener_lets_nobody_in(world):
    """It does not fall back to asking less, nor to its neighbours; they go on."""
    await asking(world, "", ca="absent")
    assert not await let_in(world, GOOD)
    assert not await let_in(world, None)
    assert await let_in(world, None, "open.example.com")
    await asking(world, "", ca="shop")  # which has a certificate, and no authority
    assert not await let_in(world, GOOD)
    assert await let_in(world, None, "open.example.com")


async def test_the_key_of_an_authority_stays_where_it_is(world):
    """A proxy gets who signs, also from a secret that has a pair; and not that pair."""
    world.hold(
        "both",
        certificate_chain=GOOD.certificate,
        private_key=GOOD.private_key,
        authorities=OURS.certificate,
    )
    await asking(world, "", ca="both")
    assert await let_in(world, GOOD)
    held = world.wired.host.snapshot.resources("type.googleapis.com/" + SECRET)
    assert sorted(held) == ["authority|default/both", "secret|default/shop"]
    assert GOOD.private_key.encode() not in held["authority|default/both"].body


SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"
