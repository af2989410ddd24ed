# SPDX-License-Identifier: Apache-2.0
"""TLS to endpoints by DestinationPolicies, as a real Envoy speaks it."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.model import secrets
from tests.support import backends, certificates, grpc_health_servers, meshes, policy_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

SERVER = certificates.make("api.example", "other.example")
STRANGER = certificates.make("api.example")
CLIENT = certificates.make("client.example")
HAVE, LACK = secrets.SecretKey("default", "have"), secrets.SecretKey("default", "lack")
CA = f"caCertificates: {json.dumps(SERVER.certificate)}"
MUTUAL = f"mode: MUTUAL, sni: api.example, {CA}"
POLICIES = {
    "right": f"tls: {{sni: api.example, {CA}}}",
    "named": f"tls: {{sni: api.example, {CA}, subjectAltNames: [none.example, other.example]}}",
    "misnamed": f"tls: {{sni: api.example, {CA}, subjectAltNames: [none.example]}}",
    "wrong-name": f"tls: {{sni: none.example, {CA}}}",
    "wrong-ca": (f"tls: {{sni: api.example, caCertificates: {json.dumps(STRANGER.certificate)}}}"),
    "careless": "tls: {sni: none.example, insecureSkipVerify: true}",
    "mutual": f"tls: {{{MUTUAL}, clientCertificate: have}}",
    "not-mutual": f"tls: {{sni: api.example, {CA}}}",
    "lacking": f"tls: {{{MUTUAL}, clientCertificate: lack}}",
    "h2": f"tls: {{sni: api.example, {CA}}}, connectionPool: {{httpVersion: HTTP2}}",
}
NAMES: list[str] = []
"""The server names that clients have asked for."""


def _remember(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
    NAMES.append(name or "")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[policy_worlds.World]:
    simple, mutual = SERVER.server(), SERVER.server(clients=CLIENT.certificate)
    simple.sni_callback = _remember  # type: ignore[assignment]
    async with contextlib.AsyncExitStack() as stack:
        secure = await stack.enter_async_context(backends.backend("secure", simple))
        strict = await stack.enter_async_context(backends.backend("strict", mutual))
        _, grpc = await stack.enter_async_context(grpc_health_servers.server(SERVER))
        endpoints = dict.fromkeys((*POLICIES, "clear"), (secure.port,))
        endpoints |= dict.fromkeys(("mutual", "not-mutual", "lacking"), (strict.port,))
        endpoints["h2"] = (grpc,)
        yield await stack.enter_async_context(
            policy_worlds.running(
                endpoints,
                POLICIES,
                meshes.external(
                    "outside",
                    "{hosts: [outside.example], resolution: STATIC, endpoints:"
                    " [{address: 127.0.0.1}], ports:"
                    f" [{{number: 80, targetPort: {secure.port}}}]}}",
                ),
                meshes.policy(
                    "outside", f"{{externalService: outside, tls: {{sni: api.example, {CA}}}}}"
                ),
                held={HAVE: CLIENT.secret(HAVE)},
            )
        )


async def test_an_endpoint_with_the_right_certificate_is_talked_to(world: policy_worlds.World):
    """It is asked for by its name."""
    NAMES.clear()
    assert await world.reached("right") == "secure"
    assert NAMES == ["api.example"]


async def test_tls_to_an_external_service(world: policy_worlds.World):
    """The application speaks clear text, and the proxy TLS."""
    assert await world.reached("outside.example") == "secure"


async def test_without_a_policy_no_tls_is_spoken(world: policy_worlds.World):
    """So it is the policy that does it."""
    assert await world.reached("clear") != "secure"


@pytest.mark.parametrize("service", ["wrong-ca", "wrong-name", "misnamed"])
async def test_a_certificate_that_nobody_vouches_for_is_refused(
    world: policy_worlds.World, service: str
):
    """Wrong signer or wrong name: 503, and nothing was sent."""
    assert await world.reached(service) == "503"
    assert await world.counter(service, "ssl.handshake") == 0


async def test_the_certificate_may_be_for_another_name(world: policy_worlds.World):
    """One of those that the policy lists."""
    assert await world.reached("named") == "secure"


async def test_verification_can_be_switched_off(world: policy_worlds.World):
    """Neither name nor signer is looked at."""
    assert await world.reached("careless") == "secure"


async def test_the_proxy_shows_its_certificate(world: policy_worlds.World):
    """To a server that answers nobody else."""
    assert await world.reached("mutual") == "strict"
    assert await world.reached("not-mutual") == "503"


async def test_without_its_certificate_the_proxy_does_not_even_connect(
    world: policy_worlds.World,
):
    """The answer is 503, at once; and no other service is held up."""
    async with world.ask("lacking") as answer:
        assert (answer.status, await answer.text()) == (503, "no healthy upstream")
    assert await world.counter("lacking", "upstream_cx_total") == 0


async def test_http2_is_offered_inside_tls(world: policy_worlds.World):
    """A gRPC server takes no connection that does not."""
    async with world.client.post(
        world.envoy.url("http-proxy", "/grpc.health.v1.Health/Check"),
        data=b"\0\0\0\0\0",
        headers={"host": "h2", "content-type": "application/grpc", "te": "trailers"},
    ) as answer:
        assert answer.status == 200
    assert await world.counter("h2", "ssl.handshake") == 1
