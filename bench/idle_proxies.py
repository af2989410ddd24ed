# SPDX-License-Identifier: Apache-2.0
"""Proxies are connected, hold everything, and nothing happens."""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import tempfile
import time

from bench import clients, meshes, processes, results

NAME = "idle-proxies"
IDLE_SECONDS = 3.0


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """The most services, with every number of streams."""
    services = max(chosen.services)
    return [await _size(services, streams, say) for streams in chosen.streams]


async def _size(services: int, streams: int, say: results.Say) -> results.Row:
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        meshes.write(config, services)
        async with processes.discovery(config) as server:
            # One that comes and goes, so that what all share is not counted for each.
            async with clients.swarm(server.address, 1, wants=clients.Wants(routes=True)):
                await server.quiet()
            empty = server.memory_bytes()
            async with clients.swarm(server.address, streams, wants=clients.Wants(routes=True)):
                await server.quiet()
                say(f"idle: {services} services, {streams} streams for {IDLE_SECONDS:g} s")
                full, cpu, began = server.memory_bytes(), server.cpu_seconds(), time.monotonic()
                await asyncio.sleep(IDLE_SECONDS)
                used = (server.cpu_seconds() - cpu) / (time.monotonic() - began)
    return results.Row(
        sizes={"services": services, "streams": streams},
        measures={
            "memory KB/proxy": round((full - empty) / streams / 1024, 1),
            "CPU of the whole server, % of a core": round(used * 100, 2),
        },
        command=results.command(NAME, services=services, streams=streams),
    )


BENCHMARK = results.Benchmark(
    name=NAME,
    title="A connected proxy that is idle",
    budget="at most 100 KB of server memory, no CPU",
    run=run,
)
