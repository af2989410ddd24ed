# SPDX-License-Identifier: Apache-2.0
"""The composition root of discovery: makes the parts, runs them, and stops them in order."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from pilothouse import buildinfo
from pilothouse.adapters import commandline, telemetry
from pilothouse.adapters.files import configs, folder, registry, system_authorities
from pilothouse.adapters.files import secrets as file_secrets
from pilothouse.adapters.rpc import config_source, dialogues, serving, streams, web
from pilothouse.api.registry.v1alpha1 import registry_service_pb2_grpc
from pilothouse.api.status.v1alpha1 import status_service_pb2_grpc
from pilothouse.config import accepted
from pilothouse.model import keys
from pilothouse_discovery import (
    client_status,
    clients,
    connections,
    debug,
    engine,
    holding,
    host,
    load_reports,
    loads,
    memory,
    metrics,
    passed,
    progress,
    servicers,
    settings,
    workbench,
)
from pilothouse_discovery.workers import everybody, pool

_LOG = structlog.get_logger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run discovery; the exit code: 0 after a signal, 1 when it cannot start, 2 for wrong use."""
    try:
        chosen = settings.read(arguments)
    except commandline.UsageError as error:
        print(error, file=sys.stderr)  # noqa: T201  wrong use is for the terminal, not for a log
        return 2
    telemetry.configure_logging(settings.PROGRAM, chosen.log_level, format=chosen.log_format)
    memory.give_back()
    memory.collect_less()
    workbench.switch_often()
    return serving.run_program(lambda: _run(chosen))


async def _run(chosen: settings.Settings) -> None:
    tracing = telemetry.tracer_provider(settings.PROGRAM, buildinfo.version())
    try:
        with serving.stop_signals() as stop:
            await Discovery(chosen, tracing, around=memory.Undisturbed()).run(stop)
    finally:
        await tracing.shutdown()


