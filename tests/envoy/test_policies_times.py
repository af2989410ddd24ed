# SPDX-License-Identifier: Apache-2.0
"""Times that DestinationPolicies set, as a real Envoy keeps them.

Each is shown by what happens first, never by a clock.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import backends, policy_worlds, sockets, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

CHECK = "interval: 50ms, idleInterval: 50ms, unhealthyThreshold: 1"
# An endpoint is taken back at the end of an interval, and fails again long before the next ends:
# else Envoy would count the times in a row down.
LEFT_OUT = (
    "loadBalancer: {policy: ROUND_ROBIN}, outlierDetection: {consecutive5xx: 1, interval: 1s,"
    " baseEjectionTime: 700ms"
)
POLICIES = {
    "bounded": f"{LEFT_OUT}, maxEjectionTime: 700ms}}",
    "growing": f"{LEFT_OUT}}}",
    "hurried": "connectTimeout: 100ms",
    "patient": "connectTimeout: 30s",
    "short": f"healthCheck: {{http: {{path: /hold}}, timeout: 50ms, {CHECK}}}",
    "long": f"healthCheck: {{http: {{path: /hold}}, timeout: 30s, {CHECK}}}",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Late(policy_worlds.World):
    """A world with endpoints that do not answer."""

    asked: backends.Backend
    """It is asked how it is, and holds its answer back when told."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[Late]:
    async with contextlib.AsyncExitStack() as stack:
        good = await stack.enter_async_context(backends.backend("good"))
        bad = await stack.enter_async_context(backends.backend("bad"))
        bad.status = 503
        asked = await stack.enter_async_context(backends.backend("asked"))
        asked.release.set()
        deaf = stack.enter_context(sockets.deaf())
        inside = await stack.enter_async_context(
            policy_worlds.running(
                {
                    **dict.fromkeys(("hurried", "patient"), (deaf,)),
                    **dict.fromkeys(("short", "long"), (asked.port,)),
                    **dict.fromkeys(("bounded", "growing"), (good.port, bad.port)),
                },
                POLICIES,
            )
        )
        yield Late(inside.envoy, inside.client, asked)


async def test_a_connection_is_given_up_in_time(world: Late):
    """One that is asked for later, with a shorter time, fails first."""
    patient = asyncio.create_task(world.reached("patient"))
    try:
        await waiting.eventually(lambda: world.counter("patient", "upstream_cx_active"))
        assert await world.reached("hurried") == "503"
        assert await world.counter("hurried", "upstream_cx_connect_timeout") > 0
        assert not patient.done()
        assert await world.counter("patient", "upstream_cx_connect_timeout") == 0
    finally:
        patient.cancel()
        await asyncio.wait((patient,))


async def test_the_time_that_an_endpoint_is_left_out_has_a_bound(world: Late):
    """It grows with every time in a row; where it is bounded, there are many more of them."""

    async def times(service: str) -> int:
        return await world.counter(service, "outlier_detection.ejections_enforced_total")

    async def many() -> bool:
        for service in ("bounded", "growing"):
            await world.tally(service, 4)
        return await times("bounded") >= 10

    await waiting.eventually(many, 60)
    assert 1 < await times("growing") <= 7


async def test_a_check_fails_when_its_answer_takes_too_long(world: Late):
    """With a longer time, the first one still waits when many others have failed."""

    async def counts(service: str) -> list[int]:
        kinds = ("attempt", "success", "failure")
        return [await world.counter(service, f"health_check.{kind}") for kind in kinds]

    async def many() -> bool:
        _, _, failures = await counts("short")
        return failures >= 5

    world.asked.release.clear()
    await waiting.eventually(many)

    async def one_waits() -> bool:
        attempts, successes, failures = await counts("long")
        assert failures == 0
        return attempts - successes == 1

    await waiting.eventually(one_waits)
