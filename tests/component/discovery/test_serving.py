# SPDX-License-Identifier: Apache-2.0
"""Discovery over real gRPC, with a client that acknowledges, withholds and refuses."""

from __future__ import annotations

import pathlib

import grpc
import pytest

from pilothouse.api.registry.v1alpha1 import registry_service_pb2, registry_service_pb2_grpc
from pilothouse.api.status.v1alpha1 import status_service_pb2, status_service_pb2_grpc
from pilothouse.xds import types
from tests.component.discovery import conftest as support
from tests.support import waiting
from tests.support.agent import free_port

NODE = "sidecar~10.0.0.9~client-1.default~cluster.local"
V1, V2 = (f"outbound|9080|version={v}|reviews.default" for v in ("v1", "v2"))
ROUTES = "http-proxy"


async def _settled(proxy: support.Proxy, cluster: str) -> None:
    """Wait until the proxy holds a cluster, and ask for the routes and endpoints it needs."""
    await waiting.eventually(lambda: cluster in proxy.names(types.CLUSTER))


def _route_bytes(proxy: support.Proxy) -> bytes:
    return b"".join(proxy.resources.get(types.ROUTE.type_url, {}).values())


async def _subscribe_routes(proxy: support.Proxy) -> None:
    await waiting.eventually(lambda: proxy.names(types.LISTENER))
    await proxy.ask(types.ROUTE.type_url, ROUTES)
    await waiting.eventually(lambda: _route_bytes(proxy))


async def test_a_change_reaches_the_proxy_in_steps(folder: pathlib.Path) -> None:
    """The new cluster first; its route once that is acknowledged; then the old one goes."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
    ):
        await _settled(proxy, V1)
        await _subscribe_routes(proxy)
        assert V1.encode() in _route_bytes(proxy)

        proxy.withhold.add(types.CLUSTER.type_url)
        (folder / "rule.yaml").write_text(support.rule("v2"))
        await waiting.eventually(lambda: proxy._withheld)
        assert V2.encode() not in _route_bytes(proxy)
        assert V1 in proxy.names(types.CLUSTER)

        await proxy.release()
        await waiting.eventually(lambda: V2.encode() in _route_bytes(proxy))
        await waiting.eventually(lambda: V1 not in proxy.names(types.CLUSTER))


async def test_status_counts_acknowledgements(folder: pathlib.Path) -> None:
    """An object is programmed once the proxy that needs it has acknowledged all of it."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
    ):
        await _settled(proxy, V1)
        await _subscribe_routes(proxy)

        async def programmed() -> bool:
            status = (await running.statuses("RouteRule"))["reviews"]
            return (status.proxies.needed, status.proxies.acked) == (1, 1)

        await waiting.eventually(programmed)


async def test_a_refusal_is_told_on_the_object(folder: pathlib.Path) -> None:
    """Who refuses is counted; the client goes on holding what it accepted."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
    ):
        await _settled(proxy, V1)
        await _subscribe_routes(proxy)
        before = _route_bytes(proxy)
        proxy.refuse = lambda url: "no such filter" if url == types.ROUTE.type_url else ""

        (folder / "rule.yaml").write_text(support.rule("v2"))

        async def refused() -> bool:
            status = (await running.statuses("RouteRule"))["reviews"]
            return status.proxies.refused == 1

        await waiting.eventually(refused)
        assert _route_bytes(proxy) == before
        async with grpc.aio.insecure_channel(running.address) as channel:
            stub = status_service_pb2_grpc.StatusServiceStub(channel)
            listed = await stub.ListProxies(status_service_pb2.ListProxiesRequest())
        (known,) = listed.proxies
        assert not known.in_sync
        assert any(one.error == "no such filter" for one in known.types)


async def test_a_broken_file_harms_nobody(folder: pathlib.Path) -> None:
    """The proxy keeps what the file said when it could be read, and the problem has a page."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
    ):
        await _settled(proxy, V1)
        (folder / "rule.yaml").write_text("kind: [")

        def told() -> bool:
            world = running.server.engine.world
            return world is not None and any("rule.yaml" in one.location for one in world.problems)

        await waiting.eventually(told)
        assert V1 in proxy.names(types.CLUSTER)
        assert "reviews" in await running.statuses("RouteRule")


