# SPDX-License-Identifier: Apache-2.0
"""The hosts that an application may write, in any spelling, through its sidecar."""

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from pilothouse.model import keys, services
from pilothouse.routing import hosts
from tests.support import backends, meshes, stream_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

NAMES = ("web", "pod-0", "pod-1", "api", "plain")


class Place(NamedTuple):
    """A sidecar, and the ports of the backends."""

    world: stream_worlds.World
    ports: dict[str, int]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    """A sidecar, a StatefulSet of two pods, aliases, and hosts outside."""
    async with contextlib.AsyncExitStack() as stack:
        ports = {
            name: (await stack.enter_async_context(backends.backend(name))).port for name in NAMES
        }
        made = await stack.enter_async_context(stream_worlds.world())
        outside = meshes.port(ports["plain"])
        await made.give(
            meshes.service("web", 80, cluster_ips=("10.96.0.1",)),
            meshes.service("set", 80, 8080),
            alias("old", "WEB.default.svc."),
            alias("far", "api.example.com"),
            alias("plain", "localhost", outside),
            meshes.external(
                "api",
                f"{{hosts: [API.example.com], ports: [{{number: 80, targetPort: {ports['api']}}}],"
                " resolution: STATIC, endpoints: [{address: 127.0.0.1}]}",
            ),
            endpoints={
                "web": [meshes.endpoint("127.0.0.1", ports["web"], "http-80")],
                "set": [
                    services.Endpoint(
                        address="127.0.0.1",
                        port=ports[name],
                        port_name=f"http-{number}",
                        labels=keys.labels({hosts.POD_LABEL: name.replace("pod", "set")}),
                    )
                    for name in ("pod-0", "pod-1")
                    for number in (80, 8080)
                ],
            },
        )
        yield Place(made, ports)


def alias(name: str, of: str, *ports: services.Port) -> services.Service:
    return services.Service(key=meshes.service_key(name), ports=ports, external_name=of)


async def reached(place: Place, host: str) -> str:
    """Which backend answers for a host; else the status."""
    async with (
        aiohttp.ClientSession() as client,
        client.get(
            f"http://{place.world.envoy.address}:{place.world.envoy.port}/",
            headers={"host": host},
        ) as answer,
    ):
        return str((await answer.json())["backend"]) if answer.status == 200 else str(answer.status)


@pytest.mark.parametrize(
    ("host", "backend"),
    [
        ("web", "web"),
        ("web.", "web"),
        ("WEB.Default.Svc", "web"),
        ("web.default.svc.cluster.local.", "web"),
        ("web.default.svc.cluster.local.:80", "web"),
        ("10.96.0.1", "web"),
        ("10.96.0.1:80", "web"),
        ("set-0.set", "pod-0"),
        ("Set-1.SET.default.svc.", "pod-1"),
        ("set-1.set.default.svc.cluster.local:8080", "pod-1"),
        ("old", "web"),
        ("Old.default.svc.cluster.local.:80", "web"),
        ("api.example.com", "api"),
        ("API.EXAMPLE.COM.", "api"),
        ("far", "api"),
        ("far.default:80", "api"),
        ("set-2.set", "404"),
        ("far:81", "404"),
        ("nobody", "404"),
        ("10.96.0.1:81", "404"),
        ("10.96.0.2", "404"),
    ],
)
async def test_hosts_in_any_spelling(place: Place, host: str, backend: str):
    """In any case, with a dot at the end, with and without port."""
    assert await reached(place, host) == backend


async def test_an_alias_of_a_host_outside(place: Place):
    """Asked for by DNS, at the port of the alias."""
    assert await reached(place, f"plain:{place.ports['plain']}") == "plain"


async def test_addresses_of_pods(place: Place):
    """With a port, and without one that of http URLs; other addresses are nobody's."""
    for name, port in place.ports.items():
        assert await reached(place, f"127.0.0.1:{port}") == name
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        assert await reached(place, f"127.0.0.1:{taken.getsockname()[1]}") == "503"
    assert await reached(place, "192.0.2.1:80") == "404"
