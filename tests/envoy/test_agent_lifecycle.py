# SPDX-License-Identifier: Apache-2.0
"""The agent with a real Envoy: start, readiness, configuration, and every way to end."""

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.ads import CDS, LDS, AdsServer, direct_response
from tests.support.agent import agent, alive, fetch, free_port
from tests.support.otlp import otlp_receiver
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

UNREACHABLE = "discovery unreachable, trying on; Envoy keeps what it has"


@pytest.fixture
async def ads() -> AsyncIterator[AdsServer]:
    async with AdsServer().serving() as server:
        yield server


def serve(ads: AdsServer, body: str = "hello", *, status: int = 200, port: int = 0) -> str:
    """Have every proxy answer `body`; the URL to ask."""
    port = port or free_port()
    ads.set(CDS)
    ads.set(LDS, direct_response("test", port=port, body=body, status=status))
    return f"http://127.0.0.1:{port}/"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def exists(path: Path) -> bool:
    return path.exists()


@pytest.mark.parametrize("variant", ["--delta", "--no-delta"])
async def test_it_starts_an_envoy_that_serves_and_stops_both_on_sigterm(
    ads: AdsServer, tmp_path: Path, variant: str
):
    url = serve(ads)
    async with agent(tmp_path, "--discovery-address", ads.address, variant) as running:
        await running.ready()
        assert await fetch(url) == (200, "hello")
        assert (await running.get("/livez"))[0] == 200
        report = await running.readiness()
        assert {name: each["state"] for name, each in report["types"].items()} == {
            "CDS": "accepted",
            "LDS": "accepted",
        }
        node = ads.requests[0].node
        assert node.id == "sidecar~127.0.0.1~test.default~cluster.local"
        pid = await running.envoy_pid()
        work = Path((await running.logged("starting"))["work_dir"])
        assert mode(work / "bootstrap.json") == 0o600

        running.process.send_signal(signal.SIGTERM)
        assert await running.exit() == 0
        assert not alive(pid)
        assert not exists(work)


async def test_ctrl_c_is_a_clean_stop_too(ads: AdsServer, tmp_path: Path):
    serve(ads)
    async with agent(tmp_path, "--discovery-address", ads.address) as running:
        await running.ready()
        running.process.send_signal(signal.SIGINT)
        assert await running.exit() == 0
        assert (await running.logged("envoy stopped"))["code"] == 0


async def test_when_envoy_is_killed_the_agent_ends_with_its_code_and_a_hint(
    ads: AdsServer, tmp_path: Path
):
    serve(ads)
    async with agent(tmp_path, "--discovery-address", ads.address) as running:
        await running.ready()
        os.kill(await running.envoy_pid(), signal.SIGKILL)
        assert await running.exit() == 137
        assert "memory limit" in (await running.logged("envoy ended"))["hint"]


async def test_when_the_agent_is_killed_envoy_goes_too(ads: AdsServer, tmp_path: Path):
    serve(ads)
    work = tmp_path / "w"
    async with agent(
        tmp_path, "--discovery-address", ads.address, "--work-dir", str(work)
    ) as running:
        await running.ready()
        pid = await running.envoy_pid()
        running.process.kill()
        await running.exit()
        await eventually(lambda: not alive(pid), 30)


async def test_with_restart_on_failure_envoy_is_started_again(ads: AdsServer, tmp_path: Path):
    url = serve(ads)
    async with agent(
        tmp_path, "--discovery-address", ads.address, "--restart", "on-failure"
    ) as running:
        await running.ready()
        first = await running.envoy_pid()
        os.kill(first, signal.SIGKILL)
        await running.logged("envoy is started again")
        await eventually(lambda: len(running.log("envoy started")) == 2)
        await running.ready()
        assert await fetch(url) == (200, "hello")
        assert await running.envoy_pid() != first
        assert "pilothouse_agent_proxy_starts_total 2.0" in (await running.get("/metrics"))[1]


async def test_a_refused_configuration_shows_in_readyz_with_envoys_words(
    ads: AdsServer, tmp_path: Path
):
    port = free_port()
    serve(ads, status=42, port=port)
    async with agent(tmp_path, "--discovery-address", ads.address) as running:

        async def refused() -> bool:
            return (await running.readiness())["types"].get("LDS", {}).get("state") == "rejected"

        await eventually(refused)
        report = await running.readiness()
        assert (report["code"], report["ready"]) == (503, False)
        (reason,) = [each for each in report["missing"] if each.startswith("LDS")]
        assert "rejected by Envoy" in reason
        assert "test" in reason

        url = serve(ads, "better", port=port)
        await running.ready()
        assert await fetch(url) == (200, "better")
        report = await running.readiness()
        assert report["types"]["LDS"]["state"] == "accepted"
        assert report["types"]["LDS"]["last_error"]

        serve(ads, "worse", status=42, port=port)
        await eventually(refused)
        assert (await running.readiness())["code"] == 200, "what was accepted stays in force"
        assert await fetch(url) == (200, "better")
        metrics = (await running.get("/metrics"))[1]
        assert 'xds_responses_total{result="rejected",type="LDS"} 2.0' in metrics


