# SPDX-License-Identifier: Apache-2.0
"""Changes while requests flow: real Envoys of both variants, sidecars and gateways, and no errors.

Sources: "Eventual consistency considerations" in
https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol, and the product's promise that
any order of changes is safe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.model import keys, proxy
from tests.support import backends, fleet, load, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


@dataclasses.dataclass(slots=True)
class Shop:
    """A fleet with three versions of an application, and a service of its own for each test."""

    mesh: fleet.Fleet
    applications: dict[str, backends.Backend]
    proxies: list[fleet.Proxy]

    def ports(self, *versions: str) -> dict[str, int]:
        """Version to port."""
        return {version: self.applications[version].port for version in versions}

    def pods(self, name: str, *versions: str) -> str:
        """The pods of a service, one for each version."""
        return fleet.join(
            *(fleet.pod(name, version, port) for version, port in self.ports(*versions).items())
        )

    async def use(self, name: str, *versions: str) -> None:
        """Make a service with pods of these versions."""
        await self.mesh.apply(
            {
                f"{name}-service.yaml": fleet.service(name),
                f"{name}-pods.yaml": self.pods(name, *versions),
            }
        )

    def rules(self, name: str, **weights: int) -> dict[str, str | None]:
        """Files with one rule for the mesh and one for the gateway; none without weights."""
        return {
            f"{name}-rule.yaml": fleet.rule(name, weights) if weights else None,
            f"{name}-edge.yaml": fleet.rule(
                f"{name}-edge", weights or {"v1": 1}, gateway="edge", service_name=name
            ),
        }

    @contextlib.asynccontextmanager
    async def traffic(self, name: str) -> AsyncIterator[load.Load]:
        """Requests through every proxy while the block runs; it is good that none fails."""
        async with load.Load(name, self.proxies).flowing() as flowing:
            yield flowing
            await flowing.some()
        assert flowing.failed() == []
        await self.forget(name)

    async def forget(self, name: str) -> None:
        """Remove a service and all that was said of it."""
        for path in self.mesh.folder.glob(f"{name}-*"):
            path.unlink()
        await self.mesh.settled()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    """Two sidecars and two gateways, delta and state of the world, and three applications."""
    async with contextlib.AsyncExitStack() as stack:
        applications = {
            version: await stack.enter_async_context(backends.backend(version))
            for version in ("v1", "v2", "v3")
        }
        made = await stack.enter_async_context(
            fleet.fleet({"gateway.yaml": fleet.gateway("edge", label="edge")})
        )
        await made.start()
        proxies = await stack.enter_async_context(
            made.envoys(proxy.Role.SIDECAR, proxy.Role.GATEWAY, labels=keys.labels(app="edge"))
        )
        await made.settled()
        yield Shop(made, applications, proxies)


def _shares(answers: list[load.Answer]) -> dict[str, float]:
    return {
        version: sum(one.backend == version for one in answers) / len(answers)
        for version in ("v1", "v2", "v3")
    }


async def test_weights_move_from_one_version_to_another(shop: Shop) -> None:
    """90/10, 50/50, 0/100: the share follows, no request fails, nobody else answers."""
    allowed = load.Allowed("v1", "v2")
    await shop.use("weights", "v1", "v2", "v3")
    await shop.mesh.apply(shop.rules("weights", v1=90, v2=10))
    async with shop.traffic("weights") as flowing:
        for v1, v2 in ((90, 10), (50, 50), (0, 100)):
            allowed.change(*[name for name, share in (("v1", v1), ("v2", v2)) if share])
            await shop.mesh.apply(shop.rules("weights", v1=v1, v2=v2))
            allowed.settled()
            # The bounds are ten standard deviations away.
            assert _shares(await flowing.some(150))["v2"] == pytest.approx(v2 / 100, abs=0.2)
    assert allowed.wrong(flowing.answers) == []


async def test_a_rule_that_moves_on_twice_loses_nothing(shop: Shop) -> None:
    """v1, v2, v3: each cluster is new to the proxies when the route turns to it."""
    await shop.use("moving", "v1", "v2", "v3")
    await shop.mesh.apply(shop.rules("moving", v1=1))
    allowed = load.Allowed("v1")
    async with shop.traffic("moving") as flowing:
        for version in ("v2", "v3", "v1"):
            allowed.change(version)
            await shop.mesh.apply(shop.rules("moving", **{version: 1}))
            allowed.settled()
            assert {one.backend for one in await flowing.some()} == {version}
    assert allowed.wrong(flowing.answers) == []


async def test_a_rule_may_come_before_its_pods(shop: Shop) -> None:
    """The share of a version without endpoints is answered 503, that of the others is not.

    Once its pods are there nothing fails.
    """
    await shop.use("early", "v1")
    await shop.mesh.apply(shop.rules("early", v1=1))
    async with load.Load("early", shop.proxies).flowing() as flowing:
        await shop.mesh.apply(shop.rules("early", v1=1, v3=1))
        during = await flowing.some()
        assert {one.status for one in during} == {200, 503}
        assert {one.backend for one in during if one.good} == {"v1"}
        await shop.mesh.apply({"early-pods.yaml": shop.pods("early", "v1", "v3")})
        after = await flowing.some()
    assert {one.backend for one in after} == {"v1", "v3"}
    assert all(one.good for one in after)
    await shop.forget("early")


async def test_a_rule_comes_and_goes(shop: Shop) -> None:
    """With it v2 alone answers, without it every version does."""
    await shop.use("fickle", "v1", "v2")
    edge = {
        "fickle-edge.yaml": fleet.rule(
            "fickle-edge", {"v1": 1}, gateway="edge", service_name="fickle"
        )
    }
    await shop.mesh.apply(edge)
    mesh = fleet.rule("fickle", {"v2": 1})
    allowed = load.Allowed("v1", "v2")
    sidecars = [one for one in shop.proxies if one.role is proxy.Role.SIDECAR]
    async with load.Load("fickle", sidecars).flowing() as flowing:
        for _ in range(4):
            for text, names in ((mesh, ("v2",)), (None, ("v1", "v2"))):
                allowed.change(*names)
                await shop.mesh.apply({"fickle-rule.yaml": text})
                allowed.settled()
                assert {one.backend for one in await flowing.some(40)} == set(names)
    assert flowing.failed() == []
    assert allowed.wrong(flowing.answers) == []
    await shop.forget("fickle")


async def test_pods_are_replaced_one_by_one(shop: Shop) -> None:
    """The new one is held by every proxy before the old one goes: no request is lost."""
    async with contextlib.AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(backends.backend(f"replica-{number}"))
            for number in range(5)
        ]
        pods = [
            fleet.pod("rolling", "v1", one.port, suffix=str(number))
            for number, one in enumerate(replicas)
        ]
        await shop.mesh.apply(
            {
                "rolling-service.yaml": fleet.service("rolling"),
                "rolling-pods.yaml": fleet.join(pods[0], pods[1]),
                **shop.rules("rolling", v1=1),
            }
        )
        async with shop.traffic("rolling") as flowing:
            for number in range(3):
                after = pods[number + 1 : number + 3]
                await shop.mesh.apply({"rolling-pods.yaml": fleet.join(pods[number], *after)})
                await shop.mesh.apply({"rolling-pods.yaml": fleet.join(*after)})
                old = replicas[number]
                count = len(old.requests)
                await flowing.some(10)
                assert len(old.requests) - count <= 2 * len(shop.proxies), "it drains"
        assert {one.backend for one in flowing.answers} == {one.name for one in replicas}


async def test_thirty_changes_in_a_row(shop: Shop) -> None:
    """At random distances, most before the one before was acknowledged: nothing fails."""
    chance = random.Random(20)
    await shop.use("busy", "v1", "v2", "v3")
    await shop.mesh.apply(shop.rules("busy", v1=1))
    allowed = load.Allowed("v1")
    async with shop.traffic("busy") as flowing:
        for _ in range(30):
            names = chance.sample(["v1", "v2", "v3"], chance.choice((1, 1, 2)))
            allowed.change(*names)
            await shop.mesh.apply(shop.rules("busy", **dict.fromkeys(names, 1)), wait=False)
            await flowing.some(chance.choice((0, 1, 3, 10)))
        await shop.mesh.settled()
        allowed.settled()
        assert {one.backend for one in await flowing.some()} == set(names)
    assert allowed.wrong(flowing.answers) == []


@pytest.mark.parametrize("seed", range(3))
async def test_files_in_any_order(shop: Shop, seed: int) -> None:
    """A new version is a rule, pods and a policy; whatever comes first, nothing fails."""
    name = f"order{seed}"
    await shop.use(name, "v1")
    await shop.mesh.apply(shop.rules(name, v1=1))
    # A share without pods is answered 503 and rightly so: the rule comes last.
    steps: list[dict[str, str | None]] = [
        {f"{name}-pods.yaml": shop.pods(name, "v1", "v2")},
        {f"{name}-policy.yaml": fleet.policy(name, "connectTimeout: 3s")},
        {f"{name}-more.yaml": fleet.service(f"{name}-more")},
    ]
    random.Random(seed).shuffle(steps)
    async with shop.traffic(name) as flowing:
        for step in steps:
            await shop.mesh.apply(step, wait=False)
        await shop.mesh.apply(shop.rules(name, v2=1), wait=False)
        await shop.mesh.settled()
        assert {one.backend for one in await flowing.some()} == {"v2"}


async def test_a_changed_cluster_warms_at_once(shop: Shop) -> None:
    """Envoy warms it anew and needs its endpoints again, though these are as before.

    Unanswered it would wait for 15 s, its `initial_fetch_timeout`, and all other clusters with it.
    """
    await shop.use("warm", "v1")
    await shop.mesh.apply(shop.rules("warm", v1=1))
    key = "outbound|80|version=v1|warm.default"
    async with shop.traffic("warm") as flowing:
        for number in range(1, 4):
            text = fleet.policy("warm", f"connectTimeout: {number}s")
            await shop.mesh.apply({"warm-policy.yaml": text})
            for one in shop.proxies:

                async def warm(via: fleet.Proxy = one) -> bool:
                    return await via.stat("cluster_manager.warming_clusters") == 0

                await waiting.eventually(warm, 8, what="warm")
                assert (await one.clusters())[key] == {
                    f"127.0.0.1:{port}" for port in shop.ports("v1").values()
                }
            await flowing.some(10)


async def test_a_new_cluster_and_changed_endpoints_at_once(shop: Shop) -> None:
    """Both arrive, whatever the order of their files; a service without endpoints holds up none."""
    await shop.use("mixed", "v1")
    await shop.mesh.apply(shop.rules("mixed", v1=1))
    async with shop.traffic("mixed") as flowing:
        await shop.mesh.apply(
            {
                "mixed-pods.yaml": shop.pods("mixed", "v1", "v2"),
                "mixed-empty.yaml": fleet.service("mixed-empty"),
                "mixed-policy.yaml": fleet.policy("mixed", "connectTimeout: 4s"),
                **shop.rules("mixed", v1=1, v2=1),
            }
        )
        assert {one.backend for one in await flowing.some(40)} == {"v1", "v2"}
        sidecars = [one for one in shop.proxies if one.role is proxy.Role.SIDECAR]
        for one in sidecars:
            assert (await one.clusters())["outbound|80||mixed-empty.default"] == set()
