# SPDX-License-Identifier: Apache-2.0
"""Proxies connect, take everything, and go, over and over."""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import tempfile
import time

from bench import clients, meshes, processes, results

NAME = "churn"
BATCH = 50
SERVICES = 100


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """One size: the number of connects."""
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        meshes.write(config, SERVICES)
        async with processes.discovery(config) as server:
            say(f"churn: {chosen.connects} connects, {BATCH} at a time")
            # The first fifth fills what is kept for the next.
            await _connects(server, chosen.connects // 5)
            warm, cpu, began = server.memory_bytes(), server.cpu_seconds(), time.perf_counter()
            done = await _connects(server, chosen.connects - chosen.connects // 5)
            seconds, cpu = time.perf_counter() - began, server.cpu_seconds() - cpu
            end = server.memory_bytes()
    return [
        results.Row(
            sizes={"connects": chosen.connects, "at a time": BATCH, "services": SERVICES},
            measures={
                "memory after a fifth MB": round(warm / 2**20, 1),
                "memory at the end MB": round(end / 2**20, 1),
                "growth %": round((end / warm - 1) * 100, 1),
                "connects/s": round(done / seconds),
                "server CPU ms/connect": round(cpu / done * 1000, 2),
            },
            command=results.command(NAME, connects=chosen.connects),
        )
    ]


async def _connects(server: processes.Server, count: int) -> int:
    for _ in range(count // BATCH):
        async with clients.swarm(server.address, BATCH, wants=clients.Wants(routes=True)):
            pass
        await asyncio.sleep(0)
    await server.quiet()
    return count // BATCH * BATCH


BENCHMARK = results.Benchmark(
    name=NAME,
    title="Proxies that come and go",
    budget="10,000 connects and disconnects: memory flat within 5 %",
    run=run,
)
