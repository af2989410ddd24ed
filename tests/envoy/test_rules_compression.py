# SPDX-License-Identifier: Apache-2.0
"""Compression by RouteRules, as a real Envoy at the edge does it."""

import gzip
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

TO_ONE = "{destinations: [{service: one}]"
LONG = {"x-long": "x" * 2_000}
"""The backend's answer repeats it."""
RULES = {
    "small.example.com": f"{TO_ONE}, compress: true}}",
    "plain.example.com": f"{TO_ONE}}}",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.gateway(RULES) as made:
        yield made


async def body(
    world: rule_worlds.World, host: str, accepted: str = "gzip", **headers: str
) -> tuple[str | None, bytes]:
    """The encoding of an answer, and its bytes as they come."""
    url = world.envoy.url(world.listener)
    async with (
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.get(url, headers={"host": host, "accept-encoding": accepted} | headers) as answer,
    ):
        assert answer.status == 200
        return answer.headers.get("content-encoding"), await answer.read()


async def test_answers_are_compressed(world: rule_worlds.World):
    """For a client that takes it, and who unpacks it has the whole."""
    encoding, packed = await body(world, "small.example.com", **LONG)
    assert encoding == "gzip"
    assert len(packed) < 1_000
    assert LONG["x-long"].encode() in gzip.decompress(packed)


async def test_what_is_not_compressed(world: rule_worlds.World):
    """For others, without the rule, and what is short."""
    assert (await body(world, "small.example.com", "identity", **LONG))[0] is None
    assert (await body(world, "plain.example.com", **LONG))[0] is None
    assert (await body(world, "small.example.com"))[0] is None