class Discovery:
    """One discovery server."""

    def __init__(
        self,
        chosen: settings.Settings,
        tracing: telemetry.Telemetry,
        *,
        around: workbench.Around = contextlib.nullcontext,
    ) -> None:
        """Wire everything; nothing is opened before ``run``.

        ``around`` is entered, on the builder's thread, for all that is built.
        """
        self._settings = chosen
        self._telemetry = tracing
        self._metrics = metrics.Metrics()
        self._folder = folder.Folder(chosen.config, on_change=self._file_change)
        store = configs.FileConfigStore(self._folder)
        self._derived = {
            name: config_source.ConfigStreamClient(
                name, serving.Address.parse(address), node_id=_node_id(chosen)
            )
            for name, address in chosen.sources.items()
        }
        self.clients = clients.Clients()
        holder = holding.Holding()
        self.progress = progress.Progress(
            connected=self.clients, holder=holder, tracing=tracing, counters=self._metrics
        )
        self.engine = engine.Engine(
            inputs=engine.Inputs(
                authored={store.name: store},
                derived=dict(self._derived),
                registries={"registry": registry.FileRegistry(self._folder, "registry")},
                secrets=system_authorities.WithSystem(
                    file_secrets.FileSecrets(self._folder),
                    system_authorities.read(chosen.system_authorities),
                ),
                kept=accepted.AcceptedInMemory(),
            ),
            connected=self.clients,
            tracker=self.progress,
            holder=holder,
            tracing=tracing,
            counters=self._metrics,
            domain=chosen.domain,
            around=around,
        )
        self._host = host.Host(
            connected=self.clients,
            builder=self.engine,
            tracker=self.progress,
            holder=holder,
            counters=self._metrics,
            sync_grace=chosen.sync_grace,
        )
        self._loads = loads.Loads(self._is_known, self._metrics.registry)
        self._calls = dialogues.Dialogues()
        self.workers: pool.Pool | None = None
        """While it serves through others."""

    def _is_known(self, key: keys.ServiceKey, external: bool) -> bool:  # noqa: FBT001  a callback
        world = self.engine.world
        if world is None:
            return False
        if external:
            return keys.ObjectKey("ExternalService", *key) in world.state.configs
        return key in world.state.services

    def _file_change(self, changed: tuple[keys.ObjectKey, ...]) -> str:
        """A change in the folder begins a trace."""
        attributes = {"pilothouse.objects": [str(key) for key in changed[:20]]}
        with self._telemetry.span("config.change", parent="", attributes=attributes):
            return telemetry.current_traceparent()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set.

        Raises:
            serving.StartError: a port cannot be bound, or an address is not loopback.
        """
        async with contextlib.AsyncExitStack() as stack:
            if self._settings.workers > 1:
                await self._serve_through_workers(stack, stop)
            else:
                await self._serve_alone(stack, stop)

    async def _serve_alone(self, stack: contextlib.AsyncExitStack, stop: asyncio.Event) -> None:
        """Serve every stream in this process."""
        chosen = self._settings
        limits = connections.of(chosen)
        server = serving.GrpcServer(
            interceptors=telemetry.server_interceptors(self._telemetry), options=limits.options()
        )
        xds = streams.XdsServer(
            self._host,
            write_timeout=chosen.write_timeout,
            per_type=True,
            admitting=limits.admission(self._metrics.registry),
        )
        xds.add_to(server)
        self._add_services(server)
        client_status.ClientStatus(self.clients).add_to(server, self._calls)
        server.bind(serving.Address.parse(chosen.grpc_address), setting="--grpc-address")
        await stack.enter_async_context(self._pages(ready=self._ready, instead={}))
        await stack.enter_async_context(server.running(grace=chosen.shutdown_grace))
        _LOG.info("serving", grpc=chosen.grpc_address, http=chosen.http_address)

        async def ready() -> None:
            await server.set_ready(ready=True)

        try:
            await self._loops(stop, ready, self.engine.watch.run())
        finally:
            self._calls.drain()
            await xds.drain()

    async def _serve_through_workers(
        self, stack: contextlib.AsyncExitStack, stop: asyncio.Event
    ) -> None:
        """Build here, and serve in processes of their own (docs/adr/0050)."""
        chosen = self._settings
        workers = self.workers = pool.of(chosen, self._host)
        server = serving.GrpcServer(interceptors=telemetry.server_interceptors(self._telemetry))
        self._add_services(server, refresh=workers.refresh)
        everybody.EveryClientStatus(workers).add_to(server)
        server.server.add_insecure_port(workers.calls)
        if chosen.max_new_streams_per_second:
            connections.show(
                self._metrics.registry,
                waiting=lambda: workers.waiting,
                refused=lambda: workers.refused,
            )
        found = debug.pages(self.clients, self.engine, self.progress)["/debug/clients"]

        async def listed() -> Any:
            await workers.refresh()
            return found()

        def checks() -> tuple[web.Check, ...]:
            return (*self._ready(), workers.check())

        pages = self._pages(ready=checks, instead={"/debug/clients": listed})
        await stack.enter_async_context(pages)
        await stack.enter_async_context(server.running(grace=chosen.shutdown_grace))
        await stack.enter_async_context(workers.running())
        _LOG.info(
            "serving", grpc=chosen.grpc_address, http=chosen.http_address, workers=workers.pids
        )

        async def ready() -> None:
            workers.set_ready()

        try:
            await self._loops(stop, ready, workers.watch())
        finally:
            self._calls.drain()

    def _pages(
        self,
        *,
        ready: Callable[[], Sequence[web.Check]],
        instead: Mapping[str, Callable[[], Any]],
    ) -> contextlib.AbstractAsyncContextManager[int]:
        return web.http_server(
            serving.Address.parse(self._settings.http_address),
            web.Pages(
                ready=ready,
                metrics=self._metrics.text,
                debug={**self._debug_pages(), **instead},
            ),
            setting="--http-address",
        )

    def _debug_pages(self) -> dict[str, Callable[[], Any]]:
        pages = debug.pages(self.clients, self.engine, self.progress)
        return {**pages, "/debug/loads": self._loads.page}

    def _add_services(
        self, server: serving.GrpcServer, *, refresh: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        status_service_pb2_grpc.add_StatusServiceServicer_to_server(
            servicers.StatusServicer(
                connected=self.clients, tracker=self.progress, refresh=refresh
            ),
            server.server,
        )
        registry_service_pb2_grpc.add_RegistryServiceServicer_to_server(
            servicers.RegistryServicer(builder=self.engine), server.server
        )
        load_reports.LoadReports(
            self._loads, self.clients, interval=self._settings.load_report_interval
        ).add_to(server, self._calls)
        server.announce(passed.STATUS, passed.REGISTRY)

    async def _loops(
        self,
        stop: asyncio.Event,
        ready: Callable[[], Awaitable[None]],
        *more: Coroutine[Any, Any, None],
    ) -> None:
        """Run every loop until ``stop``; an error in one of them ends them all."""
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._folder.run(), name="folder"),
                group.create_task(self.engine.run(), name="engine"),
                group.create_task(self.progress.run(), name="progress"),
                group.create_task(self._announce_ready(ready), name="ready"),
            ]
            loops += [
                group.create_task(source.run(), name=f"source-{name}")
                for name, source in self._derived.items()
            ]
            loops += [group.create_task(one, name="beside") for one in more]
            await stop.wait()
            for loop in loops:
                loop.cancel()

    async def _announce_ready(self, tell: Callable[[], Awaitable[None]]) -> None:
        await self.engine.synced()
        await tell()

    def _ready(self) -> tuple[web.Check, ...]:
        """Ready when the authored sources have been read.

        Derived ones build on it and may follow.
        """
        world = self.engine.world
        waiting = (
            ["the first build"]
            if world is None
            else sorted(world.state.unsynced - set(self._derived))
        )
        return (
            web.Check(
                name="sources",
                ok=not waiting,
                message=f"waiting for {', '.join(waiting)}" if waiting else "",
            ),
        )


def _node_id(chosen: settings.Settings) -> str:
    host_part = serving.Address.parse(chosen.grpc_address).host
    return f"source~{host_part}~discovery.pilothouse-system~{chosen.domain}"
