# SPDX-License-Identifier: Apache-2.0
"""Limits of connections and streams, from the flags to what a client meets."""

from __future__ import annotations

import contextlib
import pathlib

import grpc
import pytest

from pilothouse.adapters import commandline
from pilothouse.xds import types
from pilothouse_discovery import connections, settings
from tests.component.discovery import conftest as support
from tests.support import waiting

NODE = "sidecar~10.0.0.9~client-{}.default~cluster.local"


def _limits(*arguments: str) -> connections.Limits:
    return connections.of(settings.read(arguments))


def test_p71_connections_have_an_age_unless_told_otherwise() -> None:
    """Half an hour, with a finite grace; gRPC adds the jitter."""
    arguments = dict(_limits().options().channel_arguments())
    assert arguments["grpc.max_connection_age_ms"] == 1_800_000
    assert arguments["grpc.max_connection_age_grace_ms"] == 10_000
    never = dict(_limits("--max-connection-age", "0").options().channel_arguments())
    assert "grpc.max_connection_age_ms" not in never


def test_p72_p47_pings_and_large_requests_are_settings() -> None:
    """In gRPC's own words."""
    chosen = _limits(
        *("--keepalive-time", "20", "--keepalive-timeout", "3", "--min-ping-interval", "7"),
        *("--max-request-mebibytes", "64"),
    )
    arguments = dict(chosen.options(reuse_port=True).channel_arguments())
    assert arguments["grpc.keepalive_time_ms"] == 20_000
    assert arguments["grpc.keepalive_timeout_ms"] == 3_000
    assert arguments["grpc.http2.min_ping_interval_without_data_ms"] == 7_000
    assert arguments["grpc.max_receive_message_length"] == 64 * 1024 * 1024
    assert arguments["grpc.so_reuseport"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ("--max-new-streams-per-second", "-1"),
        ("--max-connection-age", "-1"),
        ("--max-connection-age-grace", "0"),
        ("--max-request-mebibytes", "0"),
    ],
)
def test_nonsense_is_wrong_use(wrong: tuple[str, str]) -> None:
    """And is told by the name of its flag."""
    with pytest.raises(commandline.UsageError, match=wrong[0]):
        settings.read(wrong)


def test_another_process_can_be_told() -> None:
    """As numbers."""
    chosen = _limits("--max-connection-age", "12.5", "--max-new-streams-per-second", "3")
    assert connections.Limits.read(tuple(chosen)) == chosen
    assert chosen.options().max_connection_age == 12.5


async def test_p73_each_worker_lets_in_so_many(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three streams to two workers that take one each, one at least is refused."""
    monkeypatch.setenv("PILOTHOUSE_MAX_NEW_STREAMS_PER_SECOND", "0.001")
    monkeypatch.setenv("PILOTHOUSE_WORKERS", "2")
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(support.serving(folder))
        workers = running.server.workers
        assert workers is not None
        await waiting.eventually(lambda: workers.check().ok)
        proxies = [
            await stack.enter_async_context(support.connected(running.address, NODE.format(number)))
            for number in range(3)
        ]

        def settled() -> bool:
            return all(one.names(types.CLUSTER) or one.ended is not None for one in proxies)

        await waiting.eventually(settled, 45)
        ends = {one.ended for one in proxies} - {None}
        assert ends == {grpc.StatusCode.RESOURCE_EXHAUSTED}


async def test_p73_a_fleet_that_comes_at_once_is_let_in_one_by_one(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes too early is refused, and counted; who is there stays."""
    monkeypatch.setenv("PILOTHOUSE_MAX_NEW_STREAMS_PER_SECOND", "0.001")
    async with (
        # Each process has a limit of its own: with two, the second client may be another's first.
        support.serving(folder, workers=1) as running,
        support.connected(running.address, NODE.format(1)) as first,
    ):
        await waiting.eventually(lambda: first.names(types.CLUSTER))
        async with support.connected(running.address, NODE.format(2)) as second:
            await waiting.eventually(lambda: second.ended is grpc.StatusCode.RESOURCE_EXHAUSTED)
        text = running.server._metrics.text().decode()
        assert "pilothouse_xds_streams_refused 1.0" in text
        assert "pilothouse_xds_streams_waiting 0.0" in text
        assert len(running.server.clients) == 1
