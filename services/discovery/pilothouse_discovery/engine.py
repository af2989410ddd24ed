# SPDX-License-Identifier: Apache-2.0
"""The loop of discovery: a change wakes it, and every client gets its new target.

Level-triggered: what changed is not passed on, only that something did. The first change is built
at once; those that come while a build runs are merged into the next one, whose span links to them
all.

Nothing is planned here. A builder does that on a thread of its own; this loop hands it what the
sources hold and which proxies there are, and gives out what comes back. It asks for one thing at a
time, so that no client is ever given something older than what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Mapping

import structlog

from pilothouse.adapters import telemetry
from pilothouse.config import accepted, objects
from pilothouse.model import changes, secrets, services
from pilothouse.xds import resources
from pilothouse_discovery import (
    builder,
    clients,
    delivery,
    holding,
    holds,
    metrics,
    progress,
    views,
    workbench,
    world,
)

_LOG = structlog.get_logger(__name__)

FIRST_BUILD = "the first build"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Where everything comes from, by name, in the order of the settings."""

    authored: Mapping[str, objects.ConfigStore]
    derived: Mapping[str, objects.ConfigStore]
    registries: Mapping[str, services.ServiceRegistry]
    secrets: secrets.SecretSource
    kept: accepted.AcceptedStore
    """Where what is in force is kept."""

    def read(self) -> world.Sources:
        """What the sources hold now."""
        return world.Sources(
            authored={name: store.current() for name, store in self.authored.items()},
            derived={name: store.current() for name, store in self.derived.items()},
            registries={name: registry.current() for name, registry in self.registries.items()},
            secrets=self.secrets.secrets(),
        )


