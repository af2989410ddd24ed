# SPDX-License-Identifier: Apache-2.0
"""A real Envoy refuses, and it costs the object that is to blame: nobody else, and no loop.

What is refused here passes our own checks: whether a script of Unicode exists is not among them,
and how large a program an Envoy lets an expression become is its own setting.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from pilothouse.config import schema
from pilothouse.envoy import bootstrap
from pilothouse.model import keys, proxy
from pilothouse.rollout import trials
from pilothouse.xds import types
from tests.support import backends, fleet, load, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="function")]

RDS = types.ROUTE.type_url
NAMES = ("alpha", "beta", "gamma", "delta")
UNKNOWN_SCRIPT = r"/\p{Nosuchscript}"
LARGE = "/[a-z]{200}"


def rule(name: str, version: str, regex: str = "") -> str:
    """Everything goes to one version; what an expression matches is looked for first."""
    destinations = f"destinations: [{{service: {name}, labels: {{version: {version}}}}}]"
    matched = (
        f"  - matches: [{{path: {{regex: '{regex}'}}}}]\n    {destinations}\n" if regex else ""
    )
    return (
        f"apiVersion: {schema.API_VERSION}\nkind: RouteRule\nmetadata: {{name: {name}}}\n"
        f"spec:\n  parents: [{{service: {name}}}]\n  http:\n{matched}  - {destinations}\n"
    )


def rules(version: str, **regexes: str) -> dict[str, str | None]:
    """All rules in one file: one change."""
    return {
        "rules.yaml": fleet.join(*(rule(name, version, regexes.get(name, "")) for name in NAMES))
    }


def key(name: str) -> keys.ObjectKey:
    return keys.ObjectKey("RouteRule", "default", name)


def told(made: fleet.Fleet, name: str, kind: str) -> tuple[bool, str, str]:
    """A condition's status, reason and message; AssertionError while there is none."""
    state = made.discovery.progress.states.get(key(name))
    assert state is not None, f"nothing is known of {name} yet"
    (found,) = (one for one in state.conditions if one.type == kind)
    return found.status, found.reason, found.message


async def refusals(made: fleet.Fleet) -> float:
    """How many responses were refused so far."""
    lines = (await made.get("/metrics")).splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("pilot_total_xds_rejects_total{")
    )


@pytest_asyncio.fixture
async def made() -> AsyncIterator[fleet.Fleet]:
    """Discovery, and services of two versions whose rules say v1."""
    async with contextlib.AsyncExitStack() as stack:
        files = {"rules.yaml": rules("v1")["rules.yaml"] or ""}
        versions = [
            await stack.enter_async_context(backends.backend(name)) for name in ("v1", "v2")
        ]
        for name in NAMES:
            pods = [fleet.pod(name, one.name, one.port) for one in versions]
            files[f"{name}.yaml"] = fleet.join(fleet.service(name), *pods)
        started = await stack.enter_async_context(fleet.fleet(files))
        await started.start()
        yield started


async def answers(service: str, proxies: list[fleet.Proxy]) -> set[str]:
    """Who answers requests to a service; each must be answered."""
    async with load.Load(service, proxies).flowing() as flowing:
        seen = {one.backend for one in await flowing.some(5)}
        assert flowing.failed() == []
    return seen


