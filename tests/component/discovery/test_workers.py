# SPDX-License-Identifier: Apache-2.0
"""Two workers serve the streams on one port, and one parent knows about all of their clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from pilothouse.adapters import telemetry
from pilothouse.adapters.rpc import serving
from pilothouse.api.envoy.service.load_stats.v3 import lrs_pb2
from pilothouse.api.envoy.service.status.v3 import csds_pb2
from pilothouse.api.registry.v1alpha1 import registry_service_pb2, registry_service_pb2_grpc
from pilothouse.api.status.v1alpha1 import status_service_pb2, status_service_pb2_grpc
from pilothouse.xds import types
from pilothouse_discovery import app, settings
from tests.component.discovery import conftest as support
from tests.support import programs, waiting
from tests.support.agent import free_port

V1, V2 = (f"outbound|9080|version={v}|reviews.default" for v in ("v1", "v2"))
MOST = 64
"""Proxies that connect until each worker has one: with two, none of them for 2 in 2^64 runs."""


def _node(number: int) -> str:
    return f"sidecar~10.0.1.{number}~client-{number}.default~cluster.local"


@contextlib.asynccontextmanager
async def _on_both(running: support.Running) -> AsyncIterator[list[support.Proxy]]:
    """Proxies that are connected, of which each worker has some."""
    workers = running.server.workers
    assert workers is not None
    async with contextlib.AsyncExitStack() as stack:
        proxies: list[support.Proxy] = []
        while len(proxies) < 2 or min(workers.clients.values()) == 0:
            assert len(proxies) < MOST
            node = _node(len(proxies) + 1)
            proxy = await stack.enter_async_context(support.connected(running.address, node))
            proxies.append(proxy)
            await _hold(proxies, V1)
        yield proxies


async def _hold(proxies: Sequence[support.Proxy], cluster: str, *, gone: str = "") -> None:
    """Wait until all of them have a cluster, and none has the other one."""

    def hold() -> bool:
        names = [proxy.names(types.CLUSTER) for proxy in proxies]
        return all(cluster in held and gone not in held for held in names)

    await waiting.eventually(hold, what=cluster)


async def _subscribe_routes(proxies: Sequence[support.Proxy]) -> None:
    await waiting.eventually(lambda: all(proxy.names(types.LISTENER) for proxy in proxies))
    for proxy in proxies:
        await proxy.ask(types.ROUTE.type_url, "http-proxy")
    await waiting.eventually(lambda: all(proxy.names(types.ROUTE) for proxy in proxies))


async def _counted(running: support.Running, *, needed: int, acked: int, refused: int = 0) -> None:
    """Wait until so many proxies need the rule, run it and refuse it."""

    async def counted() -> bool:
        rule: Any = (await running.statuses("RouteRule"))["reviews"]
        counts = rule.proxies
        found = (counts.needed, counts.acked, counts.refused)
        assert found == (needed, acked, refused)
        return True

    await waiting.eventually(counted, what="the counts")


async def _listed(address: str) -> dict[str, bool]:
    """Node ids of the connected proxies, and whether each is in sync."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = status_service_pb2_grpc.StatusServiceStub(channel)
        answer = await stub.ListProxies(status_service_pb2.ListProxiesRequest())
    assert all(one.types[0].acked_version for one in answer.proxies if one.in_sync)
    return {one.node_id: one.in_sync for one in answer.proxies}


async def test_an_object_counts_the_proxies_of_both_workers(folder: pathlib.Path) -> None:
    """A change reaches all of them in steps, and its status says that it did."""
    async with support.serving(folder, workers=2) as running, _on_both(running) as proxies:
        await _subscribe_routes(proxies)
        await _counted(running, needed=len(proxies), acked=len(proxies))
        late = proxies[-1]
        late.withhold.add(types.CLUSTER.type_url)
        (folder / "rule.yaml").write_text(support.rule("v2"))
        await _hold(proxies[:-1], V2)
        await waiting.eventually(lambda: late._withheld)
        await _counted(running, needed=len(proxies), acked=len(proxies) - 1)
        await late.release()
        await _counted(running, needed=len(proxies), acked=len(proxies))
        await _hold(proxies, V2, gone=V1)
        for proxy in proxies:
            order = [url for url in proxy.order if url != types.ENDPOINT.type_url]
            routes = types.ROUTE.type_url
            assert order.index(types.CLUSTER.type_url) < order.index(routes)


