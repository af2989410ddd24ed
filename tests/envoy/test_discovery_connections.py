# SPDX-License-Identifier: Apache-2.0
"""TCP from Kubernetes manifests and rules in a folder, through discovery, to real Envoys."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from pilothouse.config import schema
from pilothouse.model import proxy
from tests.support import fleet, stream_worlds, tcp_backends

pytestmark = pytest.mark.envoy

AT, PORT = 16379, 6379
VERSIONS = ("v1", "v2")


def service() -> str:
    """A Service for Redis, which selects app=cache."""
    return (
        "apiVersion: v1\nkind: Service\nmetadata: {name: cache}\n"
        f"spec: {{selector: {{app: cache}}, ports: [{{name: redis, port: {PORT},"
        " targetPort: http}]}\n"
    )


def rule(version: str) -> str:
    """A RouteRule that sends all of its connections to one version."""
    return (
        f"apiVersion: {schema.API_VERSION}\nkind: RouteRule\nmetadata: {{name: cache}}\n"
        "spec: {parents: [{service: cache}],"
        f" tcp: [{{destinations: [{{service: cache, labels: {{version: {version}}}}}]}}]}}\n"
    )


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[tuple[fleet.Fleet, list[fleet.Proxy]]]:
    """Two versions of a cache, and a sidecar of each variant of xDS with a mapped port."""
    async with contextlib.AsyncExitStack() as stack:
        served = {
            version: await stack.enter_async_context(tcp_backends.tcp_backend(version))
            for version in VERSIONS
        }
        pods = [fleet.pod("cache", version, one.port) for version, one in served.items()]
        made = await stack.enter_async_context(
            fleet.fleet({"cache.yaml": fleet.join(service(), *pods)})
        )
        await made.start()
        proxies = [
            await stack.enter_async_context(
                made.envoy(
                    f"client-{variant}",
                    proxy.Role.SIDECAR,
                    maps=(f"{AT}=cache.default:{PORT}",),
                )
            )
            for variant in fleet.VARIANTS
        ]
        await made.settled()
        yield made, proxies


async def test_connections_go_where_rules_say_and_live_on():
    """By CONNECT and at a mapped port; those that are open outlive every change."""
    async with running() as (made, proxies), contextlib.AsyncExitStack() as stack:
        await made.apply({"rule.yaml": rule("v1")})
        opened = [
            await stack.enter_async_context(connection)
            for one in proxies
            for connection in (
                tcp_backends.stream(one.address, AT),
                stream_worlds.tunnel(one.address, one.port, f"cache:{PORT}"),
            )
        ]
        assert {stream.name for stream in opened} == {"v1"}
        await made.apply({"rule.yaml": rule("v2")})
        for one in proxies:
            async with tcp_backends.stream(one.address, AT) as fresh:
                assert fresh.name == "v2"
            async with stream_worlds.tunnel(one.address, one.port, f"cache:{PORT}") as fresh:
                assert fresh.name == "v2"
        await made.apply({"rule.yaml": None})
        for number, stream in enumerate(opened):
            assert await stream.echo(str(number)) == str(number)
        for one in proxies:
            assert await one.stat("listener_manager.listener_modified") == 0
