# SPDX-License-Identifier: Apache-2.0
"""What a MeshConfig says, at a sidecar: the log, retries, connections, hosts nobody speaks of."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pilothouse.config import validation
from tests.support import backends, meshes, sockets, stream_worlds, waiting

pytestmark = pytest.mark.envoy

PORT = stream_worlds.PORT
RULE = """{parents: [{service: web}], http: [
  {matches: [{path: {exact: /quiet}}], accessLog: false},
  {matches: [{path: {exact: /direct}}], accessLog: false, directResponse: {status: 418}},
  {matches: [{path: {exact: /loud}}], accessLog: true}]}"""


@dataclasses.dataclass(slots=True)
class Place:
    """A sidecar, a backend, a file for the log, and a client."""

    world: stream_worlds.World
    web: backends.Backend
    log: Path
    client: aiohttp.ClientSession

    async def give(self, defaults: str, *parts: Any, **endpoints: Any) -> None:
        """Tell the sidecar what follows from a MeshConfig; `LOG` in it is the file."""
        config = meshes.defaults(defaults.replace("LOG", str(self.log)))
        assert all(validation.validate(one) == () for one in config.values())
        there = {"web": [meshes.endpoint("127.0.0.1", self.web.port, "http-80")], **endpoints}
        await self.world.give(config, meshes.service("web", 80), *parts, endpoints=there)

    async def ask(self, host: str, path: str = "/") -> int:
        """The status of a request."""
        url = f"http://{self.world.envoy.address}:{self.world.envoy.port}{path}"
        async with self.client.get(url, headers={"host": host}) as answer:
            return answer.status

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@contextlib.asynccontextmanager
async def place(**of: Any) -> AsyncIterator[Place]:
    async with contextlib.AsyncExitStack() as stack:
        web = await stack.enter_async_context(backends.backend("web"))
        world = await stack.enter_async_context(stream_worlds.world(**of))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="log-"))
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield Place(world, web, Path(folder) / "access", client)


async def logged(made: Place, count: int) -> list[str]:
    """The lines of the log, once there are so many."""
    return await waiting.eventually(
        lambda: lines if len(lines := made.lines()) >= count else [], what="lines in the log"
    )


async def test_requests_and_connections_are_logged_and_a_route_may_keep_quiet():
    """In JSON, of routes, of what no route takes, and of CONNECT."""
    async with place() as made:
        rule = meshes.rule("web", RULE)
        await made.give("{accessLog: {path: LOG, format: JSON}}", rule)
        before = await made.world.envoy.stat("listener_manager.listener_modified")
        for path in ("/quiet", "/direct", "/loud", "/other"):
            await made.ask("web", path)
        await made.ask("nobody", "/lost")
        assert await made.world.reached(f"one:{PORT}") == "one"
        lines = [json.loads(line) for line in await logged(made, 4)]
        assert [(one["path"], one["response_code"]) for one in lines] == [
            ("/loud", 200),
            ("/other", 200),
            ("/lost", 404),
            (None, 200),
        ]
        assert lines[0]["route"] == "RouteRule/default/web/2"
        assert lines[-1]["authority"] == f"one:{PORT}"
        louder = meshes.rule("web", RULE.replace("accessLog: false", "accessLog: true"))
        await made.give("{accessLog: {path: LOG, format: JSON}}", louder)
        await made.ask("web", "/quiet")
        assert json.loads((await logged(made, 5))[-1])["path"] == "/quiet"
        assert await made.world.envoy.stat("listener_manager.listener_modified") == before


async def test_statistics_of_a_route():
    """Two routes may share a name; what is counted so is counted with the others, too."""
    rule = meshes.rule(
        "web",
        "{parents: [{service: web}], http: [{matches: [{path: {exact: /a}}], statPrefix: ours},"
        " {matches: [{path: {exact: /b}}], statPrefix: ours}, {}]}",
    )
    async with place() as made:
        await made.give("{}", rule)
        for path in ("/a", "/b", "/c", "/a"):
            await made.ask("web", path)
        stat = "vhost.web.default:80.route.ours.upstream_rq_200"
        assert await made.world.envoy.stat(stat) == 3


async def test_mapped_ports_are_logged_as_text():
    """Connections by the forward's log, in Envoy's own form."""
    async with place(maps=(f"16379=one.default:{PORT}",)) as made:
        await made.give("{accessLog: {path: LOG}}")
        assert await made.world.at(16379) == "one"
        (line,) = await logged(made, 1)
        assert f'"127.0.0.1:{made.world.backends["one"].port}"' in line
        assert line.startswith("[20")


async def test_retries_of_routes_that_do_not_say():
    """The default route's and a rule's; a rule that says it has its own."""
    own = meshes.rule(
        "web",
        "{parents: [{service: web}], http: [{matches: [{path: {prefix: /own}}],"
        " retry: {attempts: 0}}, {matches: [{path: {prefix: /rule}}], timeout: 10s}]}",
    )
    async with place() as made:
        made.web.status = 503
        await made.give("{retry: {attempts: 3, retryOn: [5xx], previousHosts: true}}", own)
        for path, tries in (("/default", 4), ("/rule", 4), ("/own", 1)):
            assert await made.ask("web", path) == 503
            assert made.web.requests.count(f"GET {path}") == tries
        await made.give("{}", own)
        assert await made.ask("web", "/none") == 503
        assert made.web.requests.count("GET /none") == 1
        await made.give("{retry: {attempts: 0}}")
        gone = {"web": [meshes.endpoint("127.0.0.1", 1, "http-80")]}
        await made.give("{retry: {attempts: 0}}", **gone)
        assert await made.ask("web", "/") == 503
        retried = await made.world.envoy.stat("cluster.outbound|80||web/default.upstream_rq_retry")
        assert retried == 6


async def test_connections_are_given_up_in_the_time_of_the_mesh():
    """Where no policy says it: one that does waits on."""
    patient = meshes.policy("own", "{service: own, connectTimeout: 30s}")
    with sockets.deaf() as port:
        nobody = [meshes.endpoint(sockets.LOOPBACK, port, "http-80")]
        async with place() as made:
            await made.give(
                "{connectTimeout: 100ms}",
                meshes.service("own", 80),
                patient,
                own=nobody,
                web=nobody,
            )
            waits = asyncio.create_task(made.ask("own"))
            try:
                cluster = "cluster.outbound|80||{}/default.upstream_cx_{}"
                stat = made.world.envoy.stat
                await waiting.eventually(lambda: stat(cluster.format("own", "active")))
                assert await made.ask("web") == 503
                assert await stat(cluster.format("web", "connect_timeout")) > 0
                assert await stat(cluster.format("own", "connect_timeout")) == 0
                assert not waits.done()
            finally:
                waits.cancel()
                await asyncio.wait((waits,))


async def test_idle_connections_are_probed_by_the_time_of_the_mesh():
    """Also where a policy says something else of connections; its own time goes before."""
    async with contextlib.AsyncExitStack() as stack:
        made = await stack.enter_async_context(place())
        others = {
            name: await stack.enter_async_context(backends.backend(name))
            for name in ("own", "less")
        }
        there = {
            name: [meshes.endpoint(sockets.LOOPBACK, one.port, "http-80")]
            for name, one in others.items()
        }
        await made.give(
            "{tcpKeepalive: {time: 600s}}",
            meshes.service("own", 80),
            meshes.service("less", 80),
            meshes.policy("own", "{service: own, connectionPool: {tcpKeepalive: {time: 90s}}}"),
            meshes.policy("less", "{service: less, connectionPool: {idleTimeout: 60s}}"),
            **there,
        )
        for backend, most in ((made.web, 600), (others["less"], 600), (others["own"], 90)):
            assert await made.ask(backend.name) == 200
            (due,) = [time for time in sockets.keepalive_timers(backend.port) if time > 0]
            assert most - 60 < due <= most


async def test_hosts_that_nothing_speaks_of():
    """404, unless the mesh lets them be asked; then by DNS, and by CONNECT."""
    async with place() as made:
        url = f"localhost:{made.web.port}"
        tcp = f"localhost:{made.world.backends['two'].port}"
        for policy in ("{}", "{outboundPolicy: REGISTRY_ONLY}"):
            await made.give(policy)
            assert await made.ask(url) == 404
            assert await made.world.reached(tcp) == "404"
        await made.give("{outboundPolicy: ALLOW_ANY}")
        assert await made.ask(url) == 200
        assert await made.world.reached(tcp) == "two"
        assert await made.ask("web") == 200
        assert await made.ask("nobody.invalid") == 503


async def test_no_way_past_the_egress_gateway():
    """Whatever else may be asked: all ports of a host that has to leave by it are closed."""
    closed = meshes.external(
        "closed", "{hosts: [localhost], ports: [{number: 80}], throughEgressGateway: true}"
    )
    async with place() as made:
        await made.give("{outboundPolicy: ALLOW_ANY}", closed)
        for port in ("", ":80", f":{made.web.port}"):
            assert await made.ask(f"localhost{port}") == 503
            assert await made.ask(f"LOCALHOST.{port}") == 503
        assert await made.world.reached(f"localhost:{made.world.backends['two'].port}") == "404"
        assert made.web.requests == []
