# SPDX-License-Identifier: Apache-2.0
"""Which TLS, and which certificates, DestinationPolicies ask for; as a real Envoy does it."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.adapters.files import system_authorities
from pilothouse.model import secrets
from tests.support import authorities, backends, certificates, policy_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

SERVER, STRANGER = certificates.make("api.example"), certificates.make("api.example")
CA = f"caCertificates: {json.dumps(SERVER.certificate)}"
SIGNER, OTHER = authorities.authority("signer"), authorities.authority("other")
GOOD, BAD = SIGNER.sign("api.example"), SIGNER.sign("api.example")
SIGNED = f"caCertificates: {json.dumps(SIGNER.certificate)}"
LISTS = f"{SIGNED}, revocationLists: {json.dumps(SIGNER.revoke(BAD))}"
STRANGE_LISTS = f"{SIGNED}, revocationLists: {json.dumps(OTHER.revoke())}"
KEY, CERTIFICATE = authorities.key_hash(SERVER), authorities.certificate_hash(SERVER)
OTHER_KEY = authorities.key_hash(STRANGER)
SUITE, OTHER_SUITE = "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"

CASES = {
    "old-by-default": ("old", CA, True),
    "old-too-old": ("old", f"{CA}, minVersion: TLS_1_3", False),
    "new-by-default": ("new", CA, True),
    "new-is-asked-for": ("new", f"{CA}, minVersion: TLS_1_3", True),
    "new-too-new": ("new", f"{CA}, maxVersion: TLS_1_2", False),
    "suite-by-default": ("old", f"{CA}", True),
    "suite": ("old", f"{CA}, cipherSuites: [{OTHER_SUITE}, {SUITE}]", True),
    "suite-missing": ("old", f"{CA}, cipherSuites: [{OTHER_SUITE}]", False),
    "key": ("new", f"publicKeyHashes: ['{OTHER_KEY}', '{KEY}']", True),
    "key-wrong": ("new", f"publicKeyHashes: ['{OTHER_KEY}']", False),
    "key-wrong-for-ca": ("new", f"{CA}, publicKeyHashes: ['{OTHER_KEY}']", False),
    "key-and-ca": ("new", f"{CA}, publicKeyHashes: ['{KEY}']", True),
    "certificate": ("new", f"certificateHashes: ['{CERTIFICATE}']", True),
    "certificate-wrong": ("new", f"certificateHashes: ['{'0' * 64}']", False),
    "either": (
        "new",
        f"publicKeyHashes: ['{OTHER_KEY}'], certificateHashes: ['{CERTIFICATE}']",
        True,
    ),
    "named": ("good", "caSecret: signer", True),
    "named-revoked": ("bad", "caSecret: signer", False),
    "named-other": ("good", "caSecret: other", False),
    "named-other-name": ("good", "caSecret: signer, subjectAltNames: [b.example]", False),
    "named-and-key": ("good", f"caSecret: signer, publicKeyHashes: ['{OTHER_KEY}']", False),
    "system": ("good", "systemAuthorities: true", True),
    "system-stranger": ("new", "systemAuthorities: true", False),
    "system-other-name": ("good", "systemAuthorities: true, subjectAltNames: [b.example]", False),
    "good": ("good", LISTS, True),
    "revoked": ("bad", LISTS, False),
    "not-looked-up": ("bad", SIGNED, True),
    "without-its-signers-list": ("good", STRANGE_LISTS, False),
}
"""The server, what the policy says, and whether they talk."""
HELD = {
    secrets.SecretKey("default", name): secrets.TlsSecret(
        key=secrets.SecretKey("default", name),
        authorities=authority.certificate.encode(),
        revocations=revoked.encode(),
    )
    for name, authority, revoked in (("signer", SIGNER, SIGNER.revoke(BAD)), ("other", OTHER, ""))
}
HELD[secrets.SYSTEM] = secrets.TlsSecret(
    key=secrets.SYSTEM, authorities=SIGNER.certificate.encode()
)


def _servers() -> dict[str, ssl.SSLContext]:
    old, new = SERVER.server(), SERVER.server()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers(SUITE)
    new.minimum_version = ssl.TLSVersion.TLSv1_3
    return {"old": old, "new": new, "good": GOOD.server(), "bad": BAD.server()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[policy_worlds.World]:
    async with contextlib.AsyncExitStack() as stack:
        served = {
            name: await stack.enter_async_context(backends.backend(name, tls))
            for name, tls in _servers().items()
        }
        yield await stack.enter_async_context(
            policy_worlds.running(
                {name: [served[server].port] for name, (server, _, _) in CASES.items()}
                | {"lacking": [served["good"].port]},
                {name: f"tls: {{sni: api.example, {says}}}" for name, (_, says, _) in CASES.items()}
                | {"lacking": "tls: {sni: api.example, caSecret: none}"},
                held=HELD,
            )
        )


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("old", "new"))])
async def test_versions_of_tls(world: policy_worlds.World, name: str):
    """From 1.2 to the newest, unless the policy says less: then there is no handshake, but 503."""
    await _as_told(world, name)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("suite")])
async def test_cipher_suites(world: policy_worlds.World, name: str):
    """Only those of the policy are offered."""
    await _as_told(world, name)


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith(("key", "certificate", "either"))]
)
async def test_an_endpoint_may_be_told_by_hashes(world: policy_worlds.World, name: str):
    """One of those listed; with authorities too, both must be right."""
    await _as_told(world, name)


@pytest.mark.parametrize("name", ["good", "revoked", "not-looked-up", "without-its-signers-list"])
async def test_a_revoked_certificate_is_refused(world: policy_worlds.World, name: str):
    """Also one whose signer has no list: nobody knows whether it is revoked."""
    await _as_told(world, name)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("named")])
async def test_a_secret_may_say_who_signs(world: policy_worlds.World, name: str):
    """And what they revoked; names and hashes count beside it."""
    await _as_told(world, name)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("system")])
async def test_the_system_may_say_who_signs(world: policy_worlds.World, name: str):
    """The one on which discovery runs; the certificate must be for the right name as well."""
    await _as_told(world, name)


async def test_while_the_secret_is_missing_nobody_is_talked_to(world: policy_worlds.World):
    """503, at once; and nobody else is held up."""
    async with world.ask("lacking") as answer:
        assert (answer.status, await answer.text()) == (503, "no healthy upstream")
    assert await world.counter("lacking", "upstream_cx_total") == 0


async def _as_told(world: policy_worlds.World, name: str) -> None:
    server, _, talks = CASES[name]
    assert await world.reached(name) == (server if talks else "503")
    assert (await world.counter(name, "ssl.handshake") > 0) is talks


async def test_envoy_takes_all_that_this_system_trusts():
    """However many, and however old."""
    authorities = system_authorities.read(None)
    if not authorities:
        pytest.skip("this system trusts no authorities: install its ca-certificates")
    held = {secrets.SYSTEM: secrets.TlsSecret(key=secrets.SYSTEM, authorities=authorities)}
    policy = {"public": "tls: {sni: api.example, systemAuthorities: true}"}
    async with (
        backends.backend("private", GOOD.server()) as private,
        policy_worlds.running({"public": (private.port,)}, policy, held=held) as world,
    ):
        assert await world.reached("public") == "503"
        assert await world.counter("public", "ssl.fail_verify_error") > 0
