# SPDX-License-Identifier: Apache-2.0
"""Long TCP connections through gateways that discovery steers: they outlive what changes."""

from __future__ import annotations

import contextlib
import random

import pytest

from pilothouse.config import schema
from pilothouse.model import keys, proxy
from tests.support import fleet, tcp_backends, waiting

pytestmark = pytest.mark.envoy
PORT = 19_000
CHANGES = 50
VERSIONS = ("v1", "v2", "v3")
GATEWAY = (
    f"apiVersion: {schema.API_VERSION}\nkind: MeshGateway\nmetadata: {{name: edge}}\n"
    f"spec: {{selector: {{app: edge}}, listeners: [{{name: tcp, port: {PORT}, protocol: TCP}}]}}\n"
)
SERVICE = (
    "apiVersion: v1\nkind: Service\nmetadata: {name: lines}\n"
    "spec: {selector: {app: lines}, ports: [{name: tcp, port: 9000, targetPort: tcp}]}\n"
)


def pod(version: str, port: int) -> str:
    """A Pod whose application listens on a port of 127.0.0.1."""
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: lines-{version}, "
        f"labels: {{app: lines, version: {version}}}}}\n"
        f"spec: {{containers: [{{name: app, ports: [{{name: tcp, containerPort: {port}}}]}}]}}\n"
        "status: {podIP: 127.0.0.1}\n"
    )


def rule(**weights: int) -> str:
    """A RouteRule that spreads connections over versions."""
    shown = ", ".join(
        f"{{service: lines, labels: {{version: {version}}}, weight: {weight}}}"
        for version, weight in weights.items()
    )
    return (
        f"apiVersion: {schema.API_VERSION}\nkind: RouteRule\nmetadata: {{name: lines}}\n"
        f"spec: {{parents: [{{gateway: edge}}], tcp: [{{destinations: [{shown}]}}]}}\n"
    )


async def test_streams_outlive_fifty_changes_of_weights_and_clusters() -> None:
    """A stream through a gateway of each variant, while its rule sends elsewhere and elsewhere: no
    byte is lost, no listener is touched, and new connections go where the rule says."""
    draws = random.Random(4)
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        backends = {one: await enter(tcp_backends.tcp_backend(one)) for one in VERSIONS}
        pods = fleet.join(*(pod(name, one.port) for name, one in backends.items()))
        mesh = await enter(
            fleet.fleet({"gateway.yaml": GATEWAY, "lines.yaml": fleet.join(SERVICE, pods)})
        )
        await mesh.start()
        await mesh.apply({"rule.yaml": rule(v1=1)}, wait=False)
        proxies = await enter(mesh.envoys(proxy.Role.GATEWAY, labels=keys.labels(app="edge")))
        await mesh.settled()
        for one in proxies:
            await waiting.eventually(lambda one=one: _open(one), what=f"{one.name} listens")
        before = [await _updates(one) for one in proxies]
        streams = [await enter(tcp_backends.stream(one.address, PORT)) for one in proxies]
        assert {stream.name for stream in streams} == {"v1"}
        for number in range(CHANGES):
            chosen = sorted(draws.sample(VERSIONS, draws.randint(1, 3)))
            await mesh.apply({"rule.yaml": rule(**{name: draws.randint(1, 9) for name in chosen})})
            for one, stream in zip(proxies, streams, strict=True):
                assert await stream.echo(str(number)) == str(number)
                async with tcp_backends.stream(one.address, PORT) as fresh:
                    assert fresh.name in chosen
        assert [await _updates(one) for one in proxies] == before
        await mesh.apply({"rule.yaml": None})
        for one in proxies:
            with pytest.raises(ConnectionError):
                async with tcp_backends.stream(one.address, PORT):
                    pass


async def _open(one: fleet.Proxy) -> bool:
    with contextlib.suppress(OSError):
        async with tcp_backends.stream(one.address, PORT):
            return True
    return False


async def _updates(one: fleet.Proxy) -> list[int]:
    stats = ("listener_added", "listener_modified", "listener_in_place_updated")
    return [await one.stat(f"listener_manager.{name}") for name in stats]
