# SPDX-License-Identifier: Apache-2.0
"""Faults of RouteRules, as a real Envoy injects them."""

import asyncio
import math
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


def faulty(fault: str) -> str:
    return f"{{destinations: [{{service: one}}], fault: {fault}}}"


ABORT = "abort: {httpStatus: 418}"
RULES = {
    "abort": faulty(f"{{{ABORT}}}"),
    "half": faulty("{abort: {httpStatus: 418, percent: 50}}"),
    "rare": faulty("{abort: {httpStatus: 418, percent: 0.0001}}"),
    "never": faulty("{abort: {httpStatus: 418, percent: 0}}"),
    "grpc": faulty("{abort: {grpcStatus: RESOURCE_EXHAUSTED}}"),
    "some": faulty(f"{{{ABORT}, headers: [{{name: x-fail, exact: 'yes'}}]}}"),
    "slow": faulty("{delay: {duration: 300ms}}"),
    "slow-and-failing": faulty(f"{{delay: {{duration: 300ms}}, {ABORT}}}"),
    "slow-in-time": "{timeout: 200ms, destinations: [{service: one}],"
    " fault: {delay: {duration: 300ms}}}",
    "redirect": f"{{redirect: {{path: /new}}, fault: {{{ABORT}}}}}",
    "healthy": "{destinations: [{service: one}]}",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.sidecar(RULES) as made:
        yield made


async def test_aborts(world: rule_worlds.World):
    """The error for every request; the backend sees none, and no other route fails."""
    before = len(world.backends["one"].requests)
    assert await world.tally("abort", 5) == {"418": 5}
    assert len(world.backends["one"].requests) == before
    assert await world.reached("healthy") == "one"


async def test_aborts_of_a_share(world: rule_worlds.World):
    """Half is half; what is rare does not happen in a few hundred requests, and 0 never."""
    tally = await world.tally("half", 300)
    assert abs(tally["418"] - 150) <= 5 * math.sqrt(300 / 4)
    assert await world.tally("rare", 500) == {"one": 500}
    assert await world.tally("never", 50) == {"one": 50}


async def test_aborts_with_a_grpc_status(world: rule_worlds.World):
    """A gRPC client gets the status as gRPC has it; requests of others are no business of it."""
    async with world.ask("grpc", headers={"content-type": "application/grpc"}) as answer:
        assert (answer.status, answer.headers["grpc-status"]) == (200, "8")
    assert await world.reached("grpc") == "one"


async def test_faults_for_some(world: rule_worlds.World):
    """Only requests with the header."""
    assert await world.reached("some", headers={"x-fail": "yes"}) == "418"
    assert await world.reached("some", headers={"x-fail": "no"}) == "one"
    assert await world.reached("some") == "one"


@pytest.mark.parametrize(
    ("host", "reached"), [("slow", "one"), ("slow-and-failing", "418"), ("slow-in-time", "one")]
)
async def test_delays(world: rule_worlds.World, host: str, reached: str):
    """The answer is late by the delay, which is no part of a timeout."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert await world.reached(host) == reached
    assert loop.time() - begun >= 0.29


async def test_redirects_fail_too(world: rule_worlds.World):
    """A fault is for every request of its route, whatever would become of it."""
    assert await world.reached("redirect") == "418"
