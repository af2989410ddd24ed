# SPDX-License-Identifier: Apache-2.0
"""Chains of UDP through a real Envoy, over xDS."""

import json
import pathlib

import pytest

from pilothouse.routing import plan
from tests.support import envoy_plans, tcp_backends, waiting, wired

pytestmark = pytest.mark.envoy
PORT = 19_053


def layer(address: str, port: int, serves: plan.Udp) -> plan.Layer:
    """A UDP listener, and the cluster `echo`."""
    key = envoy_plans.key("echo")
    return plan.Layer(
        clusters=(plan.Cluster(key=key),),
        endpoints=(envoy_plans.assignment(key, port),),
        listeners=(
            plan.Listener(
                name="udp",
                direction=plan.Direction.INBOUND,
                address=address,
                port=PORT,
                transport="udp",
                chains=(plan.Chain(name="udp", serves=serves),),
            ),
        ),
    )


async def test_sessions_are_logged_and_end(tmp_path: pathlib.Path) -> None:
    """A session that is idle for so long is over, and then it is one line of the log."""
    log = plan.AccessLog(path=str(tmp_path / "log"), json=True)
    serves = plan.Udp(cluster=envoy_plans.key("echo"), idle_timeout_ms=200, access_log=log)
    async with wired.wired() as made, tcp_backends.udp_backend("echo") as backend:
        await made.give(layer(made.envoy.address, backend.port, serves))
        async with tcp_backends.datagrams(made.envoy.address, PORT) as client:

            async def answered() -> str | None:
                return await client.ask("hello")

            assert await waiting.eventually(answered, what="an answer") == "echo:hello"
            lines = await waiting.eventually(
                lambda: (tmp_path / "log").read_text().splitlines(), what="a line"
            )
        assert json.loads(lines[0])["endpoint"] == f"127.0.0.1:{backend.port}", lines
        assert len(lines) == len(set(lines))


async def test_datagrams_to_nowhere_are_dropped() -> None:
    """A route whose destination cannot be resolved: nothing comes, and nothing is refused; the
    datagrams of another client go on when it can."""
    async with wired.wired() as made, tcp_backends.udp_backend("echo") as backend:
        address = made.envoy.address
        await made.give(layer(address, backend.port, plan.Udp(cluster=None)))
        async with tcp_backends.datagrams(address, PORT) as client:
            assert await client.ask("hello") is None
        there = plan.Udp(cluster=envoy_plans.key("echo"))
        await made.give(layer(address, backend.port, there))
        async with tcp_backends.datagrams(address, PORT) as client:

            async def answered() -> str | None:
                return await client.ask("hello")

            assert await waiting.eventually(answered, what="an answer") == "echo:hello"
