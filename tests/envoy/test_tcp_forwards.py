# SPDX-License-Identifier: Apache-2.0
"""Forwards of TCP through a real Envoy, over xDS in both variants: connections outlive changes."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator

import pytest

from pilothouse.envoy import translate
from pilothouse.model import proxy
from pilothouse.routing import plan, upstreams
from pilothouse.xds import resources, types
from tests.support import envoy_plans, fleet, tcp_backends, waiting, xds_server

pytestmark = pytest.mark.envoy
PORT, OTHER_PORT = 18081, 18082
CHANGES = 50


@dataclasses.dataclass(slots=True)
class World:
    """An Envoy on an xDS server, and three backends."""

    host: xds_server.Host
    envoy: fleet.Proxy
    backends: dict[str, tcp_backends.TcpBackend]
    translator: translate.Translator

    def listener(self, port: int) -> plan.Listener:
        """One whose connections go where the forward says."""
        return plan.Listener(
            name=f"tcp|{port}",
            direction=plan.Direction.INBOUND,
            address=self.envoy.address,
            port=port,
            chains=(plan.Chain(name=f"tcp|{port}", serves=plan.Tcp(forward="f")),),
        )

    def snapshot(
        self, *, ports: tuple[int, ...] = (PORT,), there: bool = True, **weights: int
    ) -> resources.Snapshot:
        """Listeners that share one forward with these weights; the forward may be missing."""
        keys = {name: envoy_plans.key(name) for name in weights}
        shares = tuple(
            plan.WeightedCluster(cluster=keys[name], weight=weight)
            for name, weight in weights.items()
        )
        layer = plan.Layer(
            clusters=tuple(plan.Cluster(key=key) for key in keys.values()),
            endpoints=tuple(
                envoy_plans.assignment(key, self.backends[name].port) for name, key in keys.items()
            ),
            listeners=tuple(map(self.listener, ports)),
            tcp_forwards=(plan.TcpForward(name="f", clusters=shares),) if there else (),
        )
        return self.translator.snapshot(envoy_plans.proxy(layer), {})

    async def give(self, snapshot: resources.Snapshot) -> None:
        """Hand a snapshot out, and wait until all of it is acknowledged."""
        self.host.give(snapshot)
        await waiting.eventually(lambda: self.host.in_sync, what="all is acknowledged")
        assert self.host.refused == []

    def stream(
        self, port: int = PORT
    ) -> contextlib.AbstractAsyncContextManager[tcp_backends.Stream]:
        """A connection through Envoy."""
        return tcp_backends.stream(self.envoy.address, port)


@contextlib.asynccontextmanager
async def world(variant: str) -> AsyncIterator[World]:
    """Everything, and nothing handed out yet."""
    host = xds_server.Host()
    async with contextlib.AsyncExitStack() as stack:
        backends = {
            name: await stack.enter_async_context(tcp_backends.tcp_backend(name))
            for name in ("v1", "v2", "v3")
        }
        made = await stack.enter_async_context(fleet.fleet())
        await stack.enter_async_context(xds_server.serving_xds(host, made.grpc))
        envoy = await stack.enter_async_context(
            made.envoy(f"gateway-{variant}", proxy.Role.GATEWAY)
        )
        yield World(host, envoy, backends, translate.Translator())


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_a_connection_outlives_changes_of_weights_and_clusters(variant: str) -> None:
    """Fifty times other weights and other clusters, its own among them: the connection that was
    opened first goes on, no listener changes, and new connections go where the news say."""
    draws = random.Random(4)
    async with world(variant) as made:
        await made.give(made.snapshot(v1=1))
        async with made.stream() as first:
            assert first.name == "v1"
            for number in range(CHANGES):
                chosen = draws.sample(("v1", "v2", "v3"), draws.randint(1, 3))
                weights = {name: draws.randint(1, 100) for name in sorted(chosen)}
                await made.give(made.snapshot(**weights))
                assert await first.echo(str(number)) == str(number)
                async with made.stream() as fresh:
                    assert fresh.name in weights
            await made.give(made.snapshot(v3=1))  # its own cluster is gone for good
            assert await first.echo("still") == "still"
        assert await made.envoy.stat("listener_manager.listener_modified") == 0
        assert await made.envoy.stat("listener_manager.listener_in_place_updated") == 0
        assert await made.envoy.stat("listener_manager.listener_added") == 1


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_a_listener_waits_for_its_forward(variant: str) -> None:
    """A listener whose forward is not there yet is warming, and the others serve meanwhile; it
    opens when the forward comes."""
    async with world(variant) as made:
        without = made.snapshot(there=False, v1=1)
        made.host.give(without)
        await waiting.eventually(lambda: made.host.missing[types.EXTENSION.type_url])
        with pytest.raises(ConnectionRefusedError):
            async with made.stream():
                pass
        await made.give(made.snapshot(v1=1))

        async def opened() -> bool:
            with contextlib.suppress(OSError):
                async with made.stream() as stream:
                    return stream.name == "v1"
            return False

        await waiting.eventually(opened, what="the listener opens")


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_weights_are_shares_of_connections(variant: str) -> None:
    """Of three hundred connections so many go to each; a weight of 0 gets none."""
    async with world(variant) as made:
        await made.give(made.snapshot(v1=75, v2=25, v3=0))
        for _ in range(300):
            async with made.stream():
                pass
        opened = {name: each.opened for name, each in made.backends.items()}
        assert opened["v3"] == 0
        # The bounds are six standard deviations away.
        assert opened["v2"] == pytest.approx(75, abs=45)


@pytest.mark.parametrize("variant", fleet.VARIANTS)
async def test_a_listener_more_leaves_connections_alone(variant: str) -> None:
    """Another port with the same forward is another listener; the connection goes on."""
    async with world(variant) as made:
        await made.give(made.snapshot(v1=1))
        async with made.stream() as first:
            await made.give(made.snapshot(ports=(PORT, OTHER_PORT), v2=1))
            async with made.stream(OTHER_PORT) as second:
                assert (first.name, second.name) == ("v1", "v2")
            await made.give(made.snapshot(v2=1))
            assert await first.echo("still") == "still"


async def test_a_connection_outlives_other_settings_and_endpoints_of_its_cluster() -> None:
    """Another policy for its cluster, and its own endpoint gone: the next one goes elsewhere."""
    async with world("delta") as made:
        key = envoy_plans.key("all")
        share = plan.WeightedCluster(cluster=key, weight=1)

        async def give(endpoint: str, connect_timeout_ms: int) -> None:
            settings = upstreams.Settings(connect_timeout_ms=connect_timeout_ms)
            layer = plan.Layer(
                clusters=(plan.Cluster(key=key, settings=settings),),
                endpoints=(envoy_plans.assignment(key, made.backends[endpoint].port),),
                listeners=(made.listener(PORT),),
                tcp_forwards=(plan.TcpForward(name="f", clusters=(share,)),),
            )
            await made.give(made.translator.snapshot(envoy_plans.proxy(layer), {}))

        await give("v1", 1_000)
        async with made.stream() as first:
            await give("v1", 2_000)
            assert await first.echo("once") == "once"
            await give("v2", 2_000)

            async def moved() -> bool:
                async with made.stream() as fresh:
                    return fresh.name == "v2"

            await waiting.eventually(moved, what="the other endpoint is used")
            assert await first.echo("again") == "again"


async def test_connections_of_a_client_may_stay_together() -> None:
    """Where the balancer of the cluster hashes, one address reaches one endpoint."""
    async with world("delta") as made:
        key = envoy_plans.key("all")
        hashing = upstreams.LoadBalancer(
            policy="ring_hash", hash_by=(upstreams.HashKey(kind="source_ip"),)
        )
        balanced = upstreams.Settings(load_balancer=hashing)
        ports = [one.port for one in made.backends.values()]
        share = plan.WeightedCluster(cluster=key, weight=1)
        layer = plan.Layer(
            clusters=(plan.Cluster(key=key, settings=balanced),),
            endpoints=(envoy_plans.assignment(key, *ports),),
            listeners=(made.listener(PORT),),
            tcp_forwards=(plan.TcpForward(name="f", clusters=(share,)),),
        )
        await made.give(made.translator.snapshot(envoy_plans.proxy(layer), {}))
        reached: dict[str, set[str]] = {}
        for client in [f"127.9.9.{number}" for number in range(1, 13)] * 3:
            async with tcp_backends.stream(made.envoy.address, PORT, source=client) as stream:
                reached.setdefault(client, set()).add(stream.name)
        assert all(len(names) == 1 for names in reached.values())
        assert len(set().union(*reached.values())) > 1