@pytest.mark.parametrize("bad", [{"beta"}, {"alpha", "delta"}])
async def test_the_good_ones_of_a_change_come_into_force(made: fleet.Fleet, bad: set[str]) -> None:
    """The bad ones stay as they were, with Envoy's words; nothing is sent again and again.

    Fixed, they come into force too.
    """
    good = sorted(set(NAMES) - bad)
    async with made.envoys(proxy.Role.SIDECAR) as proxies:
        await made.settled()
        before = (await made.responses())[RDS]
        async with contextlib.AsyncExitStack() as stack:
            flows = {
                name: await stack.enter_async_context(load.Load(name, proxies).flowing(workers=1))
                for name in NAMES
            }
            await made.apply(rules("v2", **dict.fromkeys(bad, UNKNOWN_SCRIPT)), wait=False)
            await flows[good[0]].until(lambda answer: answer.backend == "v2", 30)

            def settled() -> bool:
                held = {name for name in NAMES if not told(made, name, "Accepted")[0]}
                assert held == bad
                return all(client.in_sync for client in made.discovery.clients.proxies)

            await waiting.eventually(settled)
            # Whatever was tried, no request has suffered, to the good ones or to the bad ones.
            assert [one for flow in flows.values() for one in flow.failed()] == []
        for name in bad:
            status, reason, message = told(made, name, "Accepted")
            assert (status, reason) == (False, "RefusedByProxy")
            assert "Nosuchscript" in message
            assert message.endswith("; generation 1 stays in force")
            assert await answers(name, proxies) == {"v1"}
        for name in good:
            assert told(made, name, "Programmed")[0]
            assert await answers(name, proxies) == {"v2"}
        # One of the two is searched on. Each trial may take two: back to the routes that were
        # accepted while clusters come, and then the new ones.
        sent = (await made.responses())[RDS]
        assert sent - before <= 2 * (trials.bound(len(NAMES), len(bad)) + 2)

        # What is refused is not sent again: not by the next change, nor for any other reason.
        refused = await refusals(made)
        await made.apply({"more.yaml": fleet.service("more")}, wait=False)
        for one in proxies:

            async def has_more(via: fleet.Proxy = one) -> bool:
                return "outbound|80||more.default" in await via.clusters()

            await waiting.eventually(has_more)
        await waiting.eventually(settled)
        assert await refusals(made) == refused

        await made.apply(rules("v2"))
        for name in NAMES:
            assert await answers(name, proxies) == {"v2"}
            assert told(made, name, "Accepted")[0]


async def test_one_odd_envoy_holds_back_nobody(
    made: fleet.Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses what others run: it is held for it alone, and the object says so."""
    build = bootstrap.build

    def strict(parameters: Any) -> Any:
        built = build(parameters)
        for layer in built.layered_runtime.layers:
            if "re2" in layer.static_layer.fields:
                layer.static_layer.update({"re2": {"max_program_size": {"error_level": 50}}})
        return built

    async with contextlib.AsyncExitStack() as stack:
        plain = await stack.enter_async_context(made.envoy("plain", proxy.Role.SIDECAR))
        with monkeypatch.context() as patched:
            patched.setattr(bootstrap, "build", strict)
            odd = await stack.enter_async_context(made.envoy("odd", proxy.Role.SIDECAR))
        await made.settled()
        await made.apply(rules("v2", beta=LARGE), wait=False)

        def refused() -> bool:
            return told(made, "beta", "Programmed")[1] == "Refused" and all(
                client.in_sync for client in made.discovery.clients.proxies
            )

        await waiting.eventually(refused)
        assert told(made, "beta", "Accepted")[0]
        message = told(made, "beta", "Programmed")[2]
        assert message.startswith("1 of 2 proxies refused it: ")
        assert "odd.default" in message
        assert "program size" in message
        assert await answers("beta", [plain]) == {"v2"}
        assert await answers("beta", [odd]) == {"v1"}
        for name in set(NAMES) - {"beta"}:
            assert await answers(name, [plain, odd]) == {"v2"}
            assert told(made, name, "Programmed")[0]


async def test_after_a_restart_the_bad_one_holds_up_nobody(made: fleet.Fleet) -> None:
    """Nobody knows then how it was before, so it is left out; the proxies keep all others.

    In delta: a restarted server tells a client of the state of the world that old clusters are
    gone before it can know that routes lead there.
    """
    async with contextlib.AsyncExitStack() as envoys:
        proxies = [
            await envoys.enter_async_context(made.envoy(name, proxy.Role.SIDECAR))
            for name in ("one-delta", "two-delta")
        ]
        await made.settled()
        await made.apply(rules("v2", beta=UNKNOWN_SCRIPT), wait=False)
        await waiting.eventually(lambda: told(made, "beta", "Accepted")[1] == "RefusedByProxy")
        async with contextlib.AsyncExitStack() as stack:
            flows = [
                await stack.enter_async_context(load.Load(name, proxies).flowing(workers=1))
                for name in NAMES
            ]
            await made.stop()
            await made.start()

            def held() -> bool:
                assert len(made.discovery.clients.proxies) == len(proxies)
                assert told(made, "beta", "Programmed")[1] == "Refused"
                return all(client.in_sync for client in made.discovery.clients.proxies)

            await waiting.eventually(held, 45)
            await made.apply(rules("v1", beta=UNKNOWN_SCRIPT), wait=False)
            await flows[0].until(lambda answer: answer.backend == "v1", 30)
            assert [one for flow in flows for one in flow.failed()] == []
        await made.apply(rules("v2"))
        for name in NAMES:
            assert await answers(name, proxies) == {"v2"}
