# SPDX-License-Identifier: Apache-2.0
"""What a sidecar takes for its application: HTTP, bytes and datagrams, of several services."""

import contextlib

import aiohttp
import pytest

from pilothouse.model import services
from tests.support import backends, meshes, stream_worlds, tcp_backends, waiting

pytestmark = pytest.mark.envoy


async def test_every_port_of_a_pod_in_several_services():
    """One that only one of them calls HTTP is taken as bytes, and HTTP goes through as well."""
    async with contextlib.AsyncExitStack() as stack:
        web, both = [
            await stack.enter_async_context(backends.backend(name)) for name in ("web", "both")
        ]
        raw = await stack.enter_async_context(tcp_backends.tcp_backend("raw"))
        dns = await stack.enter_async_context(tcp_backends.udp_backend("dns"))
        world = await stack.enter_async_context(stream_worlds.world())
        pod = world.envoy.address
        await world.give(
            meshes.service("first", meshes.port(80)),
            meshes.service("second", meshes.port(8080)),
            meshes.service("third", meshes.port(80)),
            stream_worlds.tcp("fourth"),
            stream_worlds.tcp("raw"),
            meshes.service("dns", meshes.port(53, "udp", services.AppProtocol.UDP)),
            endpoints={
                "first": [meshes.endpoint(pod, web.port)],
                "second": [meshes.endpoint(pod, web.port)],
                "third": [meshes.endpoint(pod, both.port)],
                "fourth": [meshes.endpoint(pod, both.port, "any")],
                "raw": [meshes.endpoint(pod, raw.port, "any")],
                "dns": [meshes.endpoint(pod, dns.port, "udp")],
            },
        )
        client = await stack.enter_async_context(aiohttp.ClientSession())
        for backend in (web, both):
            async with client.get(f"http://{pod}:{backend.port}/") as answer:
                assert (await answer.json())["backend"] == backend.name
        assert await world.at(raw.port) == "raw"
        # Through the proxy too: each service to the pod's sidecar, and on to the application.
        assert await world.reached(f"raw:{stream_worlds.PORT}") == "raw"

        async def asked() -> str | None:
            async with tcp_backends.datagrams(pod, dns.port) as datagrams:
                return await datagrams.ask("who")

        assert await waiting.eventually(asked, what="an answer") == "dns:who"
