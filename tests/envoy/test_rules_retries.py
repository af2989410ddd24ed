# SPDX-License-Identifier: Apache-2.0
"""Retries of RouteRules, as a real Envoy makes them. Tests count requests by paths of their own."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


def retrying(retry: str) -> str:
    return f"{{destinations: [{{service: one}}], retry: {{backOff: {{base: 1ms}}, {retry}}}}}"


def at(path: str, retry: str) -> str:
    match = f"matches: [{{path: {{prefix: {path}}}}}]"
    return f"{{{match}, destinations: [{{service: one}}], retry: {{{retry}}}}}"


AGAIN = "backOff: {base: 1ms}, statusCodes: [409]"
RULES = {
    "codes": retrying("statusCodes: [409, 429]"),
    "headers": retrying("attempts: 3, responseHeaders: [{name: server, prefix: the-app}]"),
    "other-headers": retrying("responseHeaders: [{name: x-again, present: true}]"),
    "idle": retrying("perTryIdleTimeout: 100ms, attempts: 1, retryOn: [gateway-error]"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.sidecar(RULES) as made:
        yield made


async def tries(world: rule_worlds.World, host: str, path: str) -> tuple[str, int]:
    """The answer, and how often the backend was asked for the path."""
    answer = await world.reached(host, path)
    return answer, world.backends["one"].requests.count(f"GET {path}")


async def test_statuses_that_count_as_failed(world: rule_worlds.World):
    """These and no others; two retries as without a rule."""
    assert await tries(world, "codes", "/codes/status/409") == ("409", 3)
    assert await tries(world, "codes", "/codes/status/429") == ("429", 3)
    assert await tries(world, "codes", "/codes/status/503") == ("503", 1)


async def test_headers_that_count_as_failed(world: rule_worlds.World):
    """Whatever the status."""
    assert await tries(world, "headers", "/headers") == ("one", 4)
    assert await tries(world, "other-headers", "/other-headers") == ("one", 1)


async def test_a_try_in_which_nothing_moves_is_given_up(world: rule_worlds.World):
    """And tried again, as often as is allowed."""
    assert await tries(world, "idle", "/idle/hold") == ("504", 2)


async def test_routes_of_one_host_that_retry_alike() -> None:
    """They are told with their host, and each of them retries; beside one that does not, neither
    does more nor less than it says."""
    rules = {
        "alike": f"{at('/alike/a', AGAIN)}, {at('/alike/b', AGAIN)}",
        "unlike": f"{at('/unlike/a', AGAIN)}, {at('/unlike/b', 'attempts: 0')}",
    }
    async with rule_worlds.gateway(rules) as edge:
        assert await tries(edge, "alike", "/alike/a/status/409") == ("409", 3)
        assert await tries(edge, "alike", "/alike/b/status/409") == ("409", 3)
        assert await tries(edge, "unlike", "/unlike/a/status/409") == ("409", 3)
        assert await tries(edge, "unlike", "/unlike/b/status/409") == ("409", 1)
