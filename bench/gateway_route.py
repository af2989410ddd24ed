# SPDX-License-Identifier: Apache-2.0
"""One rule among many of a gateway gets a new route, and requests flow through a real Envoy.

Measured from the write of the file to the first answer of the new route, while others ask an old
route all the time. The client asks anew a millisecond after it is refused, so its own pace is in
the time.

The floor below it is what Envoy takes: the same resources again, finished before the clock starts
and served by the same protocol from this process, with nothing to watch, to read or to plan.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from bench import finished, meshes, processes, requests, results
from pilothouse.adapters import process
from pilothouse.envoy import bootstrap
from pilothouse.model import proxy

NAME = "gateway-route"
SECONDS = 60.0
PAUSE = 0.001
"""Seconds between an answer and the next request, of the load and of who waits for the route."""
REST = 0.2
"""Seconds between two changes, where nobody can say whether the server rests."""
_NODE = proxy.NodeId(role=proxy.Role.GATEWAY, address="127.0.0.1", name="edge", namespace="default")
_LABELS = (("app", "edge"),)


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """All numbers of rules; none where there is no Envoy."""
    try:
        process.find_envoy()
    except process.EnvoyNotFoundError as error:
        say(f"gateway-route is left out: {error}")
        return []
    rounds = chosen.rounds
    return [
        await size(rules, rounds, say) for rules in chosen.rules for size in (_pilothouse, _floor)
    ]


async def _pilothouse(rules: int, rounds: int, say: results.Say) -> results.Row:
    gateway = processes.free_address()
    async with _scene(rules, gateway) as folder:
        config = folder / "config"
        async with processes.discovery(config) as server, _envoy(folder, server.address):

            async def change(number: int) -> None:
                meshes.replace(config / "changing.yaml", _rule(0, _path(number)))

            say(f"gateway route: {rules} rules; {rounds} changes")
            # Not back to back: each change shall find the server at rest.
            return await _measure("pilothouse", rules, rounds, gateway, change, server.quiet)


async def _floor(rules: int, rounds: int, say: results.Say) -> results.Row:
    gateway = processes.free_address()
    async with _scene(rules, gateway) as folder:
        texts = [(folder / "config" / name).read_text() for name in ("mesh.yaml", "rules.yaml")]
        made = finished.Finished(proxy.Proxy(id=_NODE, labels=_LABELS, bind_address="127.0.0.1"))
        made.make([*texts, _rule(0, "/old")])
        for number in range(rounds):
            made.make([*texts, _rule(0, _path(number))])
        async with made.served() as server, _envoy(folder, server):

            async def change(_number: int) -> None:
                made.give_next()

            say(f"gateway route, Envoy alone: {rules} rules; {rounds} changes")
            return await _measure(
                "Envoy alone", rules, rounds, gateway, change, lambda: asyncio.sleep(REST)
            )


async def _measure(
    who: str,
    rules: int,
    rounds: int,
    gateway: str,
    change: Callable[[int], Coroutine[Any, Any, None]],
    rest: Callable[[], Coroutine[Any, Any, None]],
) -> results.Row:
    waiting, asking = requests.Client(gateway), requests.Client(gateway)
    await _answers(waiting, "h1.example", "/")
    load = _Load(asking)
    task = asyncio.create_task(load.run())
    seconds = []
    for number in range(rounds):
        began = time.perf_counter()
        await change(number)
        await _answers(waiting, "h0.example", _path(number))
        seconds.append(time.perf_counter() - began)
        await rest()
    task.cancel()
    await asyncio.wait((task,))
    waiting.close()
    asking.close()
    return results.Row(
        sizes={"server": who, "rules": rules},
        measures={
            **results.spread("new route answers", seconds),
            "requests meanwhile": load.sent,
            "failed": load.failed,
        },
        command=results.command(NAME, rules=rules, rounds=rounds),
    )


@contextlib.asynccontextmanager
async def _scene(rules: int, gateway: str) -> AsyncIterator[pathlib.Path]:
    """A folder with a configuration, and the application that its routes lead to."""
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        folder = pathlib.Path(scratch)
        async with requests.application() as port:
            _write(folder / "config", rules, port=int(gateway.rpartition(":")[2]), backend=port)
            yield folder


def _path(number: int) -> str:
    return f"/new{number}"


def _rule(number: int, path: str) -> str:
    return meshes.route_rule(
        f"r{number}", "{gateway: edge}", path=path, to="app", host=f"h{number}.example"
    )


def _write(config: pathlib.Path, rules: int, *, port: int, backend: int) -> None:
    config.mkdir()
    (config / "mesh.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: app}\n"
        "spec: {ports: [{name: http, port: 80}]}\n---\n"
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"
        "metadata: {name: app, labels: {kubernetes.io/service-name: app}}\n"
        f"addressType: IPv4\nports: [{{name: http, port: {backend}}}]\n"
        "endpoints: [{addresses: [127.0.0.1]}]\n---\n"
        "apiVersion: pilothouse.dev/v1alpha1\nkind: MeshGateway\nmetadata: {name: edge}\n"
        "spec:\n  selector: {app: edge}\n"
        f"  listeners: [{{name: http, port: {port}, protocol: HTTP}}]\n"
    )
    (config / "rules.yaml").write_text("---\n".join(_rule(n, "/") for n in range(1, rules)))
    (config / "changing.yaml").write_text(_rule(0, "/old"))


class _Load:
    """One request after another to a route that stays."""

    def __init__(self, client: requests.Client) -> None:
        self._client = client
        self.sent = self.failed = 0

    async def run(self) -> None:
        while True:
            self.sent += 1
            self.failed += not await self._client.get("h1.example", "/")
            await asyncio.sleep(PAUSE)


async def _answers(client: requests.Client, host: str, path: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not await client.get(host, path):  # noqa: ASYNC110 - Envoy cannot call us
            await asyncio.sleep(PAUSE)


@contextlib.asynccontextmanager
async def _envoy(folder: pathlib.Path, discovery: str) -> AsyncIterator[None]:
    parameters = bootstrap.BootstrapParameters(
        node_id=_NODE,
        cluster="edge.default",
        version="bench",
        discovery=bootstrap.parse_address(discovery),
        admin=bootstrap.UnixSocket(str(folder / "admin")),
        labels=_LABELS,
        bind_address="127.0.0.1",
        delta=True,
    )
    config = folder / "envoy.json"
    config.write_text(bootstrap.to_json(bootstrap.build(parameters)))
    options = ("--disable-hot-restart", "--concurrency", "1", "-l", "error")
    command = (str(process.find_envoy()), "-c", str(config), *options)
    with (folder / "envoy.log").open("wb") as output:
        child = process.Supervisor(command, output=output.fileno())
        await child.start()
    try:
        yield
    finally:
        await child.stop(5.0)


BENCHMARK = results.Benchmark(
    name=NAME,
    title="One rule of a gateway changes, through a real Envoy",
    budget="3,000 rules: the new route answers within 100 ms p99, no request fails meanwhile",
    run=run,
    plots=(results.Plot("rules", "new route answers p99 ms"),),
)
