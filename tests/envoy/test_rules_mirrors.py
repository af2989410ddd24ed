# SPDX-License-Identifier: Apache-2.0
"""Mirrors of RouteRules, as a real Envoy feeds them."""

import math
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import rule_worlds, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


def mirrored(*mirrors: str, more: str = "") -> str:
    return f"{{destinations: [{{service: one}}], mirrors: [{', '.join(mirrors)}]{more}}}"


TWO, THREE = "destination: {service: two}", "destination: {service: three}"
RULES = {
    "to-two": mirrored(f"{{{TWO}}}"),
    "to-both": mirrored(f"{{{TWO}}}", f"{{{THREE}, percent: 100}}"),
    "to-half": mirrored(f"{{{TWO}, percent: 50}}"),
    "to-none": mirrored(f"{{{TWO}, percent: 0}}"),
    "to-nowhere": mirrored("{destination: {service: gone}}", f"{{{TWO}}}"),
    "rewritten": mirrored(f"{{{TWO}}}", more=", rewrite: {prefix: /new}"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.sidecar(RULES) as made:
        yield made


async def copies(world: rule_worlds.World, path: str, wanted: dict[str, int]) -> None:
    """Wait until backends have seen exactly so many requests for a path, by backend."""

    def seen() -> bool:
        counted = Counter(
            name
            for name, backend in world.backends.items()
            for request in backend.requests
            if request.partition(" ")[2] == path
        )
        return counted == wanted

    await waiting.eventually(seen, what=f"requests for {path} are at {wanted}")


async def test_a_mirror_gets_copies_and_the_client_the_answer_of_the_destination(
    world: rule_worlds.World,
):
    """With method, path and query; several mirrors each get theirs."""
    assert await world.reached("to-two", "/copied?q=1", "POST") == "one"
    await copies(world, "/copied?q=1", {"one": 1, "two": 1})
    assert "POST /copied?q=1" in world.backends["two"].requests
    assert await world.reached("to-both", "/twice") == "one"
    await copies(world, "/twice", {"one": 1, "two": 1, "three": 1})


async def test_a_mirror_is_asked_for_the_same_host(world: rule_worlds.World):
    """So that it finds the same virtual host there."""
    await world.reached("to-two", "/host")
    await copies(world, "/host", {"one": 1, "two": 1})
    assert world.backends["two"].hosts["/host"] == "to-two"


async def test_a_share_of_requests(world: rule_worlds.World):
    """Half is half, and 0 is none; a later copy tells that earlier ones have come."""
    before = len(world.backends["two"].requests)
    assert await world.tally("to-half", 200) == {"one": 200}
    await world.tally("to-none", 20)
    await world.reached("to-two", "/last")
    await copies(world, "/last", {"one": 1, "two": 1})
    got = len(world.backends["two"].requests) - before - 1
    assert abs(got - 100) <= 5 * math.sqrt(200 / 4)


async def test_a_mirror_that_does_not_exist_costs_nothing(world: rule_worlds.World):
    """Requests and the other mirrors go on."""
    assert await world.reached("to-nowhere", "/others") == "one"
    await copies(world, "/others", {"one": 1, "two": 1})


async def test_a_copy_is_rewritten_as_the_request_is(world: rule_worlds.World):
    """What is sent on is what is copied."""
    assert await world.reached("rewritten", "/old") == "one"
    await copies(world, "/new/old", {"one": 1, "two": 1})
