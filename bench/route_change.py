# SPDX-License-Identifier: Apache-2.0
"""Every sidecar is of another workload, and one route that all of them may use changes."""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

from bench import clients, meshes, processes, results

NAME = "route-change"
SECONDS = 120.0


def _workload(number: int) -> str:
    """The sidecar of a pod behind the service of that number."""
    (address,) = meshes.addresses(number, 1)
    return f"sidecar~{address}~w{number}.default~cluster.local"


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """As many sidecars as services, each behind one of them, for each number of streams."""
    return [await _size(count, min(chosen.rounds, 4), say) for count in chosen.streams]


async def _size(count: int, rounds: int, say: results.Say) -> results.Row:
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        meshes.write(config, count + 1)
        rule = config / "rule.yaml"
        rule.write_text(meshes.route_rule("r0", "{service: s0}", seconds=100))
        async with processes.discovery(config) as server:
            empty = server.memory_bytes()
            wants = clients.Wants(routes=True)
            async with clients.swarm(
                server.address, count, wants=wants, node=lambda n: _workload(n + 1)
            ) as many:
                say(f"route change: {count} workloads and services; {rounds} changes")
                full = server.memory_bytes()
                received = sum(client.received_bytes for client in many)
                cpu, seconds = 0.0, []
                for number in range(rounds):
                    tally = clients.Tally(count)
                    for client in many:
                        client.watching = (clients.RDS, tally)
                    before, began = server.cpu_seconds(), time.perf_counter()
                    meshes.replace(
                        rule, meshes.route_rule("r0", "{service: s0}", seconds=1 + number)
                    )
                    await tally.all(SECONDS)
                    seconds.append(max(client.acked_at for client in many) - began)
                    cpu += server.cpu_seconds() - before
                received = sum(client.received_bytes for client in many) - received
    return results.Row(
        sizes={"sidecars, workloads, services": count},
        measures={
            "server CPU s/change": round(cpu / rounds, 2),
            **results.spread("last ACK", seconds),
            "KB/stream": round(received / rounds / count / 1024, 1),
            "memory KB/stream": round((full - empty) / count / 1024, 1),
        },
        command=results.command(NAME, streams=count, rounds=rounds),
    )


BENCHMARK = results.Benchmark(
    name=NAME,
    title="As many workloads as sidecars, and one route changes for all of them",
    budget="1,000 sidecars of 1,000 workloads: at most 1 s of CPU to plan; layers shared",
    run=run,
    plots=(results.Plot("sidecars, workloads, services", "server CPU s/change"),),
)
