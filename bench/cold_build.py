# SPDX-License-Identifier: Apache-2.0
"""The server starts on a large folder; then one endpoint changes."""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

from bench import clients, meshes, processes, results

NAME = "cold-build"
SECONDS = 120.0
ENDPOINTS = 10
"""For each service."""


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """All sizes."""
    return [await _size(services, min(chosen.rounds, 5), say) for services in chosen.large]


async def _size(services: int, rounds: int, say: results.Say) -> results.Row:
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        meshes.write(config, services, endpoints=ENDPOINTS)
        say(f"cold build: {services} services, {services * ENDPOINTS} endpoints")
        started = time.perf_counter()
        async with processes.discovery(config) as server:
            ready, cpu = time.perf_counter() - started, server.cpu_seconds()
            async with clients.swarm(server.address, 1) as (one,):
                first = time.perf_counter() - started - ready
                seconds, spent = [], []
                for number in range(rounds):
                    await server.quiet()
                    tally = clients.Tally(1)
                    one.watching = (clients.EDS, tally)
                    used = server.cpu_seconds()
                    began = time.perf_counter()
                    meshes.change_endpoint(config, number)
                    await tally.all(SECONDS)
                    seconds.append(one.acked_at - began)
                    await server.quiet()
                    spent.append(server.cpu_seconds() - used)
                hold = await server.metric("pilothouse_loop_longest_hold_seconds")
                memory, peak = server.memory_bytes(), server.peak_memory_bytes()
    return results.Row(
        sizes={"services": services, "endpoints": services * ENDPOINTS},
        measures={
            "ready s": round(ready, 2),
            "CPU to ready s": round(cpu, 2),
            "first proxy has all after that s": round(first, 2),
            "memory MB": round(memory / 2**20),
            "peak memory MB": round(peak / 2**20),
            "longest hold of the loop ms": round(hold * 1000, 1),
            "then one change, ms": round(results.percentile(seconds, 50) * 1000),
            "CPU of it, ms": round(results.percentile(spent, 50) * 1000),
        },
        command=results.command(NAME, large=services, rounds=rounds),
    )


BENCHMARK = results.Benchmark(
    name=NAME,
    title="A cold start on a large mesh",
    budget="10,000 services with 100,000 endpoints: built within 10 s, at most 1 GB; then one"
    " change costs what it costs at 1,000",
    run=run,
    plots=(results.Plot("services", "ready s"), results.Plot("services", "then one change, ms")),
)
