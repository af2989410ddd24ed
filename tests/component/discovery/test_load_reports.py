# SPDX-License-Identifier: Apache-2.0
"""Load reports: P62 of the protocol, with a client that speaks it and with a real gRPC client."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import grpc
import grpc.aio

from pilothouse.api.envoy.config.endpoint.v3 import load_report_pb2
from pilothouse.api.envoy.service.load_stats.v3 import lrs_pb2
from tests.component.discovery import conftest as support
from tests.support import fleet, grpc_application, waiting

NODE = "sidecar~10.0.0.9~client-1.default~cluster.local"
CLUSTER = "outbound|9080||reviews.default"
Request, Response = lrs_pb2.LoadStatsRequest, lrs_pb2.LoadStatsResponse
Call = grpc.aio.StreamStreamCall[Request, Response]


@contextlib.asynccontextmanager
async def _stream(running: support.Running) -> AsyncIterator[Call]:
    async with grpc.aio.insecure_channel(running.address) as channel:
        call: Call = channel.stream_stream(
            "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats",
            request_serializer=Request.SerializeToString,
            response_deserializer=Response.FromString,
        )()
        yield call
        call.cancel()


async def _loads(running: support.Running) -> dict[str, Any]:
    return {one["service"]: one for one in await _page(running.http, "/debug/loads")}


async def _page(address: str, path: str) -> Any:
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://{address}{path}") as answer,
    ):
        is_json = answer.content_type == "application/json"
        return await (answer.json() if is_json else answer.text())


def _report(cluster: str, **counts: int) -> Request:
    dropped = counts.pop("total_dropped_requests", 0)
    place = load_report_pb2.UpstreamLocalityStats(locality={"zone": "z"}, **counts)
    return Request(
        cluster_stats=[
            load_report_pb2.ClusterStats(
                cluster_name=cluster,
                upstream_locality_stats=[place],
                total_dropped_requests=dropped,
            )
        ]
    )


async def test_p62_a_client_is_told_what_to_report_and_how_often(folder: pathlib.Path) -> None:
    """Everything, in one word if it knows that word, else by name."""
    async with (
        support.serving(folder, load_report_interval=2.5) as running,
        support.connected(running.address, NODE) as proxy,
    ):
        await waiting.eventually(lambda: proxy.resources)
        for features, everything in ((["envoy.lrs.supports_send_all_clusters"], True), ([], False)):
            async with _stream(running) as call:
                await call.write(Request(node={"id": NODE, "client_features": features}))
                answer = await call.read()
                assert isinstance(answer, Response)
                assert answer.load_reporting_interval.ToMilliseconds() == 2500
                assert answer.send_all_clusters is everything
                assert (CLUSTER in answer.clusters) is not everything


async def test_p62_reports_are_summed_up_by_service(folder: pathlib.Path) -> None:
    """On a page and as metrics; what is in progress ends with the client."""
    async with support.serving(folder) as running:
        async with _stream(running) as call:
            await call.write(Request(node={"id": NODE}))
            await call.read()
            counts: Mapping[str, int] = {
                "total_issued_requests": 10,
                "total_successful_requests": 6,
                "total_error_requests": 1,
                "total_requests_in_progress": 3,
                "total_dropped_requests": 2,
            }
            await call.write(_report(CLUSTER, **counts))
            await call.write(_report(CLUSTER, **counts))
            await call.write(_report("outbound|80||made-up.default", **counts))

            async def counted() -> bool:
                return "unknown" in await _loads(running)

            await waiting.eventually(counted)
            loads = await _loads(running)
            assert set(loads) == {"reviews.default", "unknown"}
            summed = {"issued": 20, "succeeded": 12, "failed": 2}
            assert loads["reviews.default"] == {
                "service": "reviews.default",
                "inProgress": 3,
                "dropped": 4,
                **summed,
                "localities": [{"region": "", "zone": "z", "subZone": "", **summed}],
            }
            text = await _page(running.http, "/metrics")
            line = 'pilothouse_load_requests_total{outcome="succeeded",service="reviews.default"}'
            assert f"{line} 12.0" in text

        async def ended() -> bool:
            return (await _loads(running))["reviews.default"]["inProgress"] == 0

        await waiting.eventually(ended)


async def test_p62_a_stream_that_does_not_say_who_it_is_ends(folder: pathlib.Path) -> None:
    """With INVALID_ARGUMENT, as everywhere."""
    async with support.serving(folder) as running, _stream(running) as call:
        await call.write(_report(CLUSTER))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.read()
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_server_that_stops_ends_reports_at_once(folder: pathlib.Path) -> None:
    """The client is told to go elsewhere."""
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(support.serving(folder))
        call = await stack.enter_async_context(_stream(running))
        await call.write(Request(node={"id": NODE}))
        await call.read()
        running.stop.set()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.read()
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert await call.details() == "the server is stopping"


async def test_p62_a_real_grpc_client_reports(tmp_path: pathlib.Path) -> None:
    """Calls that succeed are counted for the service that was called."""
    folder = tmp_path / "config"
    folder.mkdir()
    faster = {"GRPC_XDS_MIN_CLIENT_LOAD_REPORTING_INTERVAL_MS": "100"}
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(grpc_application.backend("one"))
        (folder / "app.yaml").write_text(
            fleet.join(fleet.service("app"), fleet.pod("app", "v1", port))
        )
        running = await stack.enter_async_context(support.serving(folder, load_report_interval=1))
        client = await stack.enter_async_context(
            grpc_application.application(running.address, tmp_path, environment=faster)
        )
        outcome = await client.call("xds:///app:80", 50)
        assert outcome == grpc_application.Outcome(replies={"one": 50})

        async def reported() -> bool:
            loads = await _loads(running)
            return "app.default" in loads and loads["app.default"]["succeeded"] == 50

        await waiting.eventually(reported, 45)
        assert (await _loads(running))["app.default"]["issued"] == 50
