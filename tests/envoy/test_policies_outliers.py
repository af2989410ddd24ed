# SPDX-License-Identifier: Apache-2.0
"""Outlier detection of DestinationPolicies, as a real Envoy does it."""

import contextlib
import dataclasses
import socket
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import backends, envoy_plans, policy_worlds, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

TURNS = "loadBalancer: {policy: ROUND_ROBIN}"
POLICIES = {
    "five-xx": f"{TURNS}, outlierDetection: {{consecutive5xx: 3}}",
    "returning": (
        f"{TURNS}, outlierDetection: {{consecutive5xx: 1, interval: 50ms, baseEjectionTime: 50ms}}"
    ),
    "gateway": f"{TURNS}, outlierDetection: {{consecutive5xx: 0, consecutiveGatewayErrors: 2}}",
    "refusing": (
        f"{TURNS}, outlierDetection: {{consecutive5xx: 0, consecutiveLocalOriginFailures: 2}}"
    ),
    "one-of-three": f"{TURNS}, outlierDetection: {{consecutive5xx: 1}}",
    "all-of-three": f"{TURNS}, outlierDetection: {{consecutive5xx: 1, maxEjectionPercent: 100}}",
    "alone": "outlierDetection: {consecutive5xx: 1}",
    "never-panics": "loadBalancer: {minHealthyPercent: 0}, outlierDetection: {consecutive5xx: 1}",
    "forgiving": TURNS,
    "throttling": (
        f"{TURNS}, outlierDetection: {{consecutive5xx: 3, failureStatuses: [{{first: 429}},"
        " {first: 500, last: 502}]}"
    ),
    "both": (
        f"{TURNS}, outlierDetection: {{consecutive5xx: 0, consecutiveGatewayErrors: 2,"
        " failureStatuses: [{first: 429}, {first: 502}]}"
    ),
}
ENDPOINTS = {
    "five-xx": ("good", "bad-1"),
    "returning": ("good", "returns"),
    "gateway": ("good", "bad-2"),
    "refusing": ("good", "refuses"),
    "one-of-three": ("bad-3", "bad-4", "bad-5"),
    "all-of-three": ("bad-3", "bad-4", "bad-5"),
    "alone": ("bad-3",),
    "never-panics": ("bad-3",),
    "forgiving": ("good", "bad-3"),
    "throttling": ("good", "bad-6"),
    "both": ("good", "bad-7"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Sick(policy_worlds.World):
    """A world with backends that fail."""

    backends: dict[str, backends.Backend]

    async def only_good(self, service: str) -> bool:
        """Whether ten requests in turns reach the good endpoint only."""
        return await self.tally(service, 10) == {"good": 10}

    async def ejected(self, service: str) -> int:
        """How many endpoints are left out."""
        return await self.counter(service, "outlier_detection.ejections_active")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[Sick]:
    async with contextlib.AsyncExitStack() as stack:
        names = sorted({name for some in ENDPOINTS.values() for name in some} - {"refuses"})
        served = {name: await stack.enter_async_context(backends.backend(name)) for name in names}
        for name in names:
            served[name].status = 503 if name.startswith("bad") else 200
        # Bound and not listening: whoever connects is refused, for as long as we hold it.
        refusing = stack.enter_context(socket.socket())
        refusing.bind((envoy_plans.LOOPBACK, 0))
        ports = {name: served[name].port for name in names} | {"refuses": refusing.getsockname()[1]}
        inside = await stack.enter_async_context(
            policy_worlds.running(
                {name: [ports[one] for one in some] for name, some in ENDPOINTS.items()}, POLICIES
            )
        )
        yield Sick(inside.envoy, inside.client, served)


async def test_without_outlier_detection_an_endpoint_may_fail_for_ever(world: Sick):
    """An unset section leaves nobody out."""
    assert await world.tally("forgiving", 20) == {"good": 10, "503": 10}


async def test_an_endpoint_that_answers_5xx_is_left_out(world: Sick):
    """After so many in a row, and not before."""
    assert await world.tally("five-xx", 4) == {"good": 2, "503": 2}
    assert await world.ejected("five-xx") == 0
    await waiting.eventually(lambda: world.only_good("five-xx"))
    assert await world.ejected("five-xx") == 1


async def test_an_endpoint_comes_back_when_its_time_is_over(world: Sick):
    """It is tried again, and stays when it has recovered."""
    backend = world.backends["returns"]
    backend.status = 500
    assert (await world.tally("returning", 2))["500"] == 1
    await waiting.eventually(
        lambda: world.counter("returning", "outlier_detection.ejections_enforced_total")
    )
    backend.status = 200

    async def both() -> bool:
        return await world.tally("returning", 4) == {"good": 2, "returns": 2}

    await waiting.eventually(both)


async def test_which_answers_are_failures_is_for_the_policy_to_say(world: Sick):
    """Those and no others: what is not named may go on for ever."""
    bad = world.backends["bad-6"]
    assert await world.tally("throttling", 20) == {"good": 10, "503": 10}
    bad.status = 429
    await waiting.eventually(lambda: world.only_good("throttling"))


async def test_gateway_errors_count_as_far_as_they_are_failures(world: Sick):
    """429 is none of them, 503 none that the policy names; 502 is both."""
    bad = world.backends["bad-7"]
    for status in (503, 429):
        bad.status = status
        assert await world.tally("both", 20) == {"good": 10, str(status): 10}
    bad.status = 502
    await waiting.eventually(lambda: world.only_good("both"))


async def test_gateway_errors_may_count_alone(world: Sick):
    """A 500 is the application's own; 503 is what a gateway says."""
    bad = world.backends["bad-2"]
    bad.status = 500
    assert await world.tally("gateway", 20) == {"good": 10, "500": 10}
    bad.status = 503
    await waiting.eventually(lambda: world.only_good("gateway"))


async def test_failures_to_connect_may_count_apart(world: Sick):
    """No request fails (they are tried elsewhere), and soon nobody tries the one that refuses."""
    name = "outlier_detection.ejections_enforced_consecutive_local_origin_failure"
    assert set(await world.tally("refusing", 20)) == {"good"}
    await waiting.eventually(lambda: world.counter("refusing", name))
    tried = await world.counter("refusing", "upstream_cx_connect_fail")
    assert await world.tally("refusing", 20) == Counter(good=20)
    assert await world.counter("refusing", "upstream_cx_connect_fail") == tried


async def test_no_more_endpoints_are_left_out_than_the_policy_allows(world: Sick):
    """Unset is 10 %, which still means one; 100 % is all."""
    for service, allowed in (("one-of-three", 1), ("all-of-three", 3)):
        assert set(await world.tally(service, 9)) == {"503"}
        overflow = f"{service}: {allowed} left out"

        async def as_allowed(service: str = service, allowed: int = allowed) -> bool:
            return await world.ejected(service) == allowed

        await waiting.eventually(as_allowed, what=overflow)
        await world.tally(service, 9)
        assert await world.ejected(service) == allowed


async def test_with_too_few_healthy_endpoints_all_are_used(world: Sick):
    """Below half by default; with a minimum of 0 nobody is asked and Envoy answers itself."""
    for service in ("alone", "never-panics"):
        assert await world.reached(service) == "503"
        await waiting.eventually(lambda service=service: world.ejected(service))
    async with world.ask("alone") as answer:
        assert (await answer.json())["backend"] == "bad-3"

    async def answered_by_envoy() -> bool:
        async with world.ask("never-panics") as answer:
            return await answer.text() == "no healthy upstream"

    await waiting.eventually(answered_by_envoy)
