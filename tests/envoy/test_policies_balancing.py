# SPDX-License-Identifier: Apache-2.0
"""The plain ways of DestinationPolicies to choose an endpoint, as a real Envoy has them."""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import backends, policy_worlds, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

POLICIES = {
    "busy": "loadBalancer: {policy: LEAST_REQUEST}",
    "any": "loadBalancer: {policy: RANDOM}",
    "turns": "loadBalancer: {policy: ROUND_ROBIN}",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Two(policy_worlds.World):
    """A world with two endpoints for each service."""

    slow: backends.Backend


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[Two]:
    async with backends.backend("slow") as slow, backends.backend("quick") as quick:
        quick.release.set()  # only the other one holds what it is asked to hold
        endpoints = dict.fromkeys((*POLICIES, "unsaid"), (slow.port, quick.port))
        async with policy_worlds.running(endpoints, POLICIES) as inside:
            yield Two(inside.envoy, inside.client, slow)


@pytest.mark.parametrize("service", ["busy", "unsaid"])
async def test_least_request_spares_the_busy(world: Two, service: str):
    """Of two picked at random the less busy: it gets a quarter, where both picks hit it.

    It is also what is done where no policy speaks.
    """
    before = len(world.slow.requests)
    world.slow.release.clear()
    held = asyncio.create_task(world.at_once(service, 20, "/hold"), name="held")
    await waiting.eventually(lambda: len(world.slow.requests) > before)
    try:
        tally = await world.tally(service, 400)
    finally:
        world.slow.release.set()
    await held
    assert 0 < tally["slow"] < 160, tally  # a quarter and five standard deviations


async def test_random_takes_no_turns(world: Two):
    """Both are reached, and one of them twice in a row soon enough."""
    reached = [await world.reached("any") for _ in range(60)]
    assert set(reached) == {"slow", "quick"}
    assert any(one == other for one, other in itertools.pairwise(reached))


async def test_round_robin_takes_turns_from_the_policy_on(world: Two):
    """Never the same twice in a row."""
    reached = [await world.reached("turns") for _ in range(20)]
    assert all(one != other for one, other in itertools.pairwise(reached))
