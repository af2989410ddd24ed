# SPDX-License-Identifier: Apache-2.0
"""The spans of a change inside discovery, where real Envoys would not do as the test wants."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pilothouse.adapters import telemetry
from pilothouse.model import changes
from pilothouse.xds import types
from tests.component.discovery import conftest as discovery
from tests.support.waiting import eventually

ONE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"
NODE = "sidecar~10.0.0.1~reviews-v1.default~cluster.local"
folder = discovery.folder


class Recorded:
    """Tracing into memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = telemetry.Telemetry(
            provider=provider, tracer=provider.get_tracer("test"), enabled=True
        )

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of a name that have ended, in the order of their ends."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    made = Recorded()
    yield made
    made.telemetry.provider.shutdown()


def _trace(span: ReadableSpan) -> str:
    return trace.format_trace_id(span.context.trace_id)


async def test_a_refusal_is_an_error_of_the_ack_and_of_the_push_in_the_trace_of_the_change(
    folder: Path, recorded: Recorded
):
    async with (
        discovery.serving(folder, tracing=recorded.telemetry) as server,
        discovery.connected(server.address, NODE) as proxy,
    ):
        await eventually(lambda: proxy.names(types.LISTENER))
        proxy.refuse = lambda url: "no such filter" if url == types.CLUSTER.type_url else ""
        # A rule with another destination is another cluster.
        (folder / "rule.yaml").write_text(discovery.rule("v2"))
        await eventually(
            lambda: [s for s in recorded.named("xds.push") if not s.status.is_ok], what="a refusal"
        )

        (push,) = [span for span in recorded.named("xds.push") if not span.status.is_ok]
        (ack,) = [span for span in recorded.named("xds.ack") if not span.status.is_ok]
        change = recorded.named("config.change")[-1]
    assert push.status.description == "1 proxies refused"
    assert push.attributes is not None
    assert (push.attributes["xds.refused"], push.attributes["xds.acked"]) == (1, 0)
    assert ack.status.description is not None
    assert "no such filter" in ack.status.description
    assert types.CLUSTER.type_url in ack.status.description
    assert ack.attributes is not None
    assert ack.attributes["xds.node.id"] == NODE
    assert ack.parent is not None
    assert ack.parent.span_id == push.context.span_id
    assert _trace(ack) == _trace(push) == _trace(change)


async def test_changes_that_are_built_together_are_linked(folder: Path, recorded: Recorded):
    async with discovery.serving(folder, tracing=recorded.telemetry) as server:
        await eventually(lambda: recorded.named("mesh.build"))
        before = len(recorded.named("mesh.build"))
        for source, traceparent in (("one", ONE), ("other", OTHER), ("one", ONE)):
            server.server.engine.changed(changes.Change(source=source, traceparent=traceparent))
        await eventually(lambda: len(recorded.named("mesh.build")) > before)

        (build,) = [span for span in recorded.named("mesh.build")[before:] if span.links]
    assert _trace(build) == ONE.split("-")[1]
    assert build.parent is not None
    assert trace.format_span_id(build.parent.span_id) == ONE.split("-")[2]
    assert [trace.format_trace_id(link.context.trace_id) for link in build.links] == [
        OTHER.split("-")[1]
    ]
    assert build.attributes is not None
    assert build.attributes["pilothouse.changes"] == 3
    assert build.attributes["pilothouse.sources"] == ("one", "other")
