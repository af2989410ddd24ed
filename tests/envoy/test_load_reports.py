# SPDX-License-Identifier: Apache-2.0
"""Load reports of a real Envoy, through its agent: P62 of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from tests.support import agent, backends, fleet, waiting

pytestmark = pytest.mark.envoy
REQUESTS = 30


@pytest.mark.parametrize("failing", [False, True])
async def test_p62_an_envoy_reports_by_service(
    monkeypatch: pytest.MonkeyPatch, *, failing: bool
) -> None:
    """What succeeds and what fails, for the service that was asked, and for nothing else."""
    monkeypatch.setenv("PILOTHOUSE_LOAD_REPORT_INTERVAL", "1")
    async with contextlib.AsyncExitStack() as stack:
        # Nobody listens behind the failing one: Envoy counts a request that it could not deliver.
        port = agent.free_port()
        if not failing:
            port = (await stack.enter_async_context(backends.backend("v1"))).port
        mesh = await stack.enter_async_context(
            fleet.fleet(
                {
                    "app.yaml": fleet.join(fleet.service("app"), fleet.pod("app", "v1", port)),
                    "idle.yaml": fleet.service("idle"),
                }
            )
        )
        await mesh.start()
        address = f"127.{mesh.block.number}.4.1"
        flags = ("--bind-address", address, "--discovery-address", mesh.grpc, "--load-reports")
        running = await stack.enter_async_context(agent.agent(mesh.home, *flags))
        await running.ready()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        proxy = f"http://{address}:{fleet.SIDECAR_PORT}"

        async def loads() -> dict[str, Any]:
            page = json.loads(await mesh.get("/debug/loads"))
            return {one["service"]: one for one in page}

        async def listening() -> bool:
            return "app.default" in await loads()

        # Envoy counts from the moment at which it is told to.
        await waiting.eventually(listening, what="Envoy reports")

        async def ask() -> int:
            async with session.get("http://app/", proxy=proxy) as answer:
                return answer.status

        statuses = await asyncio.gather(*(ask() for _ in range(REQUESTS)))
        assert set(statuses) == ({503} if failing else {200})

        async def reported() -> bool:
            app = (await loads())["app.default"]
            assert app["failed" if failing else "succeeded"] >= REQUESTS
            return bool(app["inProgress"] == 0)

        await waiting.eventually(reported, what="all requests are reported")
        found = await loads()
        assert set(found) == {"app.default", "idle.default"}
        assert (found["app.default"]["succeeded"] == 0) is failing
        assert found["idle.default"]["issued"] == 0
