# SPDX-License-Identifier: Apache-2.0
"""Discovery goes and comes back while requests flow through real Envoys of both variants.

What a restart must cost: nothing at all when nothing changed, for content hashes are versions; and
no request when something did, for the proxy says what it still holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.model import proxy
from tests.support import backends, fleet, load, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]
V1, V2 = (f"outbound|80|version={version}|app.default" for version in ("v1", "v2"))


class Mesh:
    """A fleet with one service of two versions."""

    def __init__(self, made: fleet.Fleet, *applications: backends.Backend) -> None:
        self.fleet = made
        self.applications = applications

    def files(self, **weights: int) -> dict[str, str | None]:
        """The service, its pods, and a rule."""
        pods = [fleet.pod("app", one.name, one.port) for one in self.applications]
        return {
            "app-service.yaml": fleet.service("app"),
            "app-pods.yaml": fleet.join(*pods),
            "app-rule.yaml": fleet.rule("app", weights),
        }

    @contextlib.asynccontextmanager
    async def traffic(self, **weights: int) -> AsyncIterator[load.Load]:
        """Requests under this rule, through every proxy."""
        everything = dict.fromkeys(path.name for path in self.fleet.folder.iterdir())
        await self.fleet.apply({**everything, **self.files(**weights)})
        async with load.Load("app", self.fleet.proxies).flowing() as flowing:
            yield flowing
            await flowing.some()

    @contextlib.asynccontextmanager
    async def away(self, flowing: load.Load) -> AsyncIterator[None]:
        """Discovery is stopped inside the block, and all are connected to a new one after it."""
        await self.fleet.stop()
        await flowing.some(5)
        yield
        await self.fleet.start()
        await self.fleet.settled(30)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncIterator[Mesh]:
    """Two sidecars, delta and state of the world, and two versions of an application."""
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(backends.backend("v1"))
        second = await stack.enter_async_context(backends.backend("v2"))
        made = await stack.enter_async_context(fleet.fleet())
        await made.start()
        await stack.enter_async_context(made.envoys(proxy.Role.SIDECAR))
        yield Mesh(made, first, second)


async def test_a_restart_that_changes_nothing_costs_nothing(mesh: Mesh) -> None:
    """No request fails, and no cluster and no listener is sent again in either variant."""
    async with mesh.traffic(v1=1) as flowing:
        async with mesh.away(flowing):
            before = {
                one.name: [
                    await one.stat("cluster_manager.cds.update_success"),
                    await one.stat("listener_manager.lds.update_success"),
                ]
                for one in mesh.fleet.proxies
            }
        written = await mesh.fleet.responses()
        assert (written.get(fleet.CDS, 0), written.get(fleet.LDS, 0)) == (0, 0)
        for one in mesh.fleet.proxies:
            now = [
                await one.stat("cluster_manager.cds.update_success"),
                await one.stat("listener_manager.lds.update_success"),
            ]
            assert now == before[one.name]
    assert flowing.failed() == []


@pytest.mark.parametrize(
    ("before", "after", "safe"),
    [
        ({"v1": 1}, {"v1": 1, "v2": 1}, fleet.VARIANTS),
        ({"v1": 1, "v2": 1}, {"v1": 1}, ("delta",)),
        ({"v1": 1}, {"v2": 1}, ("delta",)),
    ],
    ids=["added", "removed", "replaced"],
)
async def test_a_change_while_discovery_was_away(
    mesh: Mesh, before: dict[str, int], after: dict[str, int], safe: tuple[str, ...]
) -> None:
    """It arrives after the reconnect, clusters first, and no request fails.

    In state of the world a response holds all clusters and so takes away the old ones, which a
    restarted discovery does not know any more: while those are in use a request may fail.
    """
    allowed = load.Allowed(*before)
    async with mesh.traffic(**before) as flowing:
        async with mesh.away(flowing):
            allowed.change(*after)
            await mesh.fleet.apply(mesh.files(**after), wait=False)
        allowed.settled()
        answers = await flowing.some(40)
        assert {one.backend for one in answers} == set(after)
        for one in mesh.fleet.proxies:

            async def cleared(via: fleet.Proxy = one) -> bool:
                held = await via.clusters()
                return {V1, V2} & held.keys() == {
                    name for name, v in ((V1, "v1"), (V2, "v2")) if v in after
                }

            await waiting.eventually(cleared, what=f"{one.name} holds what is needed")
    assert allowed.wrong(flowing.answers) == []
    assert [one for one in flowing.failed() if one.proxy.endswith(safe)] == []
    assert [one for one in answers if not one.good] == []


async def test_a_changed_cluster_while_discovery_was_away(mesh: Mesh) -> None:
    """It warms in place with the endpoints that it had, at once."""
    async with mesh.traffic(v1=1) as flowing:
        async with mesh.away(flowing):
            text = fleet.policy("app", "connectTimeout: 7s")
            await mesh.fleet.apply({"app-policy.yaml": text}, wait=False)
        for one in mesh.fleet.proxies:

            async def warm(via: fleet.Proxy = one) -> bool:
                return await via.stat("cluster_manager.warming_clusters") == 0

            await waiting.eventually(warm, 8)
            assert V1 in await one.clusters()
    assert flowing.failed() == []


async def test_a_change_that_follows_the_reconnect_at_once(mesh: Mesh) -> None:
    """A newer change may overtake what is still being brought up to date."""
    async with mesh.traffic(v1=1) as flowing:
        async with mesh.away(flowing):
            await mesh.fleet.apply(mesh.files(v1=1, v2=1), wait=False)
        for _ in range(3):
            for weights in ({"v2": 1}, {"v1": 1}):
                await mesh.fleet.apply(mesh.files(**weights), wait=False)
                await flowing.some(1)
        await mesh.fleet.settled()
        assert {one.backend for one in await flowing.some()} == {"v1"}
    assert flowing.failed() == []
