# SPDX-License-Identifier: Apache-2.0
"""One bad object, file or port never harms another: seen from requests through real Envoys."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from pilothouse.model import keys, proxy
from tests.support import backends, fleet, load, waiting

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

API = "apiVersion: pilothouse.dev/v1alpha1\n"
_HUGE = "x" * 200_000


def _odd(match: str, *, destinations: str = "[{service: app}]") -> str:
    """Another rule for the same service."""
    return (
        f"{API}kind: RouteRule\nmetadata: {{name: odd}}\nspec:\n  parents: [{{service: app}}]\n"
        f"  http:\n  - matches: [{match}]\n    destinations: {destinations}\n"
    )


BAD = {
    "invalid": _odd("{}", destinations="[{service: app, weight: 0}]"),
    "regex": _odd("{path: {regex: '(?=a)'}}"),
    "regex-too-large": _odd("{path: {regex: '((a{100}){100}){100}'}}"),
    "unknown-field": _odd("{colour: blue}"),
    "no-yaml": "kind: [",
    "no-text": "\x00\x01\x02",
    "no-such-kind": f"{API}kind: Rule\nmetadata: {{name: odd}}\nspec: {{}}\n",
    "no-service": "apiVersion: v1\nkind: Service\nmetadata: {name: odd}\nspec: 7\n",
    "huge-header": _odd(f"{{headers: [{{name: x-odd, exact: {_HUGE}}}]}}"),
    "nobody-there": _odd("{path: {exact: /odd}}", destinations="[{service: nobody}]"),
}


@dataclasses.dataclass(slots=True)
class Mesh:
    """A fleet with one service of two versions, whose rule is good."""

    made: fleet.Fleet
    proxies: list[fleet.Proxy]

    async def turn(self, version: str, *, wait: bool = True) -> None:
        """Send everything to one version."""
        edge = fleet.rule("edge", {version: 1}, gateway="edge", service_name="app")
        await self.made.apply(
            {"rule.yaml": fleet.rule("app", {version: 1}), "edge.yaml": edge}, wait=wait
        )

    @contextlib.asynccontextmanager
    async def traffic(self) -> AsyncIterator[load.Load]:
        """Requests through every proxy, none of which may fail; all is as before afterwards."""
        await self.turn("v1")
        async with load.Load("app", self.proxies).flowing() as flowing:
            yield flowing
            await flowing.some()
        assert flowing.failed() == []
        (self.made.folder / "odd.yaml").unlink(missing_ok=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncIterator[Mesh]:
    """Sidecars and gateways, delta and state of the world."""
    async with contextlib.AsyncExitStack() as stack:
        applications = [
            await stack.enter_async_context(backends.backend(name)) for name in ("v1", "v2")
        ]
        pods = [fleet.pod("app", one.name, one.port) for one in applications]
        made = await stack.enter_async_context(
            fleet.fleet(
                {
                    "app.yaml": fleet.join(fleet.service("app"), *pods),
                    "gateway.yaml": fleet.gateway("edge", label="edge"),
                }
            )
        )
        await made.start()
        proxies = await stack.enter_async_context(
            made.envoys(proxy.Role.SIDECAR, proxy.Role.GATEWAY, labels=keys.labels(app="edge"))
        )
        yield Mesh(made, proxies)


@pytest.mark.parametrize("bad", sorted(BAD))
async def test_a_bad_object_is_left_out(mesh: Mesh, bad: str) -> None:
    """Requests go on beside it, and so do changes of the others."""
    async with mesh.traffic() as flowing:
        await mesh.made.apply({"odd.yaml": BAD[bad]}, wait=False)
        await mesh.turn("v2", wait=False)
        await flowing.until(lambda answer: answer.backend == "v2")


@pytest.mark.parametrize("bad", ["invalid", "regex", "no-yaml", "no-text"])
async def test_an_object_that_becomes_bad_stays_as_it_was(mesh: Mesh, bad: str) -> None:
    """The last good rule goes on being followed, and the next good one is taken."""
    async with mesh.traffic() as flowing:
        text = BAD[bad].replace("name: odd", "name: app")
        await mesh.made.apply({"rule.yaml": text}, wait=False)
        # A later change of another object shows that this one was looked at.
        await mesh.made.apply({"more.yaml": fleet.service(f"more-{bad}")}, wait=False)
        sidecars = [one for one in mesh.proxies if one.role is proxy.Role.SIDECAR]
        for one in sidecars:

            async def told(via: fleet.Proxy = one) -> bool:
                return f"outbound|80||more-{bad}.default" in await via.clusters()

            await waiting.eventually(told)
        assert {one.backend for one in await flowing.some()} == {"v1"}
        await mesh.turn("v2")
        assert {one.backend for one in await flowing.some()} == {"v2"}


async def test_a_port_that_is_taken_costs_its_listener_only(mesh: Mesh) -> None:
    """Envoy refuses a listener that it cannot bind; the other one goes on, and gets its changes.

    The object says who refused it. Once the port is free again, a changed listener is taken.
    """
    gateways = [one for one in mesh.proxies if one.role is proxy.Role.GATEWAY]
    port = fleet.GATEWAY_PORT + 1
    with contextlib.ExitStack() as taken:
        for one in gateways:
            held = taken.enter_context(socket.socket())
            held.bind((one.address, port))
            held.listen()
        two = fleet.gateway("edge", label="edge").replace(
            "listeners: [", f"listeners: [{{name: more, port: {port}, protocol: HTTP}}, "
        )
        key = keys.ObjectKey("MeshGateway", "default", "edge")
        async with mesh.traffic() as flowing:
            await mesh.made.apply({"gateway.yaml": two}, wait=False)

            def refused() -> bool:
                state = mesh.made.discovery.progress.states.get(key)
                return state is not None and state.counts.refused == len(gateways)

            await waiting.eventually(refused)
            await mesh.turn("v2", wait=False)
            await flowing.until(lambda answer: answer.backend == "v2")
            await mesh.turn("v1", wait=False)
            await flowing.until(lambda answer: answer.backend == "v1")
            one_again = fleet.gateway("edge", label="edge")
            await mesh.made.apply({"gateway.yaml": one_again})
            await mesh.turn("v2")
            assert {one.backend for one in await flowing.some()} == {"v2"}
