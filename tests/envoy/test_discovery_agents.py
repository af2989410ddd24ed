# SPDX-License-Identifier: Apache-2.0
"""The same promises with real agents between discovery and Envoy, in both variants."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.support import agent, backends, fleet, waiting

pytestmark = pytest.mark.envoy


@dataclasses.dataclass(slots=True)
class Sidecar:
    """A sidecar with its agent."""

    running: agent.Agent
    url: str
    """Of its HTTP proxy."""

    async def get(self, session: aiohttp.ClientSession) -> str:
        """Which application answers; else the status."""
        async with session.get("http://app/", proxy=self.url) as answer:
            if answer.status != 200:
                return str(answer.status)
            return str((await answer.json())["backend"])


@contextlib.asynccontextmanager
async def _sidecar(mesh: fleet.Fleet, variant: str) -> AsyncIterator[Sidecar]:
    address = f"127.{mesh.block.number}.4.1"
    folder = mesh.home / f"agent{variant}"
    folder.mkdir()
    flags = ("--bind-address", address, "--discovery-address", mesh.grpc, variant)
    async with agent.agent(folder, *flags) as running:
        yield Sidecar(running, f"http://{address}:{fleet.SIDECAR_PORT}")


@pytest.mark.parametrize("variant", ["--delta", "--no-delta"])
async def test_changes_and_a_restart_behind_an_agent(variant: str) -> None:
    """It may start before discovery; changes, a restart and changes during it lose no request."""
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(backends.backend("v1"))
        second = await stack.enter_async_context(backends.backend("v2"))
        pods = [fleet.pod("app", one.name, one.port) for one in (first, second)]
        mesh = await stack.enter_async_context(
            fleet.fleet(
                {
                    "app.yaml": fleet.join(fleet.service("app"), *pods),
                    "rule.yaml": fleet.rule("app", {"v1": 1}),
                }
            )
        )
        sidecar = await stack.enter_async_context(_sidecar(mesh, variant))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        await sidecar.running.envoy_pid()
        await mesh.start()
        await sidecar.running.ready()

        async def turns_to(name: str, *before: str) -> None:
            """Every answer until then is one that was right before."""

            async def turned() -> bool:
                answer = await sidecar.get(session)
                if answer not in (name, *before):
                    raise ValueError(f"{answer} instead of {name}")
                return answer == name

            await waiting.eventually(turned, what=f"{name} answers")

        assert await sidecar.get(session) == "v1"
        for name, before in (("v2", "v1"), ("v1", "v2")):
            await mesh.apply({"rule.yaml": fleet.rule("app", {name: 1})}, wait=False)
            await turns_to(name, before)

        await mesh.stop()
        assert await sidecar.get(session) == "v1"
        rule = fleet.rule("app", {"v1": 1, "v2": 1})
        await mesh.apply({"rule.yaml": rule}, wait=False)
        await mesh.start()
        await turns_to("v2", "v1")
        assert (await sidecar.running.readiness())["code"] == 200
