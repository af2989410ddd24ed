# SPDX-License-Identifier: Apache-2.0
"""The warm-up of DestinationPolicies, as a real Envoy does it."""

import asyncio

import pytest

from tests.support import backends, policy_worlds, waiting

pytestmark = pytest.mark.envoy

WINDOW = 3.0
POLICY = (
    "loadBalancer: {policy: ROUND_ROBIN, warmup: {duration: 3s, minPercent: 10}},"
    " healthCheck: {http: {path: /}, interval: 50ms, idleInterval: 50ms, unhealthyThreshold: 1,"
    " healthyThreshold: 1}"
)


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


async def _reached(world: policy_worlds.World, backend: str) -> bool:
    return await world.reached("shop") == backend
