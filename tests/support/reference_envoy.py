# SPDX-License-Identifier: Apache-2.0
"""Generated worlds in a real Envoy, and what it makes of requests.

All worlds share one Envoy: each client has a listener of its own there, with a port that the
machine gives. Endpoints are addresses of a block of loopback addresses; whoever is asked says at
which address it was, and what it saw.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import multidict
import yarl
from aiohttp import web

from pilothouse.api.envoy.config.bootstrap.v3 import bootstrap_pb2
from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.cli.local import addresses
from pilothouse.envoy import wire
from tests.support import envoy_static, http_clients
from tests.support import reference_planned as planned
from tests.support import reference_values as values
from tests.support import reference_worlds as worlds

Inhabited = tuple[worlds.World, Collection[values.Client]]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    """Of a gRPC answer without an application, 200."""
    grpc_status: str
    """Empty when there is none."""
    location: str
    headers: values.Headers
    """Those that tests change."""
    body: str
    endpoint: str = ""
    """HOST:PORT of the application that answered; empty when none did."""
    path: str = ""
    """As the application saw it, as the rest."""
    host: str = ""
    seen: values.Headers = ()


def moved(world: worlds.World, block: int) -> worlds.World:
    """The same world, with endpoints in a block of loopback addresses; DNS is not asked."""
    text = json.dumps(world).replace('"10.0.0.', f'"127.{block}.5.')
    outside = f'"externalName": "127.{block}.5.200"'
    text = re.sub(r'"externalName": "[^"]*"', outside, text)
    found: worlds.World = json.loads(text)
    return found


def moved_client(client: values.Client, block: int) -> values.Client:
    """The same client in such a world."""
    address = client.address.replace("10.0.0.", f"127.{block}.5.")
    return dataclasses.replace(client, address=address)


def endpoints(every: Sequence[worlds.World]) -> set[tuple[str, int]]:
    """Where the applications of these worlds listen."""
    text = json.dumps(every)
    hosts = re.findall(r'"(127\.\d+\.5\.\d+)"', text)
    ports = re.findall(r'"targetPort": (\d+)', text)
    return {(host, int(port)) for host in hosts for port in ports}


@contextlib.asynccontextmanager
async def applications(where: set[tuple[str, int]]) -> AsyncIterator[None]:
    """Servers at all of these addresses, until the block ends."""
    runner = web.ServerRunner(web.Server(_answer), shutdown_timeout=0.1)
    await runner.setup()
    try:
        for host, port in sorted(where):
            await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    host, port = request.transport.get_extra_info("sockname")
    seen = [(name.lower(), value) for name, value in request.headers.items()]
    told = {
        "endpoint": f"{host}:{port}",
        "path": request.raw_path,
        "host": request.host,
        "seen": values.watched(seen),
    }
    return web.json_response(told, headers=dict(values.ANSWER))


@dataclasses.dataclass(frozen=True)
class Fleet:
    """An Envoy with the listeners of the clients of some worlds."""

    envoy: envoy_static.RunningEnvoy
    session: aiohttp.ClientSession

    def port(self, number: int, client: values.Client) -> int:
        """Where the requests of a client in the world of that number are sent to."""
        return self.envoy.ports[_name(number, client)]

    async def ask(self, number: int, client: values.Client, request: values.Request) -> Answer:
        """Send a request as a client in the world of that number, over HTTP/1.1."""
        headers = multidict.CIMultiDict(
            [("host", request.authority), *_with_scheme(client, request)]
        )
        url = yarl.URL(self.envoy.url(_name(number, client), request.path), encoded=True)
        async with self.session.request(
            request.method, url, headers=headers, allow_redirects=False
        ) as answer:
            body = await answer.text()
            return _answered(answer.status, [*answer.headers.items()], body)

    async def ask_http2(
        self, number: int, client: values.Client, request: values.Request
    ) -> Answer:
        """The same over HTTP/2, where each cookie may have a header of its own."""
        head = [
            (":method", request.method),
            (":scheme", request.scheme),
            (":authority", request.authority),
            (":path", request.path),
        ]
        for name, value in _with_scheme(client, request):
            crumbs = value.split("; ") if name == "cookie" else [value]
            head += [(name, crumb) for crumb in crumbs]
        async with http_clients.http2("127.0.0.1", self.port(number, client)) as connection:
            status, headers, body = await connection.exchange(head)
        return _answered(status, headers, body.decode())


def _with_scheme(client: values.Client, request: values.Request) -> values.Headers:
    """The headers of a request; a sidecar believes its application which scheme it means."""
    told = () if client.port is not None else (("x-forwarded-proto", request.scheme),)
    return (*request.headers, *told)


def _answered(status: int, headers: Sequence[tuple[str, str]], body: str) -> Answer:
    got = [(name.lower(), value) for name, value in headers]
    told = json.loads(body) if body.startswith('{"endpoint"') else {}
    return Answer(
        status=status,
        grpc_status=dict(got).get("grpc-status", ""),
        location=values.canonical_location(dict(got).get("location", "")),
        headers=values.watched(got),
        body=body,
        endpoint=told.get("endpoint", ""),
        path=told.get("path", ""),
        host=told.get("host", ""),
        seen=values.watched(told.get("seen", [])),
    )


def _name(number: int, client: values.Client) -> str:
    return f"{number}|{client.namespace}|{client.address}|{client.port}"


@contextlib.asynccontextmanager
async def running(inhabited: Sequence[Inhabited]) -> AsyncIterator[Fleet]:
    """An Envoy for the clients in some worlds, whose endpoints answer, until the block ends."""
    where = endpoints([world for world, _ in inhabited])
    async with (
        applications(where),
        envoy_static.started(lambda admin: _bootstrap(inhabited, admin)) as envoy,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=8)) as session,
    ):
        yield Fleet(envoy, session)


def _bootstrap(inhabited: Sequence[Inhabited], admin: Path) -> bootstrap_pb2.Bootstrap:
    whole = bootstrap_pb2.Bootstrap()
    clusters: dict[str, cluster_pb2.Cluster] = {}
    for number, (world, clients) in enumerate(inhabited):
        told = planned.Planned(world)
        for client in sorted(clients, key=str):
            part = envoy_static.bootstrap(told.snapshot(client), admin=admin)
            for cluster in part.static_resources.clusters:
                cluster.name = f"{number}|{cluster.name}"
                clusters[cluster.name] = cluster
            for listener in part.static_resources.listeners:
                if listener.name == planned.listener_of(client):
                    listener.name = _name(number, client)
                    listener.address.socket_address.address = "127.0.0.1"
                    listener.address.socket_address.port_value = 0
                    _rename_clusters(listener, number)
                    whole.static_resources.listeners.append(listener)
            whole.admin.CopyFrom(part.admin)
            whole.overload_manager.CopyFrom(part.overload_manager)
    whole.static_resources.clusters.extend(clusters.values())
    return whole


def _rename_clusters(listener: listener_pb2.Listener, number: int) -> None:
    """Each world has its own clusters."""
    for one in listener.filter_chains[0].filters:
        manager = http_connection_manager_pb2.HttpConnectionManager()
        if one.typed_config.Unpack(manager):
            for host in manager.route_config.virtual_hosts:
                for route in host.routes:
                    action = route.route
                    if action.cluster:
                        action.cluster = f"{number}|{action.cluster}"
                    for share in action.weighted_clusters.clusters:
                        share.name = f"{number}|{share.name}"
                    for mirror in action.request_mirror_policies:
                        mirror.cluster = f"{number}|{mirror.cluster}"
            one.typed_config.CopyFrom(wire.packed(manager))


def block() -> addresses.HeldBlock:
    """Loopback addresses for endpoints; to be closed."""
    held: Any = addresses.HeldBlock.take()
    assert isinstance(held, addresses.HeldBlock)
    return held