async def test_a_refusal_at_a_worker_is_told_on_the_object(folder: pathlib.Path) -> None:
    """Who refuses is counted, and asked in vain for what it refused; in the client's words."""
    async with support.serving(folder, workers=2) as running, _on_both(running) as proxies:
        await _subscribe_routes(proxies)
        await _counted(running, needed=len(proxies), acked=len(proxies))
        routes = [proxy.resources[types.ROUTE.type_url] for proxy in proxies]
        before = [dict(one) for one in routes]
        for proxy in proxies:
            proxy.refuse = lambda url: "no such filter" if url == types.ROUTE.type_url else ""
        (folder / "rule.yaml").write_text(support.rule("v2"))
        await _counted(running, needed=len(proxies), acked=0, refused=len(proxies))
        assert routes == before
        async with grpc.aio.insecure_channel(running.address) as channel:
            stub = status_service_pb2_grpc.StatusServiceStub(channel)
            listed = await stub.ListProxies(status_service_pb2.ListProxiesRequest())
        for one in listed.proxies:
            assert not one.in_sync
            assert [kind.error for kind in one.types if kind.error] == ["no such filter"]


async def test_every_answer_is_about_the_clients_of_both_workers(folder: pathlib.Path) -> None:
    """Status and client status services, debug pages and metrics, whichever worker is asked."""
    async with support.serving(folder, workers=2) as running, _on_both(running) as proxies:
        nodes = {_node(number + 1) for number in range(len(proxies))}

        async def in_sync() -> bool:
            listed = await _listed(running.address)
            assert listed.keys() == nodes
            return all(listed.values())

        await waiting.eventually(in_sync)
        async with grpc.aio.insecure_channel(running.address) as channel:
            client_status: Any = channel.unary_unary(
                "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
                request_serializer=csds_pb2.ClientStatusRequest.SerializeToString,
                response_deserializer=csds_pb2.ClientStatusResponse.FromString,
            )
            answer = await client_status(csds_pb2.ClientStatusRequest())
            assert [one.node.id for one in answer.config] == sorted(nodes)
            for config in answer.config:
                held = {one.name: one for one in config.generic_xds_configs}
                assert held[V1].config_status == csds_pb2.SYNCED
                assert held[V1].xds_config.value
            wrong = csds_pb2.ClientStatusRequest()
            wrong.node_matchers.add().node_id.safe_regex.regex = "x"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client_status(wrong)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{running.http}/debug/clients") as page:
                shown = await page.json()
            async with session.get(f"http://{running.http}/metrics") as page:
                metrics = await page.text()
        assert {one["node"] for one in shown} == nodes
        assert all(one["inSync"] and one["types"][0]["acked"] for one in shown)
        assert f'pilot_xds{{role="sidecar"}} {len(nodes)}.0' in metrics
        (pushes,) = [
            float(line.rpartition(" ")[2])
            for line in metrics.splitlines()
            if line.startswith("pilot_xds_pushes_total") and "cluster.v3" in line
        ]
        assert pushes >= len(nodes)


