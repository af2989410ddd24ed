# SPDX-License-Identifier: Apache-2.0
"""Zones weighed by their parts of clients and endpoints, as a real Envoy does it.

Zones are weighed by the cluster of peers that the bootstrap has, so bootstrap and xDS are real too.
"""

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable

import aiohttp
import pytest
import pytest_asyncio

from pilothouse.envoy import translate
from pilothouse.model import keys, proxy, services
from pilothouse.xds import resources
from tests.support import backends, fleet, meshes, policy_worlds, waiting, xds_server

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

HERE, THERE, FAR = "eu/a", "eu/b", "us/a"
CHECKED = (
    "healthCheck: {http: {path: /}, interval: 50ms, idleInterval: 50ms, unhealthyThreshold: 1,"
    " healthyThreshold: 1}"
)
POLICIES = {
    "aware": "locality: {zoneAware: {}}",
    "turns": "locality: {zoneAware: {}}, loadBalancer: {policy: ROUND_ROBIN}",
    "never": "locality: {zoneAware: {percent: 0}}",
    "few": "locality: {zoneAware: {}}",
    "few-enough": "locality: {zoneAware: {minEndpoints: 4}}",
    "regions": f"locality: {{zoneAware: {{minEndpoints: 1, failover: {{}}}}}}, {CHECKED}",
    "tracks": (
        f"locality: {{zoneAware: {{minEndpoints: 1, failover: {{labels: [track]}}}}}}, {CHECKED}"
    ),
    "failing": f"locality: {{zoneAware: {{failBelowMinHealthy: true}}}}, {CHECKED}",
    "desperate": f"locality: {{zoneAware: {{}}}}, {CHECKED}",
}
PLACES = {
    **{key: {HERE: 4, THERE: 4} for key in ("aware", "turns", "never", "plain")},
    **{key: {HERE: 2, THERE: 2} for key in ("few", "few-enough")},
    **{key: {HERE: 2, THERE: 2, FAR: 4} for key in ("regions", "tracks")},
    **{key: {HERE: 3, THERE: 3} for key in ("failing", "desperate")},
}
"""So many endpoints in each zone."""
TRACK = keys.labels(track="x")
"""A label of the client, and of all endpoints but the far ones."""


@dataclasses.dataclass(slots=True)
class Zones:
    """A proxy in a zone, and backends that are named by theirs."""

    host: xds_server.Host
    address: str
    client: aiohttp.ClientSession
    backends: dict[str, list[backends.Backend]]

    def peers(self, *places: str) -> None:
        """Say where the client's replicas are, of which the first is the proxy itself."""
        addresses = (self.address, "10.0.0.1")
        self.host.give(
            self._snapshot(
                meshes.endpoint(address, 80, locality=policy_worlds.locality(place))
                for address, place in zip(addresses, places, strict=False)
            )
        )

    def _snapshot(self, peers: Iterable[services.Endpoint]) -> resources.Snapshot:
        endpoints = {
            name: [
                dataclasses.replace(
                    policy_worlds.at(served.port, place), labels=() if place == FAR else TRACK
                )
                for place, count in zones.items()
                for served in self.backends[place][:count]
            ]
            for name, zones in PLACES.items()
        }
        mesh = meshes.mesh(
            *(meshes.service(name, meshes.port(80)) for name in (*PLACES, "client")),
            *(
                meshes.policy(name, f"{{service: {name}, {spec}}}")
                for name, spec in POLICIES.items()
            ),
            endpoints=endpoints | {"client": [*peers]},
        )
        planned = meshes.planned(
            mesh,
            meshes.sidecar(
                address=self.address,
                bind_address=self.address,
                outbound_port=fleet.SIDECAR_PORT,
                locality=policy_worlds.locality(HERE),
                labels=TRACK,
            ),
        )
        return translate.Translator().snapshot(planned, {})

    async def tally(self, service: str, requests: int) -> Counter[str]:
        """The zones that requests reach, or their statuses."""
        found: Counter[str] = Counter()
        for _ in range(requests):
            url = f"http://{self.address}:{fleet.SIDECAR_PORT}/"
            async with self.client.get(url, headers={"host": service}) as answer:
                ok = answer.status == 200
                found[(await answer.json())["backend"] if ok else str(answer.status)] += 1
        return found

    async def becomes(self, service: str, *zones: str) -> None:
        """Wait until requests reach these zones and no others."""

        async def so() -> bool:
            return set(await self.tally(service, 30)) == set(zones)

        await waiting.eventually(so, what=f"{service} reaches {zones}")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=fleet.VARIANTS)
