# SPDX-License-Identifier: Apache-2.0
"""Retries at endpoints of another priority, and after a time."""

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from pilothouse.model import services
from tests.support import backends, meshes, stream_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

HERE, THERE = services.Locality(region="here"), services.Locality(region="there")
RULE = """{parents: [{service: web}], http: [
  {matches: [{path: {exact: /other}}],
   retry: {attempts: 1, retryOn: [5xx], otherPriorities: true}},
  {matches: [{path: {exact: /same}}],
   retry: {attempts: 2, retryOn: [5xx], previousHosts: true}},
  {matches: [{path: {exact: /soon}}],
   timeout: 10s, retry: {attempts: 1, retryOn: [5xx], previousHosts: true}},
  {matches: [{path: {exact: /late}}], timeout: 500ms,
   retry: {attempts: 1, retryOn: [5xx], previousHosts: true, backOff: {base: 10h}}}]}"""


class Place(NamedTuple):
    """A sidecar, and a backend that fails beside it, and one elsewhere that does not."""

    world: stream_worlds.World
    near: backends.Backend
    far: backends.Backend

    async def ask(self, path: str) -> tuple[int, int, int]:
        """The status, and how often each backend was asked for the path."""
        url = f"http://{self.world.envoy.address}:{self.world.envoy.port}{path}"
        async with (
            aiohttp.ClientSession() as client,
            client.get(url, headers={"host": "web"}) as answer,
        ):
            asked = (one.requests.count(f"GET {path}") for one in (self.near, self.far))
            return (answer.status, *asked)  # type: ignore[return-value]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with contextlib.AsyncExitStack() as stack:
        near, far = [
            await stack.enter_async_context(backends.backend(name)) for name in ("near", "far")
        ]
        near.status = 503
        world = await stack.enter_async_context(stream_worlds.world(locality=HERE))
        await world.give(
            meshes.service("web", 80),
            meshes.policy("web", "{service: web, locality: {failover: {}}}"),
            meshes.rule("web", RULE),
            endpoints={
                "web": [
                    meshes.endpoint("127.0.0.1", one.port, "http-80", locality=where)
                    for one, where in ((near, HERE), (far, THERE))
                ]
            },
        )
        yield Place(world, near, far)


async def test_a_retry_may_go_to_another_priority(place: Place):
    """Where the failing place is healthy enough for all first tries."""
    assert await place.ask("/other") == (200, 1, 1)


async def test_a_retry_stays_in_its_priority_otherwise(place: Place):
    """As often as it is tried."""
    assert await place.ask("/same") == (503, 3, 0)


async def test_a_retry_waits_for_its_time(place: Place):
    """The route's time is over before a long one is; by default it is short."""
    assert await place.ask("/soon") == (503, 2, 0)
    assert await place.ask("/late") == (504, 1, 0)