async def test_calls_are_passed_on_with_their_streams_and_their_ends(folder: pathlib.Path) -> None:
    """A list, a watch that goes on, load reports, and the status of a call that is refused."""
    async with (
        support.serving(folder, workers=2) as running,
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        registry = registry_service_pb2_grpc.RegistryServiceStub(channel)
        listed = await registry.ListServices(registry_service_pb2.ListServicesRequest())
        assert [one.name for one in listed.services] == ["reviews"]

        objects = status_service_pb2_grpc.StatusServiceStub(channel)
        watch: Any = objects.WatchObjectStatuses(status_service_pb2.WatchObjectStatusesRequest())
        async with asyncio.timeout(30):
            while not (seen := (await watch.read()).objects):
                pass
        assert [one.object.name for one in seen] == ["reviews"]
        (folder / "rule.yaml").unlink()
        async with asyncio.timeout(30):
            while not (await watch.read()).removed:
                pass
        watch.cancel()

        reports: Any = channel.stream_stream(
            "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats",
            request_serializer=lrs_pb2.LoadStatsRequest.SerializeToString,
            response_deserializer=lrs_pb2.LoadStatsResponse.FromString,
        )
        call = reports()
        introduction = lrs_pb2.LoadStatsRequest()
        introduction.node.id = _node(1)
        await call.write(introduction)
        assert (await call.read()).load_reporting_interval.seconds
        call.cancel()

        nameless = reports()
        await nameless.write(lrs_pb2.LoadStatsRequest())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await nameless.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_source_is_served_by_a_worker(folder: pathlib.Path) -> None:
    """It gets the authored objects, and the status of its own."""
    node = "source~127.0.0.1~ingress.pilothouse-system~cluster.local"
    url = "type.googleapis.com/pilothouse.api.config.v1alpha1.RouteRule"
    async with support.serving(folder, workers=2) as running:
        proxy = support.Proxy(running.address, node)
        await proxy.open()
        await proxy.ask(url)
        task = asyncio.create_task(proxy.run())
        try:
            await waiting.eventually(lambda: proxy.resources.get(url))
        finally:
            await proxy.close()
            await asyncio.wait((task,))


async def test_a_killed_worker_comes_back(folder: pathlib.Path) -> None:
    """Its proxies are forgotten, and served again when they come; those of the other stay."""
    async with support.serving(folder, workers=2) as running, _on_both(running) as proxies:
        workers = running.server.workers
        assert workers is not None
        before = dict(workers.clients)
        victim, other = sorted(before)
        os.kill(victim, signal.SIGKILL)
        await waiting.eventually(lambda: workers.clients.get(other) == before[other])
        await waiting.eventually(
            lambda: sum(proxy.ended is not None for proxy in proxies) == before[victim]
        )
        await waiting.eventually(
            lambda: len(workers.pids) == 2 and victim not in workers.pids and workers.check().ok
        )
        assert other in workers.pids
        await _counted(running, needed=before[other], acked=before[other])
        async with contextlib.AsyncExitStack() as stack:
            again = [
                await stack.enter_async_context(support.connected(running.address, _node(n + 100)))
                for n in range(before[victim])
            ]
            await _hold(again, V1)
            everybody = [*again, *(proxy for proxy in proxies if proxy.ended is None)]
            (folder / "rule.yaml").write_text(support.rule("v2"))
            await _hold(everybody, V2)
            await _counted(running, needed=len(everybody), acked=len(everybody))


def _alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_server_that_stops_leaves_nothing(folder: pathlib.Path) -> None:
    """No worker, and no port; streams are told."""
    async with support.serving(folder, workers=2) as running:
        assert running.server.workers is not None
        pids = running.server.workers.pids
        proxy = support.Proxy(running.address, _node(1))
        await proxy.open()
        task = asyncio.create_task(proxy.run())
        await _hold([proxy], V1)
        # To grpc.aio a stream that ends while it is written to has an error of its own.
        await waiting.eventually(lambda: proxy.names(types.LISTENER))
        await waiting.eventually(lambda: all(one.in_sync for one in running.server.clients.proxies))
    await asyncio.wait((task,))
    await proxy.close()
    assert proxy.ended is grpc.StatusCode.UNAVAILABLE
    assert len(pids) == 2
    assert not any(_alive(pid) for pid in pids)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(running.address.rpartition(":")[2])))


async def test_workers_do_not_outlive_a_parent_that_is_killed(
    folder: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Not even when it cannot tell them."""
    flags = (
        *("--config", str(folder), "--workers", "2"),
        *("--grpc-address", f"127.0.0.1:{free_port()}"),
        *("--http-address", f"127.0.0.1:{free_port()}"),
    )
    logs = tmp_path_factory.mktemp("logs")
    async with programs.run("pilothouse_discovery", *flags, folder=logs) as program:
        await program.ready()
        pids = (await program.logged("serving"))["workers"]
        assert len(pids) == 2
        assert all(_alive(pid) for pid in pids)
        assert await program.stop(signal.SIGKILL) == -signal.SIGKILL
        await waiting.eventually(lambda: not any(_alive(pid) for pid in pids))


async def test_a_port_that_is_taken_is_told(folder: pathlib.Path) -> None:
    """As without workers: in one sentence, and nothing is left running."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        chosen = settings.Settings(
            config=folder,
            grpc_address=f"127.0.0.1:{port}",
            http_address=f"127.0.0.1:{free_port()}",
            workers=2,
        )
        server = app.Discovery(chosen, telemetry.Telemetry.off())
        with pytest.raises(serving.StartError, match=r"--grpc-address.*the port is in use"):
            await server.run(asyncio.Event())


async def test_streams_that_may_not_begin_are_counted(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of all workers together: of three streams two workers let in one each."""
    monkeypatch.setenv("PILOTHOUSE_MAX_NEW_STREAMS_PER_SECOND", "0.001")
    async with (
        support.serving(folder, workers=2) as running,
        aiohttp.ClientSession() as session,
        contextlib.AsyncExitStack() as stack,
    ):
        for number in range(3):
            await stack.enter_async_context(support.connected(running.address, _node(number)))

        async def counted() -> bool:
            async with session.get(f"http://{running.http}/metrics") as page:
                lines = (await page.text()).splitlines()
            counts = [
                float(line.rpartition(" ")[2])
                for line in lines
                if line.startswith(("pilothouse_xds_streams_refused", "pilothouse_xds_streams_wai"))
            ]
            assert len(counts) == 2
            return sum(counts) >= 1

        await waiting.eventually(counted)