async def test_a_proxy_that_needs_a_source_waits_for_it(folder: pathlib.Path) -> None:
    """A gateway is told UNAVAILABLE while ingress has never been read; a sidecar is served."""
    nobody = f"ingress=127.0.0.1:{free_port()}"
    async with support.serving(folder, sources=(nobody,), sync_grace=0.2) as running:
        gateway = "gateway~10.0.0.8~gw-1.pilothouse-system~cluster.local"
        async with support.connected(running.address, gateway) as waiting_proxy:
            await waiting.eventually(lambda: waiting_proxy.ended is grpc.StatusCode.UNAVAILABLE)
            assert not waiting_proxy.resources
        async with support.connected(running.address, NODE) as proxy:
            await _settled(proxy, V1)


@pytest.mark.parametrize("node", ["client", "router~1.2.3.4~a.b~c"])
async def test_a_node_without_the_right_form_is_refused(folder: pathlib.Path, node: str) -> None:
    """The stream ends with INVALID_ARGUMENT."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, node) as proxy,
    ):
        await waiting.eventually(lambda: proxy.ended is grpc.StatusCode.INVALID_ARGUMENT)


async def test_what_did_not_change_is_not_sent(folder: pathlib.Path) -> None:
    """An edit of a comment, or of an object's annotations, costs a proxy nothing."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
    ):
        await _settled(proxy, V1)
        await _subscribe_routes(proxy)
        count = len(proxy.order)
        edited = support.rule("v1").replace(
            "metadata: {name: reviews}", "metadata: {name: reviews, annotations: {a: b}}"
        )
        (folder / "rule.yaml").write_text("# A comment.\n" + edited)
        # A later change shows that the earlier one was looked at.
        (folder / "more.yaml").write_text(
            "apiVersion: v1\nkind: Service\nmetadata: {name: more}\n"
            "spec: {ports: [{name: http, port: 80}]}\n"
        )
        await _settled(proxy, "outbound|80||more.default")
        assert proxy.order[count:].count(types.ENDPOINT.type_url) == 0
        assert V1.encode() in _route_bytes(proxy)


async def test_services_are_listed_with_their_endpoints(folder: pathlib.Path) -> None:
    """RegistryService tells what the registry knows."""
    async with (
        support.serving(folder) as running,
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        stub = registry_service_pb2_grpc.RegistryServiceStub(channel)
        answer = await stub.ListServices(registry_service_pb2.ListServicesRequest())
    (service,) = answer.services
    assert service.name == "reviews"
    assert [one.address for one in service.endpoints] == ["10.0.0.1", "10.0.0.2"]


async def test_watching_statuses_gives_all_then_changes(folder: pathlib.Path) -> None:
    """The first message lists everything; a removed object is named in a later one."""
    async with (
        support.serving(folder) as running,
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        stub = status_service_pb2_grpc.StatusServiceStub(channel)
        await waiting.eventually(lambda: running.server.progress.states)
        watch = stub.WatchObjectStatuses(status_service_pb2.WatchObjectStatusesRequest())
        messages = aiter(watch)
        first = await anext(messages)
        assert [one.object.name for one in first.objects] == ["reviews"]

        (folder / "rule.yaml").unlink()

        second = await anext(messages)
        assert [one.name for one in second.removed] == ["reviews"]
        watch.cancel()


async def test_a_refusal_is_not_blamed_on_later_changes(folder: pathlib.Path) -> None:
    """A proxy that refused its routes still acknowledges what comes after, and no wave is lost."""
    async with (
        support.serving(folder) as running,
        support.connected(running.address, NODE) as proxy,
    ):
        await _settled(proxy, V1)
        await _subscribe_routes(proxy)
        proxy.refuse = lambda url: "no such filter" if url == types.ROUTE.type_url else ""
        (folder / "rule.yaml").write_text(
            support.rule("v1").replace("labels:", "weight: 7, labels:") + "    timeout: 3s\n"
        )

        async def counts(name: str) -> tuple[int, int, int]:
            found = (await running.statuses())[name].proxies
            return (found.needed, found.acked, found.refused)

        async def refused() -> bool:
            return await counts("reviews") == (1, 0, 1)

        await waiting.eventually(refused)
        (folder / "policy.yaml").write_text(
            "apiVersion: pilothouse.dev/v1alpha1\nkind: DestinationPolicy\n"
            "metadata: {name: patience}\nspec: {service: reviews, connectTimeout: 3s}\n"
        )

        async def acknowledged() -> bool:
            return "patience" in await running.statuses() and await counts("patience") == (1, 1, 0)

        await waiting.eventually(acknowledged)
        assert await counts("reviews") == (1, 0, 1)
        await waiting.eventually(lambda: not running.server.progress.under_way)
