# SPDX-License-Identifier: Apache-2.0
"""One rule among many of a gateway gets a new route, and requests flow through a real Envoy.

Measured from the write of the file to the first answer of the new route, while others ask an old
route all the time. The client asks anew as soon as it is refused, so its own pace is in the time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import tempfile
import time
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from bench import meshes, processes, results
from pilothouse.adapters import process
from pilothouse.envoy import bootstrap
from pilothouse.model import proxy

NAME = "gateway-route"
SECONDS = 60.0


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """All numbers of rules; none where there is no Envoy."""
    try:
        process.find_envoy()
    except process.EnvoyNotFoundError as error:
        say(f"gateway-route is left out: {error}")
        return []
    return [await _size(rules, min(chosen.rounds, 10), say) for rules in chosen.rules]


async def _size(rules: int, rounds: int, say: results.Say) -> results.Row:
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        folder = pathlib.Path(scratch)
        gateway = processes.free_address()
        async with _backend() as port:
            config = folder / "config"
            _write(config, rules, port=int(gateway.rpartition(":")[2]), backend=port)
            async with (
                processes.discovery(config) as server,
                _envoy(folder, server.address),
                aiohttp.ClientSession(f"http://{gateway}") as session,
            ):
                await _answers(session, "h1.example", "/")
                say(f"gateway route: {rules} rules; {rounds} changes")
                load = _Load(session)
                task = asyncio.create_task(load.run())
                seconds = []
                for number in range(rounds):
                    path = f"/new{number}"
                    began = time.perf_counter()
                    meshes.replace(config / "changing.yaml", _rule(0, path))
                    await _answers(session, "h0.example", path)
                    seconds.append(time.perf_counter() - began)
                    # Not back to back: each change shall find the server at rest.
                    await server.quiet()
                task.cancel()
                await asyncio.wait((task,))
    return results.Row(
        sizes={"rules": rules},
        measures={
            **results.spread("new route answers", seconds),
            "requests meanwhile": load.sent,
            "failed": load.failed,
        },
        command=results.command(NAME, rules=rules, rounds=rounds),
    )


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

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.sent = self.failed = 0

    async def run(self) -> None:
        while True:
            self.sent += 1
            self.failed += not await _asked(self._session, "h1.example", "/")
            await asyncio.sleep(0.001)


async def _asked(session: aiohttp.ClientSession, host: str, path: str) -> bool:
    try:
        async with session.get(path, headers={"Host": host}) as answer:
            await answer.read()
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _answers(session: aiohttp.ClientSession, host: str, path: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not await _asked(session, host, path):  # noqa: ASYNC110 - Envoy cannot call us
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def _backend() -> AsyncIterator[int]:
    """An application that answers everything; the value is its port."""

    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _envoy(folder: pathlib.Path, discovery: str) -> AsyncIterator[None]:
    parameters = bootstrap.BootstrapParameters(
        node_id=proxy.NodeId(
            role=proxy.Role.GATEWAY, address="127.0.0.1", name="edge", namespace="default"
        ),
        cluster="edge.default",
        version="bench",
        discovery=bootstrap.parse_address(discovery),
        admin=bootstrap.UnixSocket(str(folder / "admin")),
        labels=(("app", "edge"),),
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
