# SPDX-License-Identifier: Apache-2.0
"""The loop that serves streams never builds, and goes on while something else does."""

from __future__ import annotations

import functools
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import aiohttp
import grpc
import pytest

from pilothouse.envoy import translate
from pilothouse.routing import planner
from pilothouse.xds import types
from pilothouse_discovery import world
from tests.component.discovery import conftest as support
from tests.support import folders, waiting

NODES = tuple(f"sidecar~10.0.0.{n}~client-{n}.default~cluster.local" for n in range(7, 10))
V1, V2 = (f"outbound|9080|version={v}|reviews.default" for v in ("v1", "v2"))
WORK: tuple[tuple[Any, str], ...] = (
    (world, "assemble"),
    (planner.Planner, "update"),
    (planner.Mesh, "plan"),
    (translate.Translator, "snapshot"),
    (translate.Translator, "begin_generation"),
)


def _before(patch: pytest.MonkeyPatch, owner: Any, name: str, first: Callable[[str], None]) -> None:
    """Have ``first`` called before each call of a function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        first(name)
        return original(*args, **kwargs)

    patch.setattr(owner, name, call)


async def _gets(proxy: support.Proxy, *clusters: str) -> None:
    """Wait until a proxy holds these clusters."""
    await waiting.eventually(lambda: set(clusters) <= proxy.names(types.CLUSTER))


async def test_nothing_is_planned_or_translated_on_the_loop(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for a change, and not for a proxy that comes; and always on one and the same thread."""
    seen: set[tuple[str, int]] = set()
    for owner, name in WORK:
        _before(monkeypatch, owner, name, lambda name: seen.add((name, threading.get_ident())))
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODES[0]) as one,
    ):
        await _gets(one, V1)
        async with support.connected(running.address, NODES[1]) as other:
            await _gets(other, V1)
            (folder / "rule.yaml").write_text(support.rule("v2"))
            for proxy in (one, other):
                await _gets(proxy, V2)
    assert {name for name, _ in seen} == {name for _, name in WORK}
    (builds_on,) = {thread for _, thread in seen}
    assert builds_on != threading.get_ident()


async def test_the_server_answers_while_it_builds(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that takes for ever holds nobody up; who comes meanwhile is served after it.

    Changes that come meanwhile are built together.
    """
    going, building = threading.Event(), threading.Event()
    going.set()
    updates: list[str] = []

    def wait(name: str) -> None:
        updates.append(name)
        building.set()
        assert going.wait(30.0)

    _before(monkeypatch, planner.Planner, "update", wait)
    async with support.serving(folder) as running:
        try:
            async with support.connected(running.address, NODES[0]) as early:
                await _gets(early, V1)
                going.clear()
                building.clear()
                (folder / "rule.yaml").write_text(support.rule("v2"))
                await waiting.eventually(building.is_set)
                so_far = len(updates)
                for replicas in (1, 2):
                    service = "apiVersion: v1\nkind: Service\nmetadata: {name: more-%d}\n"
                    ports = "spec: {ports: [{name: http, port: 80}]}\n"
                    (folder / f"more-{replicas}.yaml").write_text(service % replicas + ports)
                async with support.connected(running.address, NODES[1]) as late:
                    async with aiohttp.ClientSession() as session:
                        async with session.get(f"http://{running.http}/livez") as response:
                            assert response.status == 200
                        url = f"http://{running.http}/debug/clients"
                        await waiting.eventually(lambda: _count(session, url, 2))
                    known = running.server.engine._inputs.registries["registry"]
                    await waiting.eventually(lambda: len(known.current().services) == 3)
                    assert not late.names(types.CLUSTER)
                    going.set()
                    wanted = {V2, "outbound|80||more-1.default", "outbound|80||more-2.default"}
                    for proxy in (early, late):
                        await _gets(proxy, *wanted)
                    assert len(updates) == so_far + 1
        finally:
            going.set()


async def _count(session: aiohttp.ClientSession, url: str, expected: int) -> bool:
    async with session.get(url) as response:
        return len(await response.json()) == expected


async def test_a_proxy_that_cannot_be_planned_costs_no_other_one(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream ends with INTERNAL; the others go on, and get what is new."""
    original = planner.Mesh.plan

    def plan(self: planner.Mesh, proxy: Any, *, served: bool = False) -> Any:
        if proxy.id.name == "client-9":
            raise ValueError("a mistake of ours")
        return original(self, proxy, served=served)

    monkeypatch.setattr(planner.Mesh, "plan", plan)
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODES[0]) as good,
        support.connected(running.address, NODES[2]) as bad,
    ):
        await waiting.eventually(lambda: bad.ended)
        assert bad.ended is grpc.StatusCode.INTERNAL
        (folder / "rule.yaml").write_text(support.rule("v2"))
        await _gets(good, V2)


async def test_the_longest_hold_of_the_loop_is_told(folder: pathlib.Path) -> None:
    """There is a metric of it, in seconds, once something was built."""
    async with support.serving(folder) as running, aiohttp.ClientSession() as session:

        async def hold() -> float:
            async with session.get(f"http://{running.http}/metrics") as response:
                text = await response.text()
            name = "pilothouse_loop_longest_hold_seconds "
            (line,) = [one for one in text.splitlines() if one.startswith(name)]
            return float(line.removeprefix(name))

        assert 0 < await waiting.eventually(hold) < 30


SLICE = """apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: reviews, labels: {kubernetes.io/service-name: reviews}%s}
addressType: IPv4
ports: [{name: http, port: 9080}]
endpoints: [{addresses: [10.0.0.1]}]
"""


@pytest.mark.parametrize("name", ["rule.yaml", "reviews.yaml", "slice.yaml"])
async def test_a_change_of_metadata_alone_costs_nothing(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Annotations of a rule, a Service, a Pod or a slice: nothing is planned, nothing is sent."""
    updates: list[str] = []
    _before(monkeypatch, planner.Planner, "update", updates.append)
    (folder / "slice.yaml").write_text(SLICE % "")
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODES[0]) as proxy,
    ):
        await _gets(proxy, V1)
        await waiting.eventually(lambda: proxy.names(types.LISTENER))
        responses, builds = len(proxy.order), len(updates)
        looks: list[str] = []
        _before(monkeypatch, type(running.server._folder), "_take", looks.append)
        text = (folder / name).read_text()
        assert "metadata: {name: " in text
        annotated = text.replace("metadata: {", "metadata: {annotations: {a: b}, ")
        folders.replace(folder / name, annotated)
        content = running.server._folder
        await waiting.eventually(
            lambda: "annotations" in str(content._content.files[name].found[0].document.manifest)
        )
        await waiting.eventually(lambda: content._content.settled)
        assert looks
        # What comes after it is sent, and nothing was before that.
        (folder / "more.yaml").write_text(
            "apiVersion: v1\nkind: Service\nmetadata: {name: more}\n"
            "spec: {ports: [{name: http, port: 80}]}\n"
        )
        await _gets(proxy, "outbound|80||more.default")
        assert len(updates) == builds + 1
        assert proxy.order[responses] == types.CLUSTER.type_url
