# SPDX-License-Identifier: Apache-2.0
"""One endpoint changes, and every one of N delta streams watches it: from the change to the last
ACK, beside servers to compare with.

Pilothouse is a whole ``pilothouse-discovery`` that reads a folder: its time begins with the write
of the file, and has the reading of it, the planning and the encoding in it. The peers are given the
finished resource, so their time is delivery alone. They serve what Pilothouse served, byte for
byte, to the same clients in the same process. The clients' own work is part of every time; CPU is
the server's alone.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence

from bench import clients, http2, meshes, peers, processes, results
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2

NAME = "endpoint-fanout"
ROUND_SECONDS = 60.0
OURS, GO = "pilothouse", "go-control-plane"
LARGER = ((100, 5_000), (1_000, 5_000), (10_000, 100))
"""Services and streams."""
MANY = 1_000_000
"""Endpoints that all streams together watch, from which on there are fewer changes and peers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """One change."""

    to_last: float
    cpu: float
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Contender:
    """A running server, and how it is told of a change."""

    server: processes.Server
    change: Callable[[int], None]


async def run(chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """All sizes, each with every server."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="pilothouse-bench-") as scratch:
        folder = pathlib.Path(scratch)
        others = {} if chosen.no_peers else {"grpc.aio alone": peers.bare()}
        if not chosen.no_peers and (built := peers.go_control_plane(folder, say=say)) is not None:
            others[GO] = built
        for services, streams in _chosen(chosen):
            work = folder / f"{services}-{streams}"
            many = services * streams > MANY
            size = _Size(services, streams, min(chosen.rounds, 5) if many else chosen.rounds)
            able = dict(others)
            if many and able.pop(GO, None) is not None:
                # It keeps something for each name and stream.
                say(f"{GO}: {services} x {streams} is left out: gigabytes, and minutes")
            rows += await _sizes(size, work, able, say)
    return rows


def _chosen(chosen: argparse.Namespace) -> list[tuple[int, int]]:
    """Services and streams of each row."""
    sizes = [(services, streams) for services in chosen.services for streams in chosen.streams]
    return sorted({*sizes, *(LARGER if chosen.larger else ())})


@dataclasses.dataclass(frozen=True, slots=True)
class _Size:
    services: int
    streams: int
    rounds: int


async def _sizes(
    size: _Size, work: pathlib.Path, others: dict[str, peers.Command], say: results.Say
) -> list[results.Row]:
    meshes.write(work / "config", size.services)
    rows = []
    async with _ours(work) as contender:
        captured = await _capture(contender.server.address)
        rows.append(await _measure(OURS, size, contender, say))
    for name, command in others.items():
        try:
            async with _peer(command, work, captured) as contender:
                rows.append(await _measure(name, size, contender, say))
        except (TimeoutError, http2.EndedError) as error:
            sizes = f"{size.services} x {size.streams}"
            say(f"{name}: {sizes} is left out: not every client had an answer in time: {error}")
    return rows


@contextlib.asynccontextmanager
async def _ours(work: pathlib.Path) -> AsyncIterator[_Contender]:
    config = work / "config"
    async with processes.discovery(config) as server:
        yield _Contender(server, lambda number: meshes.change_endpoint(config, number))


async def _capture(address: str) -> list[discovery_pb2.Resource]:
    """All clusters and endpoints, as a client gets them."""
    async with clients.swarm(address, 1, wants=clients.Wants(remember=True)) as (client,):
        return [one for named in client.resources.values() for one in named.values()]


@contextlib.asynccontextmanager
async def _peer(
    command: peers.Command, work: pathlib.Path, captured: Sequence[discovery_pb2.Resource]
) -> AsyncIterator[_Contender]:
    served = work / "resources.pb"
    served.write_bytes(discovery_pb2.DeltaDiscoveryResponse(resources=captured).SerializeToString())
    original = _changing(captured)
    async with processes.peer(command, served) as peer:

        def change(number: int) -> None:
            path = work / f"change-{number}.pb"
            path.write_bytes(_changed(original, meshes.address(number)).SerializeToString())
            peer.replace(path)

        yield _Contender(peer, change)


def _changing(captured: Sequence[discovery_pb2.Resource]) -> discovery_pb2.Resource:
    """The endpoints that change: those with the address that they have at first."""
    needle = meshes.FIRST_ADDRESS.encode()
    (found,) = (one for one in captured if needle in one.resource.value)
    return found


def _changed(original: discovery_pb2.Resource, address: str) -> discovery_pb2.Resource:
    assignment = endpoint_pb2.ClusterLoadAssignment.FromString(original.resource.value)
    for locality in assignment.endpoints:
        for each in locality.lb_endpoints:
            socket = each.endpoint.address.socket_address
            if socket.address == meshes.FIRST_ADDRESS:
                socket.address = address
    changed = discovery_pb2.Resource()
    changed.CopyFrom(original)
    changed.version = address
    changed.resource.value = assignment.SerializeToString(deterministic=True)
    return changed


async def _measure(name: str, size: _Size, contender: _Contender, say: results.Say) -> results.Row:
    server = contender.server
    empty = server.memory_bytes()
    started = time.perf_counter()
    async with clients.swarm(server.address, size.streams) as connected:
        subscribed = time.perf_counter() - started
        say(
            f"{name}: {size.services} services, {size.streams} streams subscribed after"
            f" {subscribed:.1f} s; {size.rounds} changes"
        )
        # One that does not count: connections and caches warm up.
        await _round(contender, connected, 0)
        rounds = [await _round(contender, connected, 1 + n) for n in range(size.rounds)]
        full = server.memory_bytes()
    streams = size.streams
    flags: dict[str, results.Value]
    flags = {"services": size.services, "streams": streams, "rounds": size.rounds}
    return results.Row(
        sizes={"server": name, "services": size.services, "streams": streams},
        measures={
            **results.spread("last ACK", [one.to_last for one in rounds]),
            "server CPU us/stream": round(_mean([one.cpu for one in rounds]) / streams * 1e6),
            "bytes/stream": round(_mean([one.bytes for one in rounds]) / streams),
            "memory KB/stream": round((full - empty) / streams / 1024, 1),
            "all subscribed s": round(subscribed, 2),
        },
        command=results.command(NAME, **flags),
    )


async def _round(
    contender: _Contender, connected: Sequence[clients.DeltaClient], number: int
) -> _Round:
    tally = clients.Tally(len(connected))
    for client in connected:
        client.watching = (clients.EDS, tally)
    received = sum(client.received_bytes for client in connected)
    cpu, began = contender.server.cpu_seconds(), time.perf_counter()
    contender.change(number)
    await tally.all(ROUND_SECONDS)
    return _Round(
        to_last=max(client.acked_at for client in connected) - began,
        cpu=contender.server.cpu_seconds() - cpu,
        bytes=sum(client.received_bytes for client in connected) - received,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


BENCHMARK = results.Benchmark(
    name=NAME,
    title="One endpoint changes, and every stream watches it",
    budget="1,000 services, 1,000 streams: p99 to the last ACK at most 250 ms, server CPU at most"
    " 150 us a stream",
    run=run,
    plots=(
        results.Plot("streams", "server CPU us/stream"),
        results.Plot("streams", "last ACK p99 ms"),
        results.Plot("streams", "memory KB/stream"),
    ),
)
