# SPDX-License-Identifier: Apache-2.0
"""One endpoint changes that no stream but a single witness watches: nobody else hears of it.

CPU is everything that the server does until it is quiet again, reading the folder twice included.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile

from bench import clients, meshes, processes, results

NAME = "endpoint-unwatched"
SECONDS = 60.0


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """Every number of services, with the most streams."""
    streams = max(chosen.streams)
    return [
        await _size(services, streams, min(chosen.rounds, 10), say) for services in chosen.services
    ]


async def _size(services: int, streams: int, rounds: int, say: results.Say) -> results.Row:
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        config = pathlib.Path(scratch) / "config"
        meshes.write(config, services)
        async with processes.discovery(config) as server:
            witness = clients.Wants(remember=True)
            async with clients.swarm(server.address, 1, wants=witness) as (one,):
                others = clients.Wants(but=frozenset({_changing(one)}))
                async with clients.swarm(
                    server.address, streams, wants=others, node=lambda n: clients.sidecar(n + 1)
                ) as many:
                    say(f"unwatched: {services} services, {streams} streams; {rounds} changes")
                    before = sum(client.received_bytes for client in many)
                    cpu = await _changes(server, config, one, rounds)
                    received = sum(client.received_bytes for client in many) - before
    return results.Row(
        sizes={"services": services, "streams": streams},
        measures={
            "bytes sent to who does not watch": received,
            "server CPU ms/change": round(cpu / rounds * 1000, 1),
        },
        command=results.command(NAME, services=services, streams=streams, rounds=rounds),
    )


def _changing(client: clients.DeltaClient) -> str:
    needle = meshes.FIRST_ADDRESS.encode()
    named = client.resources[clients.EDS]
    (name,) = (name for name, one in named.items() if needle in one.resource.value)
    return name


async def _changes(
    server: processes.Server, config: pathlib.Path, witness: clients.DeltaClient, rounds: int
) -> float:
    await server.quiet()
    began = server.cpu_seconds()
    for number in range(rounds):
        tally = clients.Tally(1)
        witness.watching = (clients.EDS, tally)
        meshes.change_endpoint(config, number)
        await tally.all(SECONDS)
        await server.quiet()
    return server.cpu_seconds() - began


BENCHMARK = results.Benchmark(
    name=NAME,
    title="One endpoint changes that nobody watches",
    budget="no bytes sent, CPU independent of the size of the mesh",
    run=run,
    plots=(results.Plot("services", "server CPU ms/change"),),
)
