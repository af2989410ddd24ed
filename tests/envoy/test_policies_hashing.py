# SPDX-License-Identifier: Apache-2.0
"""Consistent hashing by DestinationPolicies, as a real Envoy does it."""

import contextlib
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

import pytest
import pytest_asyncio

from tests.support import backends, policy_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


def by(keys: str, policy: str = "RING_HASH", more: str = "") -> str:
    return f"loadBalancer: {{policy: {policy}, hashBy: [{keys}]{more}}}"


POLICIES = {
    "ring": by("{header: X-Key}"),
    "maglev": by("{header: X-Key}", "MAGLEV"),
    "query": by("{queryParameter: user}"),
    "source": by("{sourceIp: true}"),
    "cookie": by("{cookie: {name: seat}}"),
    "sticky": by("{cookie: {name: seat, ttl: 1h, path: /shop}}"),
    "session": by("{cookie: {name: seat, ttl: 0s}}"),
    "attributes": by(
        "{cookie: {name: seat, ttl: 1h, domain: Shop.example, sameSite: NONE, secure: true,"
        " partitioned: true}}"
    ),
    "lax": by("{cookie: {name: seat, ttl: 1h, sameSite: LAX}}"),
    "first": by("{header: x-first}, {header: x-second}"),
    "small-ring": by("{header: x-key}", more=", ringMinSize: 3"),
    "big-ring": by("{header: x-key}", more=", ringMinSize: 4096"),
    "small-table": by("{header: x-key}", "MAGLEV", ", maglevTableSize: 11"),
}
KEYS = [f"key-{number}" for number in range(30)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[policy_worlds.World]:
    async with contextlib.AsyncExitStack() as stack:
        served = [
            await stack.enter_async_context(backends.backend(name)) for name in ("a", "b", "c")
        ]
        endpoints = {name: [one.port for one in served] for name in POLICIES}
        yield await stack.enter_async_context(policy_worlds.running(endpoints, POLICIES))


@pytest.mark.parametrize("service", ["ring", "maglev"])
async def test_equal_keys_reach_the_same_endpoint(world: policy_worlds.World, service: str):
    """However often they are asked; and different keys are spread over all endpoints."""
    once = [await world.reached(service, x_key=key) for key in KEYS]
    assert [await world.reached(service, x_key=key) for key in KEYS] == once
    assert set(once) == {"a", "b", "c"}


@pytest.mark.parametrize("service", ["ring", "maglev", "query", "cookie"])
async def test_without_a_key_any_endpoint_will_do(world: policy_worlds.World, service: str):
    """Requests are spread, not failed."""
    assert set(await world.tally(service, 40)) == {"a", "b", "c"}


async def test_the_key_may_be_a_query_parameter(world: policy_worlds.World):
    """And nothing else of the path."""
    reached = {
        key: {await world.reached("query", f"/{n}?user={key}&n={n}") for n in range(4)}
        for key in KEYS
    }
    assert {len(some) for some in reached.values()} == {1}
    assert set.union(*reached.values()) == {"a", "b", "c"}


async def test_the_key_may_be_the_clients_address(world: policy_worlds.World):
    """All requests of this machine are alike."""
    assert len(await world.tally("source", 20)) == 1


async def test_the_key_may_be_a_cookie(world: policy_worlds.World):
    """One that the application sets; without a lifetime the proxy never sets it itself."""
    async with world.ask("cookie") as answer:
        assert "set-cookie" not in answer.headers
    reached = {key: set(await world.tally("cookie", 4, cookie=f"seat={key}")) for key in KEYS}
    assert {len(some) for some in reached.values()} == {1}
    assert set.union(*reached.values()) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("service", "age", "path"), [("sticky", "3600", "/shop"), ("session", "", "")]
)
async def test_a_cookie_with_a_lifetime_is_set(
    world: policy_worlds.World, service: str, age: str, path: str
):
    """A client that keeps it stays where it was."""
    async with world.ask(service) as answer:
        cookie = SimpleCookie(answer.headers["set-cookie"])["seat"]
        first = (await answer.json())["backend"]
    assert (cookie["max-age"], cookie["path"]) == (age, path)
    assert await world.tally(service, 10, cookie=f'seat="{cookie.value}"') == {first: 10}


async def test_a_cookie_that_is_set_has_its_attributes(world: policy_worlds.World):
    """They tell a browser when to send it; none is there that the policy does not name."""
    found = {}
    for service in ("attributes", "lax", "session"):
        async with world.ask(service) as answer:
            _, *parts = answer.headers["set-cookie"].split("; ")
            found[service] = {*parts} - {"HttpOnly", "Max-Age=3600"}
    assert found == {
        "attributes": {"Domain=shop.example", "SameSite=None", "Secure", "Partitioned"},
        "lax": {"SameSite=Lax"},
        "session": set(),
    }


async def test_the_first_key_that_a_request_has_counts_alone(world: policy_worlds.World):
    """The second counts where the first is missing."""
    for key in KEYS[:10]:
        alone = await world.reached("first", x_first=key)
        assert {await world.reached("first", x_first=key, x_second=one) for one in KEYS} == {alone}
    assert len({await world.reached("first", x_second=one) for one in KEYS}) == 3


@pytest.mark.parametrize(("service", "size"), [("small-ring", 3), ("big-ring", 4096)])
async def test_the_ring_has_its_size(world: policy_worlds.World, service: str, size: int):
    """Three endpoints share its places; a whole share each makes a few more."""
    assert size <= await world.counter(service, "ring_hash_lb.size") <= size + 3


async def test_the_table_has_its_size(world: policy_worlds.World):
    """Eleven entries among three endpoints: four at most for one of them, three at least."""
    found = [
        await world.counter("small-table", f"maglev_lb.{end}_entries_per_host")
        for end in ("min", "max")
    ]
    assert found == [3, 4]
