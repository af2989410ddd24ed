# SPDX-License-Identifier: Apache-2.0
"""One trace from the write of a file to the last proxy's answer, through real processes."""

import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support import local_mesh, traces
from tests.support.local_mesh import LocalMesh, edit, program, write
from tests.support.otlp import OtlpReceiver, otlp_receiver

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

WEB = "web.example.com"
DISCOVERY, INGRESS, EGRESS = "pilothouse-discovery", "pilothouse-ingress", "pilothouse-egress"
RULE = """\
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {name: back}
spec:
  parents: [{service: back}]
  http: [{destinations: [{service: back}], timeout: 5s}]
"""
OUTSIDE = """\
apiVersion: pilothouse.dev/v1alpha1
kind: ExternalService
metadata: {name: outside}
spec:
  hosts: [outside.example.com]
  ports: [{number: 80, targetPort: 9080}]
  resolution: STATIC
  endpoints: [{address: 127.9.84.1}]
  throughEgressGateway: true
"""
MESH = """\
apiVersion: pilothouse.dev/v1alpha1
kind: MeshConfig
metadata: {name: default, namespace: pilothouse-system}
spec:
  tracing: {address: 127.0.0.1, port: PORT, samplingPercent: 100}
"""


Way = list[tuple[str, str]]


@dataclasses.dataclass(slots=True)
class Traced:
    """A mesh that sends its spans to a collector."""

    mesh: LocalMesh
    collector: OtlpReceiver
    folder: Path

    async def follow(self, since: int, changed: str, way: Way) -> traces.Spans:
        """Wait for a trace that began with a change of this object and went this way.

        All spans of it so far. Of what came after the first `since` spans: those of another test
        may come late.
        """
        found: list[tuple[str, Span]] = []

        def arrived(spans: traces.Spans) -> bool:
            new = spans[since:]
            for _, root in new:
                if changed in traces.attributes(root).get("pilothouse.objects", ()):
                    found[:] = [one for one in new if one[1].trace_id == root.trace_id]
                    if way in traces.ways(found, way[-1][1]):
                        return True
            return False

        try:
            await self.collector.wait(arrived, 20.0)
        except TimeoutError:
            pytest.fail(f"no such way; what came:\n{traces.listed(self.collector.spans[since:])}")
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(tmp_path_factory) -> AsyncIterator[Traced]:
    folder = tmp_path_factory.mktemp("traced")
    async with otlp_receiver() as collector:
        port = collector.endpoint.rpartition(":")[2]
        write(folder / "mesh.yaml", MESH.replace("PORT", port))
        write(folder / "web.yaml", program("web", host=WEB, upstreams="/back=http://back:9080/"))
        write(folder / "back.yaml", program("back"))
        write(folder / "rule.yaml", RULE)
        write(folder / "outside.yaml", OUTSIDE)
        environment = {**collector.environment(), "PILOTHOUSE_TRACING_FLUSH": "0.1"}
        async with local_mesh.run(
            "up", "-f", ".", "-o", "json", directory=folder, environment=environment
        ) as mesh:
            await mesh.up()
            yield Traced(mesh, collector, folder)
            mesh.process.terminate()
            assert await mesh.exit() == 0, mesh.errors
            await mesh.nothing_left()


def _acks(spans: traces.Spans, way: Way) -> set[str]:
    """The proxies whose answers lie at the end of a way."""
    return {
        str(traces.attributes(span)["xds.node.id"]).split("~")[2]
        for _, span in spans
        if span.name == "xds.ack" and traces.way_if_whole(spans, span) == way
    }


async def test_an_edited_rule_from_the_file_to_the_acknowledgements(traced: Traced):
    since = len(traced.collector.spans)
    edit(traced.folder / "rule.yaml", "timeout: 5s", "timeout: 6s")

    way = [(DISCOVERY, name) for name in ("config.change", "mesh.build", "xds.push", "xds.ack")]
    spans = await traced.follow(since, "RouteRule/default/back", way)

    assert _acks(spans, way) <= {"web-0.default", "back-0.default"}
    (change,) = [span for _, span in spans if span.name == "config.change"]
    (push,) = [span for _, span in spans if span.name == "xds.push"]
    ends = [span.end_time_unix_nano for _, span in spans if span.name == "xds.ack"]
    assert change.start_time_unix_nano < push.start_time_unix_nano
    assert push.end_time_unix_nano == max(ends)


