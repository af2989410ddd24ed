# SPDX-License-Identifier: Apache-2.0
"""Proxies connect, and go when they have everything, or at once; over and over."""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping

import grpc

from bench import clients, meshes, processes, results
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2

NAME = "churn"
BATCH = 50
SERVICES = 100


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """One size, the number of connects; a row for each way to go."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        meshes.write(config, SERVICES)
        for way, batch in WAYS.items():
            async with processes.discovery(config) as server:
                say(f"churn: {chosen.connects} connects, {BATCH} at a time, that go {way}")
                # The first fifth fills what is kept for the next.
                await _connects(server, chosen.connects // 5, batch)
                warm, cpu, began = server.memory_bytes(), server.cpu_seconds(), time.perf_counter()
                done = await _connects(server, chosen.connects - chosen.connects // 5, batch)
                seconds, cpu = time.perf_counter() - began, server.cpu_seconds() - cpu
                end = server.memory_bytes()
            rows.append(
                results.Row(
                    sizes={
                        "connects": chosen.connects,
                        "at a time": BATCH,
                        "services": SERVICES,
                        "that go": way,
                    },
                    measures={
                        "memory after a fifth MB": round(warm / 2**20, 1),
                        "memory at the end MB": round(end / 2**20, 1),
                        "growth %": round((end / warm - 1) * 100, 1),
                        "connects/s": round(done / seconds),
                        "server CPU ms/connect": round(cpu / done * 1000, 2),
                    },
                    command=results.command(NAME, connects=chosen.connects),
                )
            )
    return rows


async def _connects(
    server: processes.Server, count: int, batch: Callable[[str], Awaitable[None]]
) -> int:
    for _ in range(count // BATCH):
        await batch(server.address)
        await asyncio.sleep(0)
    await server.quiet()
    return count // BATCH * BATCH


async def _well(address: str) -> None:
    async with clients.swarm(address, BATCH, wants=clients.Wants(routes=True)):
        pass


async def _at_once(address: str) -> None:
    """Each hangs up when it has asked, while the answer is being written: batches fail."""
    await asyncio.gather(*(_hang_up(address, number) for number in range(BATCH)))


async def _hang_up(address: str, number: int) -> None:
    async with grpc.aio.insecure_channel(
        address, options=(("grpc.use_local_subchannel_pool", 1),)
    ) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(clients.METHOD)()
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=clients.CDS)
        request.node.id = clients.sidecar(number)
        await call.write(request.SerializeToString())
        call.cancel()


WAYS: Mapping[str, Callable[[str], Awaitable[None]]] = {"well": _well, "at once": _at_once}


BENCHMARK = results.Benchmark(
    name=NAME,
    title="Proxies that come and go",
    budget="10,000 connects and disconnects: memory flat within 5 %",
    run=run,
)
