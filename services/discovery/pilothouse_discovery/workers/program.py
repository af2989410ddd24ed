# SPDX-License-Identifier: Apache-2.0
"""The program of a worker: a gRPC server on the port that all workers share.

Started by its parent, and good for nothing without it: it ends when the parent says so or is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import marshal
import os
import socket
from collections.abc import Sequence

import grpc
import grpc.aio
import structlog

from pilothouse.adapters import telemetry
from pilothouse.adapters.rpc import admission, serving, streams
from pilothouse.api.envoy.service.status.v3 import csds_pb2
from pilothouse.xds import requests
from pilothouse_discovery import client_status, connections, memory, passed, sessions
from pilothouse_discovery.workers import messages, passing, reporting

_LOG = structlog.get_logger(__name__)
QUEUE_INTERVAL = 1.0
"""Seconds between two looks at how many streams wait to begin."""
PROGRAM = "pilothouse-discovery-worker"


def main(arguments: Sequence[str]) -> int:
    """Run a worker; the exit code: 0 when it was told to stop, 1 when it cannot go on."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="For pilothouse-discovery to start.")
    parser.add_argument("link", help="name of the parent's abstract Unix socket")
    parser.add_argument("--log-level", required=True)
    parser.add_argument("--log-format", required=True)
    chosen = parser.parse_args(arguments)
    telemetry.configure_logging(PROGRAM, chosen.log_level, format=chosen.log_format)
    memory.give_back()
    memory.collect_less()
    memory.settle()
    return serving.run_program(lambda: _run(chosen.link))


async def _run(link: str) -> None:
    with serving.stop_signals() as stop:
        where = socket.socket(socket.AF_UNIX)
        where.setblocking(False)  # noqa: FBT003
        await asyncio.get_running_loop().sock_connect(where, f"\0{link}")
        reader, writer = await asyncio.open_unix_connection(sock=where)
        header = await reader.readexactly(messages.HEADER)
        hello, *more = messages.decode(await reader.readexactly(messages.length(header)))
        if not isinstance(hello, messages.Hello) or hello.version != messages.VERSION:
            raise serving.StartError(f"the parent speaks another version: {hello!r}")
        await Worker(hello, reader, writer, more).run(stop)


class Worker:
    """One worker."""

    def __init__(
        self,
        hello: messages.Hello,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        more: Sequence[messages.Message],
    ) -> None:
        """Wire everything; nothing is opened before ``run``.

        ``more`` is what the parent said in one breath with its hello.
        """
        self._hello = hello
        self._reporter = reporting.Reporter(
            reader, writer, said=more, topics={"types": _types, "client status": _client_status}
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until the parent says stop or is gone, or ``stop`` is set."""
        hello = self._hello
        limits = connections.Limits.read(hello.limits)
        admitting = limits.admission()
        server = serving.GrpcServer(options=limits.options(reuse_port=True))
        xds = streams.XdsServer(
            self._reporter,
            write_timeout=hello.write_timeout,
            per_type=True,
            admitting=admitting,
        )
        xds.add_to(server)
        async with grpc.aio.insecure_channel(hello.calls, options=_UNLIMITED) as channel:
            server.server.add_generic_rpc_handlers((passing.Passing(channel, passed.SERVICES),))
            server.announce(*passed.SERVICES)
            try:
                server.server.add_insecure_port(hello.grpc_address)
            except RuntimeError as error:
                self._reporter.say(messages.Failed(str(error)))
            else:
                async with server.running(grace=hello.shutdown_grace):
                    self._reporter.say(messages.Serving())
                    await self._serve(stop, server, admitting)
                    await xds.drain()
                return
            await self._serve(stop, server, admitting)

    async def _serve(
        self,
        stop: asyncio.Event,
        server: serving.GrpcServer,
        admitting: admission.Admission | None,
    ) -> None:
        """Until one of them ends."""
        tasks = {
            asyncio.create_task(self._reporter.run(), name="reporter"),
            asyncio.create_task(stop.wait(), name="stop"),
        }
        beside = {
            asyncio.create_task(self._reporter.watch.run(), name="loop watch"),
            asyncio.create_task(self._announce_ready(server), name="ready"),
        }
        if admitting is not None:
            beside.add(asyncio.create_task(self._tell_queue(admitting), name="queue"))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks | beside:
                task.cancel()
            await asyncio.wait(tasks | beside)

    async def _announce_ready(self, server: serving.GrpcServer) -> None:
        await self._reporter.ready.wait()
        await server.set_ready(ready=True)

    async def _tell_queue(self, admitting: admission.Admission) -> None:
        told = messages.Queued(0, 0)
        while True:
            await asyncio.sleep(QUEUE_INTERVAL)
            now = messages.Queued(admitting.waiting, admitting.refused)
            if now != told:
                told = now
                self._reporter.say(now)


_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def _types(reporter: reporting.Reporter, _: bytes) -> bytes:
    """How each type of each client stands, as plain values."""
    return marshal.dumps(
        [
            (
                client.number,
                [dataclasses.asdict(one) for one in client.session.stream.types()],
            )
            for client in reporter.clients
        ]
    )


@dataclasses.dataclass(slots=True, kw_only=True)
class Shown:
    """A client as the client status service shows it."""

    id: str
    session: sessions.Session


def _client_status(reporter: reporting.Reporter, body: bytes) -> bytes:
    """The answer of the client status service about this worker's clients.

    As plain values: name and text of a gRPC status, or two empty texts, and the encoded answer.
    """
    request = csds_pb2.ClientStatusRequest.FromString(body)
    clients = [
        Shown(id=f"{client.session.node.id}#{os.getpid()}.{client.number}", session=client.session)
        for client in reporter.clients
    ]
    try:
        found = client_status.about(clients, request)
    except requests.ProtocolError as error:
        return marshal.dumps((error.code, str(error), b""))
    return marshal.dumps(("", "", found.SerializeToString()))