class Engine:
    """Has configuration computed and hands it to the clients."""

    def __init__(
        self,
        *,
        inputs: Inputs,
        connected: clients.Clients,
        tracker: progress.Progress,
        holder: holding.Holding,
        tracing: telemetry.Telemetry,
        counters: metrics.Metrics,
        domain: str,
        around: workbench.Around = contextlib.nullcontext,
    ) -> None:
        """Wire the engine; nothing is read before ``run``.

        ``around`` is entered, on the builder's thread, for all that is built.
        """
        self._around = around
        self._inputs = inputs
        self._clients = connected
        self._progress = tracker
        self._telemetry = tracing
        self._metrics = counters
        self._authored = (*inputs.authored, *inputs.registries)
        self._holding = holder
        self._builder = builder.Builder(
            domain=domain,
            authored=inputs.authored,
            store=inputs.kept,
            alarm=self._alarmed,
        )
        self._delivery = delivery.Delivery(
            connected=connected, by=self._builder, holder=holder, tracker=tracker
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm = False
        self._objects: object = None
        self._pending: list[changes.Change] = []
        self._newcomers: list[clients.Client] = []
        self._wake = asyncio.Event()
        self._synced = asyncio.Event()
        self._statuses = views.StatusView()
        self.watch = holds.LoopWatch(counters.held)
        """Of the loop that this runs on; somebody has to run it."""
        self.built: builder.Build | None = None
        """The newest build; None before the first."""
        self.handed_out: builder.Build | None = None
        """The newest build of which every proxy has been given its part."""

    @property
    def world(self) -> world.World | None:
        """What the newest build follows from; None before the first."""
        return self.built.world if self.built else None

    async def synced(self) -> None:
        """Return when there is a build for which every authored source had been read."""
        await self._synced.wait()

    def changed(self, change: changes.Change) -> None:
        """Look again soon."""
        self._pending.append(change)
        self._wake.set()

    def _alarmed(self) -> None:
        """Look again soon: the gate found something for somebody who came. On another thread."""
        self._alarm = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.changed, changes.Change(source="gate"))

    def _decided_elsewhere(self) -> None:
        """Something else is in force, by the decision of a sister."""
        self._alarm = True
        self.changed(changes.Change(source="accepted"))

    def welcome(self, client: clients.Client) -> None:
        """Serve a client that has just come: a config source at once, a proxy soon."""
        if client.is_source:
            self._serve_source(client)
            return
        self._delivery.welcome(client)
        if self.built is None:
            client.waiting_for = (FIRST_BUILD,)  # which serves whoever is there by then
            return
        self._newcomers.append(client)
        self._wake.set()

    def settled(self, client: clients.Client) -> None:
        """A client has answered."""
        self._delivery.settled(client)

    def gone(self, client: clients.Client) -> None:
        """A client's stream has ended."""
        self._delivery.gone(client)

    async def run(self) -> None:
        """Have built and push, for ever."""
        self._loop = asyncio.get_running_loop()
        self._holding.attach(again=self.welcome, changed=self.changed)
        stores = (*self._inputs.authored.values(), *self._inputs.derived.values())
        ends = [store.subscribe(self.changed) for store in stores]
        ends += [one.subscribe(self.changed) for one in self._inputs.registries.values()]
        ends.append(self._inputs.secrets.subscribe(self.changed))
        ends.append(self._inputs.kept.subscribe(self._decided_elsewhere))
        ends.append(self._progress.subscribe(self._serve_sources))
        self.changed(changes.Change(source="start"))
        try:
            async with workbench.opened("builder", self._around) as bench:
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    with self.watch.working():
                        merged, self._pending = tuple(self._pending), []
                        if merged:
                            await self._turn(bench, merged)
                        newcomers, self._newcomers = self._newcomers, []
                        await self._delivery.serve(bench, newcomers)
        finally:
            for end in ends:
                end()

    async def _turn(self, bench: workbench.Workbench, merged: tuple[changes.Change, ...]) -> None:
        for change in merged:
            self._metrics.triggers.labels(type=change.source).inc()
        parents = list(dict.fromkeys(change.traceparent for change in merged if change.traceparent))
        with self._telemetry.span(
            "mesh.build",
            parent=parents[0] if parents else "",
            links=parents[1:],
            attributes={
                "pilothouse.changes": len(merged),
                "pilothouse.sources": sorted({change.source for change in merged}),
            },
        ):
            built = await self._build(bench)
            self._serve_sources()
            self._newcomers = []  # they are among all those who are connected
            await self._delivery.everybody(bench, built.moved)
            self.handed_out = built
            # Streams go first: a large response is put together in one turn, written in the next.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            conditions = await bench.do(self._builder.conditions, built)
            self._tell(built)
            # Not before: the proxies run all of what they had, but that was made of older objects.
            self._progress.observe(built.world.observed, conditions)

    async def _build(self, bench: workbench.Workbench) -> builder.Build:
        started = time.perf_counter()
        sources, refusals = self._inputs.read(), self._holding.take()
        # Most changes are of endpoints alone, and nothing then is to be held or let go.
        look = self._alarm or bool(refusals) or sources.objects != self._objects
        self._objects, self._alarm = sources.objects, False
        self.built = built = await bench.do(
            self._builder.build,
            sources,
            traceparent=telemetry.current_traceparent(),
            asked=[self._delivery.asked(client) for client in self._clients.proxies]
            if look
            else (),
            refusals=refusals,
            proven=self._holding.proven() if look else (),
        )
        self._holding.begin(built.world.accepted, complete=not built.world.state.unsynced)
        if built.world.state.unsynced.isdisjoint(self._authored):
            self._synced.set()
        self._metrics.builds.observe(time.perf_counter() - started)
        return built

    def _tell(self, built: builder.Build) -> None:
        made, state = built.world, built.world.state
        self._metrics.services.set(len(state.services))
        self._metrics.route_rules.set(sum(key.kind == "RouteRule" for key in state.configs))
        self._metrics.problems.set(len(made.problems))
        in_force = state.configs.get
        refused = [
            key
            for key, one in made.observed.items()
            if (held := in_force(key)) is not one and held != one
        ]
        self._metrics.rejected_configs.set(len(refused))
        self._metrics.faults.set(len(built.faults))
        self._metrics.large.set(built.large)

    def _serve_sources(self) -> None:
        for client in self._clients.sources:
            self._serve_source(client)

    def _serve_source(self, client: clients.Client) -> None:
        """Give a config source what it builds on; it waits while that has not been read."""
        built = self.built
        if built is None:
            client.waiting_for = (FIRST_BUILD,)
            return
        unsynced = built.world.state.unsynced
        client.waiting_for = tuple(name for name in self._inputs.authored if name in unsynced)
        if not client.waiting_for:
            status = self._statuses.layer(self._progress.states, source=client.proxy.id.name)
            snapshot = resources.Snapshot.of((built.authored, status))
            self._delivery.push(client, snapshot, traceparent=telemetry.current_traceparent())
