# SPDX-License-Identifier: Apache-2.0
"""Limits of RouteRules, as a real Envoy enforces them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import rule_worlds, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


def limited(limit: str) -> str:
    return f"{{destinations: [{{service: one}}], {limit}}}"


RULES = {
    "three-an-hour": limited("rateLimit: {requests: 3, per: 1h}"),
    "burst": limited("rateLimit: {requests: 1, per: 1h, burst: 4}"),
    "filling": limited("rateLimit: {requests: 1, per: 100ms}"),
    "short": limited("maxRequestBytes: 1000"),
    "unlimited": limited("timeout: 10s"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.sidecar(RULES) as made:
        yield made


async def test_a_rate_limit(world: rule_worlds.World):
    """What is too much gets 429, on this route alone; a burst is what may come at once."""
    assert await world.tally("three-an-hour", 5) == {"one": 3, "429": 2}
    assert await world.tally("burst", 6) == {"one": 4, "429": 2}
    assert await world.tally("unlimited", 10) == {"one": 10}


async def test_a_rate_limit_lets_requests_through_again(world: rule_worlds.World):
    """After its period."""
    await world.tally("filling", 3)

    async def passes() -> bool:
        return await world.reached("filling") == "one"

    await waiting.eventually(passes, what="the next period lets a request through")


async def status(world: rule_worlds.World, host: str, size: int) -> int:
    async with world.ask(host, method="POST", data=b"x" * size) as answer:
        return answer.status


async def test_a_limit_for_bodies(world: rule_worlds.World):
    """What is as long as is allowed passes; what is longer never reaches the backend."""
    assert await status(world, "short", 1_000) == 200
    before = len(world.backends["one"].requests)
    assert await status(world, "short", 1_001) == 413
    assert await status(world, "short", 1_000_000) == 413
    assert len(world.backends["one"].requests) == before
    assert await status(world, "unlimited", 1_000_000) == 200


async def test_websockets_pass_a_limit_for_bodies(world: rule_worlds.World):
    """They have no body that ends, so nothing waits for it."""
    url = world.envoy.url(world.listener, "/echo")
    async with world.client.ws_connect(url, headers={"host": "short"}) as socket:
        await socket.send_str("x" * 5_000)
        assert (await socket.receive_str(timeout=10)) == "x" * 5_000