async def test_an_edited_ingress_across_two_services_to_the_gateway(traced: Traced):
    since = len(traced.collector.spans)
    edit(traced.folder / "web.yaml", f"host: {WEB}", "host: other.example.com")
    way = [
        *((INGRESS, name) for name in ("ingress.change", "ingress.publish")),
        *((DISCOVERY, name) for name in ("mesh.build", "xds.push", "xds.ack")),
    ]
    try:
        spans = await traced.follow(since, "Ingress/default/web", way)
    finally:
        edit(traced.folder / "web.yaml", "host: other.example.com", f"host: {WEB}")
    await traced.mesh.answers(WEB, "/", lambda body: body["service"] == "web")

    assert _acks(spans, way) == {"ingress-gateway.pilothouse-system"}


async def test_an_edited_external_service_through_egress_and_back(traced: Traced):
    since = len(traced.collector.spans)
    # What egress makes of it changes too: the gateway answers for another host.
    edit(traced.folder / "outside.yaml", "outside.example.com", "elsewhere.example.com")
    way = [
        *((DISCOVERY, name) for name in ("config.change", "mesh.build")),
        *((EGRESS, name) for name in ("egress.change", "egress.publish")),
        *((DISCOVERY, name) for name in ("mesh.build", "xds.push", "xds.ack")),
    ]
    spans = await traced.follow(since, "ExternalService/default/outside", way)

    assert "egress-gateway.pilothouse-system" in _acks(spans, way)


async def test_a_removed_ingress_is_traced_to_the_gateway_too(traced: Traced):
    file = traced.folder / "extra.yaml"
    write(file, local_mesh.ingress("back", "extra.example.com"))
    await traced.mesh.answers("extra.example.com", "/", lambda body: body["service"] == "back")
    since = len(traced.collector.spans)
    file.unlink()
    way = [
        *((INGRESS, name) for name in ("ingress.change", "ingress.publish")),
        *((DISCOVERY, name) for name in ("mesh.build", "xds.push", "xds.ack")),
    ]
    spans = await traced.follow(since, "Ingress/default/back", way)
    assert _acks(spans, way) == {"ingress-gateway.pilothouse-system"}


async def test_a_removed_external_service_is_traced_through_egress_and_back(traced: Traced):
    file = traced.folder / "passing.yaml"
    since = len(traced.collector.spans)
    write(file, OUTSIDE.replace("outside", "passing"))
    way = [
        *((DISCOVERY, name) for name in ("config.change", "mesh.build")),
        *((EGRESS, name) for name in ("egress.change", "egress.publish")),
        (DISCOVERY, "mesh.build"),
    ]
    await traced.follow(since, "ExternalService/default/passing", way)
    since = len(traced.collector.spans)
    file.unlink()
    await traced.follow(since, "ExternalService/default/passing", way)


async def test_a_request_is_one_trace_through_every_envoy(traced: Traced):
    since = len(traced.collector.spans)
    status, body = await traced.mesh.get(WEB, "/back")
    assert (status, body["upstream"]["status"]) == (200, 200)
    trace = bytes.fromhex(body["headers"]["traceparent"].split("-")[1])

    def arrived(spans: traces.Spans) -> bool:
        ways = traces.ways([one for one in spans[since:] if one[1].trace_id == trace], name)
        return any({service for service, _ in way} == envoys for way in ways)

    envoys = {"ingress-gateway.pilothouse-system", "web.default", "back.default"}
    # The last hop: the sidecar of `back` sends it to the program beside it.
    name = "router inbound|9080 egress"
    await traced.collector.wait(arrived, 20.0)


async def test_a_call_of_the_command_is_one_trace_with_discoverys_answer(traced: Traced):
    since = len(traced.collector.spans)
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pilothouse.cli", "proxies"),
        *("--discovery-address", traced.mesh.found["discovery"]),
        env={**traced.collector.environment(), "TRACEPARENT": caller},
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0

    def arrived(spans: traces.Spans) -> bool:
        return sum(one.name.endswith("ListProxies") for _, one in spans[since:]) == 2

    spans = (await traced.collector.wait(arrived))[since:]
    (verb,) = [span for _, span in spans if span.name == "pilothouse proxies"]
    calls = {service: span for service, span in spans if span.name.endswith("ListProxies")}
    assert verb.trace_id.hex() == caller.split("-")[1]
    assert verb.parent_span_id.hex() == caller.split("-")[2]
    assert calls["pilothouse"].parent_span_id == verb.span_id
    assert calls[DISCOVERY].parent_span_id == calls["pilothouse"].span_id
    assert calls[DISCOVERY].trace_id == verb.trace_id
