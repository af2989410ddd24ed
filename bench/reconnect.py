# SPDX-License-Identifier: Apache-2.0
"""The server restarts, nothing has changed, and every proxy comes back with what it holds.

Clients say what they hold, as Envoy does, for clusters, endpoints, listeners and routes. So nothing
need be sent, and what a proxy costs is reading what it says.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time
from collections import Counter

from bench import clients, meshes, processes, results

NAME = "reconnect"
SECONDS = 120.0


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """The most services, with every number of streams."""
    services = max(chosen.services)
    return [await _size(services, streams, say) for streams in chosen.streams]


async def _size(services: int, streams: int, say: results.Say) -> results.Row:
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        meshes.write(config, services)
        wants = clients.Wants(routes=True, remember=True)
        async with (
            processes.discovery(config) as server,
            clients.swarm(server.address, 1, wants=wants) as (one,),
        ):
            held = clients.versions(one)
        say(f"reconnect: {services} services, {streams} streams come back")
        started = time.perf_counter()
        async with processes.discovery(config) as server:
            ready = time.perf_counter() - started
            cpu, began = server.cpu_seconds(), time.perf_counter()
            back = clients.Wants(routes=True, held=held)
            async with clients.swarm(server.address, streams, wants=back) as many:
                tally = clients.Tally(streams)
                for client in many:
                    client.watching = (clients.SDS, tally)
                await tally.all(SECONDS)
                in_sync = max(client.acked_at for client in many) - began
                cpu = server.cpu_seconds() - cpu
                await server.quiet()
                resent: Counter[str] = Counter()
                for client in many:
                    resent += client.received
    return results.Row(
        sizes={"services": services, "streams": streams},
        measures={
            "wildcard resources resent": resent[clients.CDS] + resent[clients.LDS],
            "named resources resent/stream": round(
                (resent[clients.EDS] + resent[clients.RDS]) / streams
            ),
            "server ready s": round(ready, 2),
            "all in sync after that s": round(in_sync, 2),
            "server CPU ms/stream": round(cpu / streams * 1000, 2),
        },
        command=results.command(NAME, services=services, streams=streams),
    )


BENCHMARK = results.Benchmark(
    name=NAME,
    title="The server restarts, and nothing has changed",
    budget="1,000 streams: no resource of a wildcard type is sent again, all in sync within 5 s",
    run=run,
    plots=(results.Plot("streams", "all in sync after that s"),),
)
