# SPDX-License-Identifier: Apache-2.0
"""Tracing: where spans go, how a trace crosses a hop, and what it costs when off."""

import asyncio
import os
import sys
from typing import Any

import grpc
import grpc.aio
import pytest

from pilothouse.adapters import telemetry
from tests.support.otlp import OtlpReceiver, otlp_receiver


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch):
    async with otlp_receiver() as receiver:
        for name, value in receiver.environment().items():
            monkeypatch.setenv(name, value)
        yield receiver


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_TRACES_EXPORTER": "jaeger"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
    ],
)
async def test_off_means_no_spans_no_interceptors_no_error(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    tracing = telemetry.tracer_provider("agent", "1")
    assert not tracing.enabled
    assert telemetry.client_interceptors(tracing) == []
    assert telemetry.server_interceptors(tracing) == []
    with tracing.span("push", parent="", links=["nonsense"]) as span:
        assert not span.is_recording()
        assert telemetry.current_traceparent() == ""
    await tracing.shutdown()


@pytest.mark.parametrize(
    "variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
async def test_an_endpoint_switches_it_on(monkeypatch: pytest.MonkeyPatch, variable: str):
    async with otlp_receiver() as receiver:
        monkeypatch.setenv(variable, receiver.endpoint)
        tracing = telemetry.tracer_provider("agent", "1")
        with tracing.span("push"):
            pass
        await tracing.shutdown()
        assert [(name, span.name) for name, span in receiver.spans] == [("agent", "push")]


async def test_parent_and_links_travel_as_traceparents(collector: OtlpReceiver):
    tracing = telemetry.tracer_provider("agent", "1")
    with tracing.span("change"):
        first = telemetry.current_traceparent()
    with tracing.span("other change"):
        second = telemetry.current_traceparent()
    with tracing.span("push", parent=first, links=[second, "", "nonsense"], attributes={"n": 3}):
        pass
    await tracing.shutdown()

    spans = {span.name: span for _name, span in collector.spans}
    assert spans["push"].trace_id == spans["change"].trace_id
    assert spans["push"].parent_span_id == spans["change"].span_id
    assert [link.span_id for link in spans["push"].links] == [spans["other change"].span_id]
    assert spans["push"].attributes[0].value.int_value == 3


async def test_an_empty_parent_starts_a_new_trace_inside_another_span(collector: OtlpReceiver):
    tracing = telemetry.tracer_provider("agent", "1")
    with tracing.span("outer"), tracing.span("fresh", parent=""):
        pass
    await tracing.shutdown()
    spans = {span.name: span for _name, span in collector.spans}
    assert spans["fresh"].trace_id != spans["outer"].trace_id
    assert spans["fresh"].parent_span_id == b""


def test_injecting_what_was_extracted_gives_the_same_trace():
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"
    assert telemetry.inject(telemetry.extract(given)).split("-")[1:3] == given.split("-")[1:3]
    assert telemetry.inject(telemetry.extract("nonsense")) == ""


async def test_the_user_names_the_service(collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "edge-agent")
    tracing = telemetry.tracer_provider("agent", "1")
    with tracing.span("push"):
        pass
    await tracing.shutdown()
    assert collector.spans[0][0] == "edge-agent"


async def test_a_dead_collector_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch):
    """It is not waited for until the exporter gives it up by itself."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    tracing = telemetry.tracer_provider("agent", "1")
    with tracing.span("push"):
        pass
    async with asyncio.timeout(30):
        await tracing.shutdown(within=0.2)


async def test_spans_of_a_child_process_arrive(collector: OtlpReceiver):
    code = (
        "import asyncio; from pilothouse.adapters import telemetry\n"
        "async def main():\n"
        "    tracing = telemetry.tracer_provider('child', '1')\n"
        "    with tracing.span('work', parent='00-' + '1' * 32 + '-' + '2' * 16 + '-01'): pass\n"
        "    await tracing.shutdown()\n"
        "asyncio.run(main())"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    try:
        ((name, span),) = await collector.wait(bool)
        assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert (name, span.name, span.trace_id.hex()) == ("child", "work", "1" * 32)


async def echo(request: bytes, _context: object):
    return request + telemetry.current_traceparent().encode()


async def stream(_requests: object, context: Any):
    while (message := await context.read()) is not grpc.aio.EOF:
        await context.write(message)


async def test_unary_calls_make_linked_spans_and_streams_pass_untouched(collector: OtlpReceiver):
    tracing = telemetry.tracer_provider("agent", "1")
    server = grpc.aio.server(interceptors=telemetry.server_interceptors(tracing))
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(echo),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    interceptors = telemetry.client_interceptors(tracing)
    try:
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", interceptors=interceptors
        ) as channel:
            answer = await channel.unary_unary("/test.Echo/Unary")(b"hello ")
            call = channel.stream_stream("/test.Echo/Stream")()
            await call.write(b"one")
            assert await call.read() == b"one"
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
    finally:
        await server.stop(grace=None)
    await tracing.shutdown()

    spans = {(span.name, span.kind): span for _name, span in collector.spans}
    assert len(spans) == 2
    assert {name for name, _kind in spans} == {"/test.Echo/Unary"}
    assert answer.startswith(b"hello 00-")
    assert len({span.trace_id for span in spans.values()}) == 1
