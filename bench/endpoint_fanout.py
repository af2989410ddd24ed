# SPDX-License-Identifier: Apache-2.0
"""One endpoint changes, and every one of N delta streams watches it: from the write of the file to
the last ACK.

The server is a real ``pilothouse-discovery`` that reads a folder; the clients share one process
beside it, so their own work is part of the time. CPU is the server's alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench import clients, processes

GRPC, HTTP = "127.0.0.1:18010", "127.0.0.1:18014"
SUBSCRIBE_SECONDS, ROUND_SECONDS = 240.0, 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large the mesh is."""

    services: int
    streams: int
    rounds: int


def service(number: int) -> str:
    """A service with one HTTP port, as a manifest."""
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}}}\n"
        "spec: {ports: [{name: http, port: 80}]}\n"
    )


def endpoint_slice(number: int, address: str) -> str:
    """The endpoints of that service: one fixed address, and the one given."""
    return (
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"
        f"metadata: {{name: s{number}, labels: {{kubernetes.io/service-name: s{number}}}}}\n"
        "addressType: IPv4\nports: [{name: http, port: 8080}]\n"
        f"endpoints: [{{addresses: [10.0.0.1]}}, {{addresses: [{address}]}}]\n"
    )


def write_mesh(folder: pathlib.Path, services: int) -> None:
    """All services in one file, all endpoints but the first service's in another."""
    numbers = range(services)
    (folder / "services.yaml").write_text("---\n".join(service(n) for n in numbers))
    slices = [endpoint_slice(n, "10.0.0.2") for n in numbers if n]
    (folder / "endpoints.yaml").write_text("---\n".join(slices))
    (folder / "changing.yaml").write_text(endpoint_slice(0, "10.1.0.0"))


def replace(path: pathlib.Path, text: str) -> None:
    """Swap a file in one step."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


async def run(shape: Shape, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure one shape."""
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        config.mkdir()
        write_mesh(config, shape.services)
        say(f"{shape.services} services, {shape.streams} streams: starting")
        log = pathlib.Path(scratch) / "discovery.log"
        async with processes.discovery(config, grpc=GRPC, http=HTTP, log=log) as server:
            idle = server.memory_bytes()
            started = time.perf_counter()
            connected = [
                clients.DeltaClient(
                    GRPC, f"sidecar~10.9.{n >> 8}.{n & 255}~w{n}.default~cluster.local"
                )
                for n in range(shape.streams)
            ]
            tasks = [asyncio.create_task(client.run()) for client in connected]
            try:
                async with asyncio.timeout(SUBSCRIBE_SECONDS):
                    for client in connected:
                        await client.subscribed.wait()
                subscribed = time.perf_counter() - started
                say(f"all subscribed after {subscribed:.1f} s; {shape.rounds} changes")
                rounds = await _rounds(shape, connected, server, config / "changing.yaml")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            per_stream = (server.memory_bytes() - idle) / shape.streams
    return _row(shape, rounds, subscribed=subscribed, memory_per_stream=per_stream)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One change."""

    seconds: float
    cpu_seconds: float
    bytes: int


async def _rounds(
    shape: Shape,
    connected: Sequence[clients.DeltaClient],
    server: processes.Server,
    path: pathlib.Path,
) -> list[Round]:
    rounds = []
    for number in range(1, shape.rounds + 1):
        cpu, sent = server.cpu_seconds(), sum(client.received_bytes for client in connected)
        written = time.perf_counter()
        replace(path, endpoint_slice(0, f"10.1.{number >> 8}.{number & 255}"))
        async with asyncio.timeout(ROUND_SECONDS):
            # Polled: to be woken by each of a thousand clients would cost more than the measure.
            while not all(client.changed >= number for client in connected):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        rounds.append(
            Round(
                seconds=max(client.acked_at for client in connected) - written,
                cpu_seconds=server.cpu_seconds() - cpu,
                bytes=sum(client.received_bytes for client in connected) - sent,
            )
        )
    return rounds


def _row(
    shape: Shape, rounds: Sequence[Round], *, subscribed: float, memory_per_stream: float
) -> dict[str, Any]:
    seconds = sorted(one.seconds for one in rounds)
    return {
        "benchmark": "endpoint_fanout",
        "command": f"python -m bench --services {shape.services} --streams {shape.streams}"
        f" --rounds {shape.rounds}",
        "services": shape.services,
        "streams": shape.streams,
        "rounds": shape.rounds,
        "subscribe_seconds": round(subscribed, 2),
        "to_last_ack_ms_p50": round(statistics.median(seconds) * 1000, 1),
        "to_last_ack_ms_max": round(seconds[-1] * 1000, 1),
        "server_cpu_us_per_stream": round(
            sum(one.cpu_seconds for one in rounds) / len(rounds) / shape.streams * 1e6, 1
        ),
        "bytes_per_stream": round(sum(one.bytes for one in rounds) / len(rounds) / shape.streams),
        "server_memory_kb_per_stream": round(memory_per_stream / 1024, 1),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    columns = [
        "services",
        "streams",
        "to_last_ack_ms_p50",
        "to_last_ack_ms_max",
        "server_cpu_us_per_stream",
        "bytes_per_stream",
        "server_memory_kb_per_stream",
        "subscribe_seconds",
    ]
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(str(row[column]) for column in columns) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)
