# SPDX-License-Identifier: Apache-2.0
"""Limits of DestinationPolicies, as a real Envoy keeps them, from the policy's YAML on."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import backends, envoy_plans, policy_worlds, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

POLICIES = {
    "no-budget": "circuitBreaker: {retryBudget: {percent: 0, minConcurrency: 0}}",
    "budget": "circuitBreaker: {retryBudget: {percent: 0, minConcurrency: 1}}",
    "no-retries": "circuitBreaker: {maxRetries: 0}",
    "one-connection": "circuitBreaker: {maxConnections: 1, maxPendingRequests: 1}",
}
REFUSING = ("no-budget", "budget", "no-retries", "unlimited")


@pytest_asyncio.fixture(loop_scope="module")
async def backend() -> AsyncIterator[backends.Backend]:
    async with backends.backend("one") as served:
        yield served


@pytest_asyncio.fixture(loop_scope="module")
async def world(backend: backends.Backend) -> AsyncIterator[policy_worlds.World]:
    # Bound and not listening: whoever connects is refused, for as long as we hold it.
    with contextlib.closing(socket.socket()) as refusing:
        refusing.bind((envoy_plans.LOOPBACK, 0))
        endpoints = dict.fromkeys(REFUSING, (refusing.getsockname()[1],))
        endpoints["one-connection"] = (backend.port,)
        async with policy_worlds.running(endpoints, POLICIES) as inside:
            yield inside


@pytest.mark.parametrize(
    ("service", "retries"), [("unlimited", 2), ("budget", 2), ("no-budget", 0), ("no-retries", 0)]
)
async def test_retries_stay_within_their_budget(
    world: policy_worlds.World, service: str, retries: int
):
    """Nobody listens, so each request is tried again as long as that is allowed."""
    assert await world.reached(service) == "503"
    assert await world.counter(service, "upstream_rq_retry") == retries
    overflow = await world.counter(service, "upstream_rq_retry_overflow")
    assert (overflow > 0) is (retries == 0)


async def test_connections_and_waiting_requests_stay_within_their_limits(
    world: policy_worlds.World, backend: backends.Backend
):
    """One request has the connection, one waits for it, and the third fails at once."""
    first = asyncio.create_task(world.reached("one-connection", "/hold"), name="first")
    await waiting.eventually(lambda: backend.requests == ["GET /hold"])
    second = asyncio.create_task(world.reached("one-connection"), name="second")

    async def waits() -> int:
        return await world.counter("one-connection", "upstream_rq_pending_active")

    try:
        await waiting.eventually(waits)
        async with world.ask("one-connection") as answer:
            assert answer.status == 503
            assert answer.headers["x-envoy-overloaded"] == "true"
    finally:
        backend.release.set()
    assert (await first, await second) == ("one", "one")
    assert await world.counter("one-connection", "upstream_cx_total") == 1
