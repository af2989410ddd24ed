# SPDX-License-Identifier: Apache-2.0
"""One endpoint changes, and every stream watches it: from one process, and from two workers.

CPU is that of all processes of the server, and apart from it that of the one that builds. The
clients are on the same machine: with two cores, a worker more takes from them what it gains.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time
from collections.abc import Sequence

from bench import clients, meshes, processes, results

NAME = "worker-fanout"
SECONDS = 120.0
WORKERS = (1, 2)
LARGER = 5_000
"""Streams."""


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """The most services and streams, from as many processes."""
    services = max(chosen.services)
    sizes = sorted({max(chosen.streams), *((LARGER,) if chosen.larger else ())})
    rounds = min(chosen.rounds, 10)
    return [
        await _size(workers, services, streams, rounds, say)
        for streams in sizes
        for workers in WORKERS
    ]


async def _size(
    workers: int, services: int, streams: int, rounds: int, say: results.Say
) -> results.Row:
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        meshes.write(config, services)
        async with processes.discovery(config, workers=workers) as server:
            everybody = [server, *server.workers()]
            empty = sum(one.memory_bytes() for one in everybody)
            say(f"{workers} workers: {services} services, {streams} streams; {rounds} changes")
            started = time.perf_counter()
            async with clients.swarm(server.address, streams) as many:
                subscribed = time.perf_counter() - started
                await server.quiet()
                full = sum(one.memory_bytes() for one in everybody)
                began = [one.cpu_seconds() for one in everybody]
                seconds = [await _change(server, config, many, number) for number in range(rounds)]
                spent = [
                    one.cpu_seconds() - before for one, before in zip(everybody, began, strict=True)
                ]
    per_stream = 1e6 / rounds / streams
    return results.Row(
        sizes={"workers": workers, "services": services, "streams": streams},
        measures={
            **results.spread("last ACK", seconds),
            "CPU us/stream": round(sum(spent) * per_stream),
            "of that who builds": round(spent[0] * per_stream),
            "memory KB/stream": round((full - empty) / 1024 / streams, 1),
            "all subscribed s": round(subscribed, 2),
        },
        command=results.command(NAME, services=services, streams=streams, rounds=rounds),
    )


async def _change(
    server: processes.Server, config: pathlib.Path, many: Sequence[clients.DeltaClient], number: int
) -> float:
    """Seconds from a change to the last acknowledgement."""
    tally = clients.Tally(len(many))
    for client in many:
        client.watching = (clients.EDS, tally)
    began = time.perf_counter()
    meshes.change_endpoint(config, number)
    await tally.all(SECONDS)
    last = max(client.acked_at for client in many)
    await server.quiet()
    return last - began


BENCHMARK = results.Benchmark(
    name=NAME,
    title="The same change, from one process and from two workers",
    budget="1,000 services, 5,000 streams over two workers: p99 to the last ACK at most 1 s",
    run=run,
)
