# SPDX-License-Identifier: Apache-2.0
"""The frame of a config source as a program: ports, pages, loops, readiness and the end of it all.

Ingress and egress differ in what they read and in what they make of it; everything else is here.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import structlog

from pilothouse.adapters.rpc import config_source, exposition, publisher, serving, streams, web
from pilothouse.model import changes

_LOG = structlog.get_logger(__name__)

Loop = Callable[[], Coroutine[Any, Any, Any]]


class Pending:
    """Changes that wait to be worked on: however many come, the next work takes them all."""

    def __init__(self) -> None:
        self._changes: list[changes.Change] = []
        self._some = asyncio.Event()

    def add(self, change: changes.Change) -> None:
        """Take note of a change; for `subscribe`."""
        self._changes.append(change)
        self._some.set()

    async def take(self) -> tuple[changes.Change, ...]:
        """Wait until there is a change, and take all there are, in the order in which they came."""
        await self._some.wait()
        self._some.clear()
        taken, self._changes = tuple(self._changes), []
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceService:
    """What a config source is made of."""

    name: str
    """What it is called in metrics: `ingress`."""
    publisher: publisher.ConfigPublisher
    upstream: config_source.ConfigStreamClient
    """Discovery, for what it reads from there."""
    loops: Mapping[str, Loop]
    """What runs beside the servers and `upstream`, by name; the end of one with an error is the end
    of the program."""
    ready: Callable[[], Sequence[web.Check]]
    """Checks behind `/readyz`, beside that of having published."""
    debug: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    """Debug pages."""
    grpc_address: serving.Address
    http_address: serving.Address
    interceptors: Sequence[grpc.aio.ServerInterceptor] = ()
    grace: float = 5.0
    """Seconds that running calls get at the end."""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises serving.StartError when a port cannot be bound."""
        server = serving.GrpcServer(interceptors=self.interceptors)
        xds = streams.XdsServer(self.publisher)
        xds.add_to(server)
        port = server.bind(self.grpc_address, setting="--grpc-address")
        pages = web.Pages(ready=self._ready, metrics=self.metrics, debug=self.debug)
        async with contextlib.AsyncExitStack() as stack:
            http_port = await stack.enter_async_context(
                web.http_server(self.http_address, pages, setting="--http-address")
            )
            await stack.enter_async_context(server.running(grace=self.grace))
            _LOG.info(
                "serving",
                grpc=str(serving.Address(self.grpc_address.host, port)),
                http=str(serving.Address(self.http_address.host, http_port)),
            )
            try:
                await self._loops(stop, server)
            finally:
                await xds.drain()

    async def _loops(self, stop: asyncio.Event, server: serving.GrpcServer) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop(), name=name) for name, loop in self.loops.items()]
            tasks.append(group.create_task(self.upstream.run(), name=self.upstream.name))
            tasks.append(group.create_task(self._become_ready(server), name="readiness"))
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def _become_ready(self, server: serving.GrpcServer) -> None:
        await self.publisher.first()
        await server.set_ready(ready=True)
        _LOG.info("ready", objects=len(self.publisher.configs))

    def _ready(self) -> Sequence[web.Check]:
        published = self.publisher.published
        message = "" if published else "nothing has been published yet"
        return (*self.ready(), web.Check(name="published", ok=published, message=message))

    def metrics(self) -> str:
        """The metrics of a source, in Prometheus' text format."""
        kinds = collections.Counter(config.key.kind for config in self.publisher.configs)
        objects = exposition.Metric(
            name=f"pilothouse_{self.name}_objects",
            kind="gauge",
            help="Objects published, by kind.",
            label="kind",
            values=dict(sorted(kinds.items())),
        )
        connected, subscribers = self.upstream.connected, len(self.publisher.subscribers)
        return exposition.text(
            [
                objects,
                self._gauge("subscribers", "Connected subscribers.", subscribers),
                self._gauge("discovery_connected", "1 while discovery answers, else 0.", connected),
                self._counter("responses", "Responses sent.", self.publisher.responses),
                self._counter(
                    "resources_sent", "Resources in them.", self.publisher.resources_sent
                ),
                self._counter("refusals", "Responses refused.", self.publisher.refusals),
                self._counter(
                    "bad_resources", "Unreadable resources of discovery.", self.upstream.refusals
                ),
            ]
        )

    def _gauge(self, name: str, help_text: str, value: float) -> exposition.Metric:
        full = f"pilothouse_{self.name}_{name}"
        return exposition.Metric(name=full, kind="gauge", help=help_text, values={"": value})

    def _counter(self, name: str, help_text: str, value: float) -> exposition.Metric:
        full = f"pilothouse_{self.name}_{name}_total"
        return exposition.Metric(name=full, kind="counter", help=help_text, values={"": value})
