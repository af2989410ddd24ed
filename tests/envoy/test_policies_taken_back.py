# SPDX-License-Identifier: Apache-2.0
"""What a DestinationPolicy says of a service, and one with labels takes back for a part of it."""

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.config import objects
from pilothouse.model import keys, services
from tests.support import backends, certificates, meshes, policy_worlds, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

SERVER = certificates.make("api.example")
PART = "labels: {version: part}"
POLICIES = {
    "tls": (
        f"tls: {{sni: api.example, caCertificates: {json.dumps(SERVER.certificate)}}}",
        "tls: {mode: DISABLE}",
    ),
    "places": ("locality: {failover: {}}", "locality: {}"),
    "checks": (
        "healthCheck: {http: {path: /}, interval: 50ms, idleInterval: 50ms, unhealthyThreshold: 1}",
        "healthCheck: {}",
    ),
    "outliers": (
        "loadBalancer: {minHealthyPercent: 0}, outlierDetection: {consecutive5xx: 1}",
        "outlierDetection: {consecutive5xx: 0}",
    ),
}
"""Of each service what is said of all of it, and what of its part."""


def _rule(service: str) -> dict[keys.ObjectKey, objects.Config]:
    """Requests with the header go to the part."""
    return meshes.rule(
        service,
        f"{{parents: [{{service: {service}}}], http: [{{matches: [{{headers: [{{name: x-part,"
        f" present: true}}]}}], destinations: [{{service: {service}, {PART}}}]}}]}}",
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[policy_worlds.World]:
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        clear, other = await enter(backends.backend("clear")), await enter(backends.backend("far"))
        sealed = await enter(backends.backend("sealed", SERVER.server()))
        sick = await enter(backends.backend("sick"))
        sick.status = 503

        def of(backend: backends.Backend, place: str = "", version: str = "") -> services.Endpoint:
            labels = keys.labels(version=version) if version else ()
            return dataclasses.replace(policy_worlds.at(backend.port, place), labels=labels)

        yield await enter(
            policy_worlds.running(
                {
                    "tls": [of(sealed), of(clear, version="part")],
                    "places": [of(clear, "eu/a", "part"), of(other, "us/a", "part")],
                    "checks": [of(clear, "", "part"), of(sick, "", "part")],
                    "outliers": [of(sick, "", "part")],
                },
                {},
                *(_rule(name) for name in POLICIES),
                *(
                    meshes.policy(f"{name}-{number}", f"{{service: {name}, {head}{spec}}}")
                    for name, both in POLICIES.items()
                    for number, (head, spec) in enumerate(zip(("", f"{PART}, "), both, strict=True))
                ),
                locality=policy_worlds.locality("eu/a"),
            )
        )


async def test_tls(world: policy_worlds.World) -> None:
    """The part is talked to in clear text. By TLS only the other one can be, so it alone answers
    the rest; what cannot connect is tried there.
    """
    assert await world.reached("tls", x_part="yes") == "clear"
    assert set(await world.tally("tls", 20)) == {"sealed"}


async def test_places(world: policy_worlds.World) -> None:
    """All endpoints of the part are alike again."""
    assert set(await world.tally("places", 20)) == {"clear"}
    assert set(await world.tally("places", 40, x_part="yes")) == {"clear", "far"}


async def test_health_checks(world: policy_worlds.World) -> None:
    """The part is not asked, so it fails as it pleases."""

    async def only_good() -> bool:
        return set(await world.tally("checks", 20)) == {"clear"}

    await waiting.eventually(only_good)
    assert set(await world.tally("checks", 40, x_part="yes")) == {"clear", "503"}


async def test_outlier_detection(world: policy_worlds.World) -> None:
    """In the part nobody is left out, however often it fails."""

    async def left_out() -> bool:
        async with world.ask("outliers") as answer:
            return await answer.text() == "no healthy upstream"

    await waiting.eventually(left_out)
    for _ in range(10):
        async with world.ask("outliers", x_part="yes") as answer:
            assert (await answer.json())["backend"] == "sick"
