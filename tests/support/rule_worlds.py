# SPDX-License-Identifier: Apache-2.0
"""RouteRules at work: from their YAML through plan and translation to a real Envoy.

Each rule has a service of its own, by whose name it is asked for. Rules send to the services `one`,
`two` and `three`, each of which is one backend of that name.
"""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import aiohttp
import yarl

from pilothouse.config import validation
from pilothouse.envoy import translate
from pilothouse.model import keys, proxy, services
from tests.support import backends, envoy_plans, envoy_static, meshes

PORT = 80
BACKENDS = ("one", "two", "three")
SIDECAR, GATEWAY = "http-proxy", "gateway|0"


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """An Envoy, its backends and a client."""

    envoy: envoy_static.RunningEnvoy
    backends: Mapping[str, backends.Backend]
    client: aiohttp.ClientSession
    listener: str

    def ask(
        self,
        host: str,
        path: str = "/",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A request to a host, as a context manager; the path is sent as it is."""
        return self.client.request(
            method,
            yarl.URL(self.envoy.url(self.listener, path), encoded=True),
            headers={"host": host, **(headers or {})},
            data=data,
            allow_redirects=False,
        )

    async def reached(
        self,
        host: str,
        path: str = "/",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Which backend answers; else the status."""
        async with self.ask(host, path, method, headers) as answer:
            return (await answer.json())["backend"] if answer.status == 200 else str(answer.status)

    async def seen(
        self, host: str, path: str = "/", headers: Mapping[str, str] | None = None
    ) -> tuple[str, dict[str, str]]:
        """The path and the headers with which a backend is asked."""
        async with self.ask(host, path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            found = await answer.json()
            return found["path"], found["headers"]

    async def tally(self, host: str, requests: int, path: str = "/") -> Counter[str]:
        """What each of many requests, one after another, reached."""
        return Counter([await self.reached(host, path) for _ in range(requests)])


@contextlib.asynccontextmanager
async def sidecar(rules: Mapping[str, str], **client: str) -> AsyncIterator[World]:
    """A sidecar in a mesh with these rules, until the block ends.

    Args:
        rules: The `http` list of the rule of each host, in YAML flow style without the brackets.
        client: Labels of the sidecar.
    """
    parts = [
        *(meshes.service(name, meshes.port(PORT)) for name in rules),
        *(_rule(name, f"parents: [{{service: {name}}}]", http) for name, http in rules.items()),
    ]
    of = meshes.sidecar(
        bind_address=envoy_plans.LOOPBACK, outbound_port=0, labels=keys.labels(client)
    )
    async with _running(parts, of, SIDECAR) as world:
        yield world


@contextlib.asynccontextmanager
async def gateway(rules: Mapping[str, str]) -> AsyncIterator[World]:
    """A gateway with these rules, until the block ends.

    Args:
        rules: The `http` list of the rule of each host, in YAML flow style without the brackets.
    """
    parts = [
        meshes.gateway(
            "edge", "{selector: {app: edge}, listeners: [{name: http, port: 0, protocol: HTTP}]}"
        ),
        *(
            _rule(f"rule-{number}", f"parents: [{{gateway: edge}}], hosts: ['{host}']", http)
            for number, (host, http) in enumerate(rules.items())
        ),
    ]
    edge = meshes.edge(bind_address=envoy_plans.LOOPBACK)
    async with _running(parts, edge, GATEWAY) as world:
        yield world


def _rule(name: str, head: str, routes: str, *, kind: str = "http") -> object:
    made = meshes.rule(name, f"{{{head}, {kind}: [{routes}]}}")
    for config in made.values():
        assert validation.validate(config) == (), name
    return made


@contextlib.asynccontextmanager
async def grpc_sidecar(
    rules: Mapping[str, str], backends: Mapping[str, int]
) -> AsyncIterator[World]:
    """A sidecar in a mesh of gRPC services, until the block ends.

    Args:
        rules: The `grpc` list of the rule of each host, in YAML flow style without the brackets.
        backends: Port of each gRPC service to send to.
    """
    port = meshes.port(PORT, "grpc", services.AppProtocol.GRPC)
    parts = [
        *(meshes.service(name, port) for name in (*rules, *backends)),
        *(
            _rule(name, f"parents: [{{service: {name}}}]", routes, kind="grpc")
            for name, routes in rules.items()
        ),
    ]
    client = meshes.sidecar(bind_address=envoy_plans.LOOPBACK, outbound_port=0)
    async with _running(parts, client, SIDECAR, more=backends) as world:
        yield world


@contextlib.asynccontextmanager
async def _running(
    parts: list[object],
    of: proxy.Proxy,
    listener: str,
    *,
    more: Mapping[str, int] | None = None,
) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        served = {
            name: await stack.enter_async_context(backends.backend(name)) for name in BACKENDS
        }
        mesh = meshes.mesh(
            *parts,
            *(meshes.service(name, meshes.port(PORT)) for name in BACKENDS),
            endpoints={
                **{
                    name: [meshes.endpoint(envoy_plans.LOOPBACK, served[name].port)]
                    for name in BACKENDS
                },
                **{
                    name: [meshes.endpoint(envoy_plans.LOOPBACK, port, "grpc")]
                    for name, port in (more or {}).items()
                },
            },
        )
        snapshot = translate.Translator().snapshot(meshes.planned(mesh, of), {})
        envoy = await stack.enter_async_context(envoy_static.running(snapshot))
        client = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=20))
        )
        yield World(envoy, served, client, listener)
