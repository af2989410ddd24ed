# SPDX-License-Identifier: Apache-2.0
"""What DestinationPolicies say of places, as a real Envoy does it."""

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.model import keys
from tests.support import backends, policy_worlds, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

HERE = "eu/a"
CHECKED = (
    "healthCheck: {http: {path: /}, interval: 50ms, idleInterval: 50ms, unhealthyThreshold: 1,"
    " healthyThreshold: 1}"
)
SHARES = "locality: {distribution: {shares: [{from: eu, to: {eu/a: 70, eu: 0, us: 30}}]}}"
POLICIES = {
    "nearest": f"locality: {{failover: {{}}}}, {CHECKED}",
    "next": f"locality: {{failover: {{regions: [{{from: eu, to: us}}]}}}}, {CHECKED}",
    "shares": f"{SHARES}",
    "hashed-shares": f"{SHARES}, loadBalancer: {{policy: RING_HASH, hashBy: [{{header: x-key}}]}}",
    "alike": f"locality: {{failover: {{labels: [track, cell]}}}}, {CHECKED}",
    "set": f"locality: {{failover: {{labels: [cell=2]}}}}, {CHECKED}",
    "zones": "locality: {failover: {labels: [topology.kubernetes.io/zone]}}",
    "others": "locality: {distribution: {shares: [{from: us, to: {us: 1}}]}}",
}
PLACES = {"zone": "eu/a", "region": "eu/b", "us": "us/a", "asia": "asia/a"}
"""Where the backends are that have these names."""
LABELS = {
    "zone": keys.labels(track="canary", cell="1"),
    "region": keys.labels(track="canary", cell="2"),
    "us": keys.labels(track="stable", cell="1"),
    "asia": (),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Places(policy_worlds.World):
    """A world with backends in several places; each service has one in each."""

    backends: dict[str, backends.Backend]

    async def becomes(self, service: str, *names: str) -> None:
        """Wait until these backends, and no others, get the requests."""

        async def so() -> bool:
            return set(await self.tally(service, 20)) == set(names)

        await waiting.eventually(so, what=f"{service} reaches {names}")


@pytest_asyncio.fixture(loop_scope="module")
async def world() -> AsyncIterator[Places]:
    async with contextlib.AsyncExitStack() as stack:
        served = {name: await stack.enter_async_context(backends.backend(name)) for name in PLACES}
        there = [
            dataclasses.replace(policy_worlds.at(served[name].port, place), labels=LABELS[name])
            for name, place in PLACES.items()
        ]
        inside = await stack.enter_async_context(
            policy_worlds.running(
                dict.fromkeys((*POLICIES, "plain"), there),
                POLICIES,
                locality=policy_worlds.locality(HERE),
                labels=keys.labels(track="canary", cell="1"),
            )
        )
        yield Places(inside.envoy, inside.client, served)


async def test_without_a_policy_all_places_are_alike(world: Places):
    """Far endpoints get their part."""
    await world.becomes("plain", *PLACES)


async def test_the_nearest_healthy_endpoints_are_used(world: Places):
    """The zone's, then the region's, then all others; and back."""
    await world.becomes("nearest", "zone")
    world.backends["zone"].status = 503
    await world.becomes("nearest", "region")
    world.backends["region"].status = 503
    await world.becomes("nearest", "us", "asia")
    world.backends["zone"].status = 200
    await world.becomes("nearest", "zone")


async def test_a_region_has_its_next(world: Places):
    """When all of one's own region fails, the policy says which comes first."""
    world.backends["zone"].status = world.backends["region"].status = 503
    await world.becomes("next", "us")
    world.backends["us"].status = 503
    await world.becomes("next", "asia")


async def test_endpoints_that_agree_with_the_proxy_are_used(world: Places):
    """On all labels, then on the first; then come all others."""
    await world.becomes("alike", "zone")
    world.backends["zone"].status = 503
    await world.becomes("alike", "region")
    world.backends["region"].status = 503
    await world.becomes("alike", "us", "asia")


async def test_a_label_may_have_its_value_said(world: Places):
    """The same for every proxy."""
    await world.becomes("set", "region")
    world.backends["region"].status = 503
    await world.becomes("set", "zone", "us", "asia")


async def test_zones_may_count_as_labels(world: Places):
    """Whatever the region."""
    await world.becomes("zones", "zone", "us", "asia")


def _shared(tally: Counter[str], requests: int) -> bool:
    """Whether 70 % of the requests stayed, within five standard deviations."""
    deviation = 5 * math.sqrt(requests * 0.7 * 0.3)
    return set(tally) == {"zone", "us"} and abs(tally["zone"] - 0.7 * requests) <= deviation


async def test_requests_are_distributed_by_weight(world: Places):
    """Nothing goes where the weight is 0, and nothing where none is said."""
    tally = await world.at_once("shares", 300)
    assert _shared(tally, 300), tally


async def test_weights_of_places_count_for_hashes_too(world: Places):
    """A key has its endpoint, and 70 % of all keys have theirs near by."""
    once = [await world.reached("hashed-shares", x_key=str(key)) for key in range(200)]
    assert [await world.reached("hashed-shares", x_key=str(key)) for key in range(200)] == once
    assert _shared(Counter(once), 200), Counter(once)


async def test_proxies_that_no_share_is_for_treat_all_alike(world: Places):
    """As if there were no policy."""
    await world.becomes("others", *PLACES)
