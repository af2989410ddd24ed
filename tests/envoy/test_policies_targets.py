# SPDX-License-Identifier: Apache-2.0
"""Whom DestinationPolicies speak of, and to whom; as a real Envoy acts on it."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.model import keys
from tests.support import backends, meshes, policy_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

CLOSED = "circuitBreaker: {maxRequests: 0}"
VERSIONS = ("v1", "v2")


def _by_header(service: str) -> str:
    """A rule that sends requests to the version that they ask for, if any."""
    routes = [
        f"{{matches: [{{headers: [{{name: x-version, exact: {version}}}]}}],"
        f" destinations: [{{service: {service}, labels: {{version: {version}}}}}]}}"
        for version in VERSIONS
    ]
    default = f"{{destinations: [{{service: {service}}}]}}"
    return f"{{parents: [{{service: {service}}}], http: [{', '.join((*routes, default))}]}}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[policy_worlds.World]:
    """A sidecar in the namespace default."""
    async with contextlib.AsyncExitStack() as stack:
        served = {
            name: await stack.enter_async_context(backends.backend(name)) for name in VERSIONS
        }
        versions = [
            dataclasses.replace(
                policy_worlds.at(served[name].port), labels=keys.labels(version=name)
            )
            for name in VERSIONS
        ]
        plain = [served["v1"].port]
        yield await stack.enter_async_context(
            policy_worlds.running(
                {
                    "parts": versions,
                    "merged": versions,
                    "web.shop": plain,
                    "api.shop": plain,
                    "own.shop": plain,
                },
                {},
                *(meshes.rule(name, _by_header(name)) for name in ("parts", "merged")),
                meshes.policy("v2", f"{{service: parts, labels: {{version: v2}}, {CLOSED}}}"),
                meshes.policy("all", f"{{service: merged, {CLOSED}}}"),
                meshes.policy("v1", "{service: merged, labels: {version: v1}, circuitBreaker: {}}"),
                meshes.policy("mine", f"{{service: web, namespace: shop, {CLOSED}}}"),
                meshes.policy("web.shop", "{service: web, circuitBreaker: {}}"),
                meshes.policy("theirs.other", f"{{service: api, namespace: shop, {CLOSED}}}"),
                meshes.policy("own.shop", f"{{service: own, {CLOSED}}}"),
            )
        )


async def test_a_policy_may_be_for_a_part_of_a_service(world: policy_worlds.World):
    """Destinations with other labels, and with none, go on as before."""
    assert await world.reached("parts", x_version="v2") == "503"
    assert await world.reached("parts", x_version="v1") == "v1"
    assert set(await world.tally("parts", 20)) == set(VERSIONS)


async def test_a_part_may_be_taken_out_of_what_is_said_of_the_whole(world: policy_worlds.World):
    """A section of the policy with labels wins as a whole."""
    assert await world.reached("merged") == "503"
    assert await world.reached("merged", x_version="v2") == "503"
    assert await world.reached("merged", x_version="v1") == "v1"


async def test_a_policy_of_the_services_namespace_speaks_to_all_clients(
    world: policy_worlds.World,
):
    """Wherever they are."""
    assert await world.reached("own.shop") == "503"


async def test_a_policy_of_another_namespace_speaks_to_the_clients_there(
    world: policy_worlds.World,
):
    """It wins over the service's own for them, and does not count for others."""
    assert await world.reached("web.shop") == "503"
    assert await world.reached("api.shop") == "v1"