@pytest.mark.parametrize("variant", ["--delta", "--no-delta"])
async def test_discovery_may_come_late_go_and_come_back(tmp_path: Path, variant: str):
    ads, port = AdsServer(), free_port()
    address = f"127.0.0.1:{port}"
    async with agent(tmp_path, "--discovery-address", address, variant) as running:
        await running.logged(UNREACHABLE)
        report = await running.readiness()
        assert report["code"] == 503
        assert f"discovery: not reachable at {address}" in report["missing"]

        url = serve(ads)
        async with ads.serving(port):
            await running.ready()
            assert await fetch(url) == (200, "hello")

        async def lost() -> bool:
            return not (await running.readiness())["discovery"]["connected"]

        await eventually(lost)
        await eventually(lambda: len(running.log(UNREACHABLE)) == 2, 45)
        assert (await running.readiness())["code"] == 200, "Envoy keeps what it has"
        assert await fetch(url) == (200, "hello")

        serve(ads, "again", port=int(url.rpartition(":")[2].strip("/")))
        async with ads.serving(port):

            async def again() -> bool:
                return await fetch(url) == (200, "again")

            await eventually(again, 60)
        assert len(running.log("discovery connected")) == 2


async def test_an_ended_stream_makes_envoy_begin_again(ads: AdsServer, tmp_path: Path):
    serve(ads)
    async with agent(tmp_path, "--discovery-address", ads.address) as running:
        await running.ready()
        ads.end_streams()
        await eventually(lambda: ads.streams == 2)
        # The node is told in the first request of a stream only: a new stream tells it anew.
        await eventually(lambda: sum(bool(each.node.id) for each in ads.requests) == 2)
        assert (await running.readiness())["code"] == 200


async def test_health_is_answered_over_grpc(ads: AdsServer, tmp_path: Path):
    socket_path = tmp_path / "grpc.sock"
    async with (
        agent(
            tmp_path, "--discovery-address", ads.address, "--grpc-address", f"unix:{socket_path}"
        ) as running,
        grpc.aio.insecure_channel(f"unix:{socket_path}") as channel,
    ):
        await running.envoy_pid()
        stub = health_pb2_grpc.HealthStub(channel)
        answers = health_pb2.HealthCheckResponse
        call = stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
        assert (await call.read()).status == answers.NOT_SERVING
        serve(ads)
        assert (await call.read()).status == answers.SERVING
        running.process.terminate()
        assert (await call.read()).status == answers.NOT_SERVING


async def test_its_spans_arrive(ads: AdsServer, tmp_path: Path):
    async with (
        otlp_receiver() as collector,
        agent(tmp_path, "--discovery-address", ads.address, env=collector.environment()),
    ):
        spans = await collector.wait(lambda spans: len(spans) >= 2)
        assert {(name, span.name) for name, span in spans} == {
            ("pilothouse-agent", "envoy.validate"),
            ("pilothouse-agent", "envoy.start"),
        }


async def test_a_missing_envoy_is_told_with_the_setting(tmp_path: Path):
    async with agent(tmp_path, "--envoy-path", str(tmp_path / "none")) as running:
        assert await running.exit() == 1
        assert "--envoy-path" in (await running.logged("cannot run"))["reason"]


async def test_a_status_port_in_use_is_told_with_the_setting(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for flag in ("--status-address", "--admin-address", "--grpc-address"):
            async with agent(tmp_path, flag, address) as running:
                assert await running.exit() == 1
                reason = (await running.logged("cannot run"))["reason"]
                assert flag in reason
                assert address in reason
                assert "in use" in reason


async def test_two_agents_do_not_share_a_folder(ads: AdsServer, tmp_path: Path):
    work, other = tmp_path / "w", tmp_path / "other"
    other.mkdir()
    async with agent(tmp_path, "--work-dir", str(work)) as first:
        await first.envoy_pid()
        async with agent(other, "--work-dir", str(work)) as second:
            assert await second.exit() == 1
            assert "--work-dir" in (await second.logged("cannot run"))["reason"]
        first.process.terminate()
        assert await first.exit() == 0
        assert json.loads((work / "bootstrap.json").read_text())["node"]["id"]
