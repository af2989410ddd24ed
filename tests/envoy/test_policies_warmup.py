# SPDX-License-Identifier: Apache-2.0
"""The warm-up of DestinationPolicies, as a real Envoy does it."""

import asyncio

import pytest

from tests.support import backends, policy_worlds, waiting

pytestmark = pytest.mark.envoy

WINDOW = 3.0
CHECKED = (
    "healthCheck: {http: {path: /}, interval: 50ms, idleInterval: 50ms, unhealthyThreshold: 1,"
    " healthyThreshold: 1}"
)
POLICY = (
    f"loadBalancer: {{policy: ROUND_ROBIN, warmup: {{duration: 3s, minPercent: 10}}}}, {CHECKED}"
)
LONG_WINDOW = 10.0
AGGRESSIONS = {
    name: (
        "loadBalancer: {policy: ROUND_ROBIN, warmup: {duration: 10s, minPercent: 10,"
        f" aggression: {aggression}}}}}, {CHECKED}"
    )
    for name, aggression in (("eager", 10), ("shy", 0.1))
}


async def test_an_endpoint_warms_up():
    """One that is healthy again gets a tenth of its share at first, and all of it in the end."""
    clock = asyncio.get_running_loop().time
    async with (
        backends.backend("old") as old,
        backends.backend("new") as new,
    ):
        new.status = 503
        ports = [old.port, new.port]
        async with policy_worlds.running({"shop": ports}, {"shop": POLICY}) as world:
            began = clock()
            # The old one began with the proxy, and has its whole share only after a while.
            await waiting.eventually(lambda: clock() - began > WINDOW)
            assert await world.tally("shop", 10) == {"old": 10}
            new.status = 200
            recovered = clock()
            await waiting.eventually(lambda: _reached(world, "new"))
            first = await world.tally("shop", 40)
            assert first["old"] > 2 * first["new"] > 0, f"{clock() - recovered} s later"

            async def even() -> bool:
                return await world.tally("shop", 20) == {"old": 10, "new": 10}

            await waiting.eventually(even)
            assert clock() - recovered > WINDOW / 2


async def test_a_share_may_grow_fast_at_first_or_late():
    """Of two endpoints that came at the same time one has most of its share almost at once, and the
    other hardly any for most of the time."""
    clock = asyncio.get_running_loop().time
    async with (
        backends.backend("old") as old,
        backends.backend("new") as new,
    ):
        new.status = 503
        endpoints = dict.fromkeys(AGGRESSIONS, (old.port, new.port))
        async with policy_worlds.running(endpoints, AGGRESSIONS) as world:
            began = clock()
            await waiting.eventually(lambda: clock() - began > LONG_WINDOW)
            new.status = 200
            for service in AGGRESSIONS:
                await waiting.eventually(lambda service=service: _reached(world, "new", service))
            shy = await world.tally("shy", 40)
            eager = await world.tally("eager", 40)
            assert eager["new"] > 2 * shy["new"], (eager, shy)


async def _reached(world: policy_worlds.World, backend: str, service: str = "shop") -> bool:
    return await world.reached(service) == backend