async def zones(request: pytest.FixtureRequest) -> AsyncIterator[Zones]:
    host = xds_server.Host()
    async with contextlib.AsyncExitStack() as stack:
        served = {
            place: [await stack.enter_async_context(backends.backend(place)) for _ in range(4)]
            for place in (HERE, THERE, FAR)
        }
        made = await stack.enter_async_context(fleet.fleet())
        await stack.enter_async_context(xds_server.serving_xds(host, made.grpc))
        address = f"127.{made.block.number}.3.1"
        client = await stack.enter_async_context(aiohttp.ClientSession())
        found = Zones(host, address, client, served)
        found.peers(HERE, THERE)
        await stack.enter_async_context(
            made.envoy(
                f"client-{request.param}",
                proxy.Role.SIDECAR,
                address=address,
                locality=policy_worlds.locality(HERE),
            )
        )
        await waiting.eventually(lambda: host.in_sync)
        yield found
        assert host.refused == []


@pytest.fixture(autouse=True)
def evenly(zones: Zones) -> None:
    zones.peers(HERE, THERE)
    for some in zones.backends.values():
        for one in some:
            one.status = 200


@pytest.mark.parametrize("service", ["aware", "turns", "few-enough"])
async def test_requests_stay_in_the_zone(zones: Zones, service: str):
    """Where half of the clients and half of the endpoints are in each."""
    await zones.becomes(service, HERE)


@pytest.mark.parametrize("service", ["plain", "never", "few"])
async def test_otherwise_zones_are_alike(zones: Zones, service: str):
    """Without a policy, with one for 0 %, and with fewer endpoints than it asks for."""
    await zones.becomes("aware", HERE)
    await zones.becomes(service, HERE, THERE)


async def test_what_is_too_much_for_the_zone_goes_elsewhere(zones: Zones):
    """With all clients in one zone, each of the two has half of the requests."""
    await zones.becomes("aware", HERE)
    zones.peers(HERE, HERE)
    await zones.becomes("aware", HERE, THERE)
    tally = await zones.tally("aware", 300)
    assert abs(tally[HERE] - 150) <= 5 * math.sqrt(300 * 0.25), tally


async def test_a_proxy_that_is_no_endpoint_treats_zones_alike(zones: Zones):
    """It has no peers to weigh them by."""
    await zones.becomes("aware", HERE)
    zones.peers()
    await zones.becomes("aware", HERE, THERE)


@pytest.mark.parametrize("service", ["regions", "tracks"])
async def test_others_come_when_those_of_the_proxys_own_kind_fail(zones: Zones, service: str):
    """Zones are weighed within its region, or among those that agree on labels."""
    await zones.becomes(service, HERE)
    for one in (*zones.backends[HERE], *zones.backends[THERE]):
        one.status = 503
    await zones.becomes(service, FAR)


async def test_with_too_few_healthy_endpoints_requests_may_fail(zones: Zones):
    """Where otherwise all endpoints are used, ill as they are."""
    await zones.becomes("failing", HERE)
    for one in (*zones.backends[HERE], *zones.backends[THERE]):
        one.status = 500
    await zones.becomes("failing", "503")
    await zones.becomes("desperate", "500")


async def test_a_proxy_that_knows_where_it_is_does_not_wait_for_its_peers():
    """Also where nobody weighs zones: it is told at once that there are none."""
    async with fleet.fleet({"web.yaml": fleet.service("web")}) as made:
        await made.start()
        for variant in fleet.VARIANTS:
            async with made.envoy(
                f"client-{variant}",
                proxy.Role.SIDECAR,
                locality=policy_worlds.locality(HERE),
            ) as envoy:
                await made.settled()
                assert await envoy.stat("cluster.pilothouse-peers.init_fetch_timeout") == 0
                assert await envoy.stat("cluster.pilothouse-peers.update_success") > 0
