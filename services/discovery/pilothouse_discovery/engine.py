# SPDX-License-Identifier: Apache-2.0
"""The loop of discovery: a change wakes it, and every client gets its new target.

Level-triggered: what changed is not passed on, only that something did. The first change is built
at once; those that come while a build runs are merged into the next one, whose span links to them
all.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping

import structlog

from pilothouse.adapters import telemetry
from pilothouse.config import admission, objects
from pilothouse.envoy import translate
from pilothouse.model import changes, secrets, services
from pilothouse.routing import plan, planner
from pilothouse.xds import resources
from pilothouse_discovery import clients, metrics, progress, views, world

_LOG = structlog.get_logger(__name__)

YIELD_EVERY = 0.005
"""Seconds of pushing after which the loop lets the streams run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Where everything comes from, by name, in the order of the settings."""

    authored: Mapping[str, objects.ConfigStore]
    derived: Mapping[str, objects.ConfigStore]
    registries: Mapping[str, services.ServiceRegistry]
    secrets: secrets.SecretSource

    def read(self) -> world.Sources:
        """What the sources hold now."""
        return world.Sources(
            authored={name: store.current() for name, store in self.authored.items()},
            derived={name: store.current() for name, store in self.derived.items()},
            registries={name: registry.current() for name, registry in self.registries.items()},
        )


class Engine:
    """Computes configuration and hands it to the clients."""

    def __init__(
        self,
        *,
        inputs: Inputs,
        connected: clients.Clients,
        tracker: progress.Progress,
        tracing: telemetry.Telemetry,
        counters: metrics.Metrics,
        domain: str,
    ) -> None:
        """Wire the engine; nothing is read before ``run``."""
        self._inputs = inputs
        self._clients = connected
        self._progress = tracker
        self._telemetry = tracing
        self._metrics = counters
        self._domain = domain
        self._planner = planner.Planner()
        self._translator = translate.Translator()
        self._accepted = admission.AcceptedSet()
        self._mesh: planner.Mesh | None = None
        self._translated: dict[int, tuple[plan.ProxyPlan, resources.Snapshot]] = {}
        """The plans of this build that some proxy has, and their snapshots."""
        self._authored = views.AuthoredView()
        self._pending: list[changes.Change] = []
        self._wake = asyncio.Event()
        self.world: world.World | None = None
        """The newest build; None before the first."""

    def changed(self, change: changes.Change) -> None:
        """Look again soon."""
        self._pending.append(change)
        self._wake.set()

    async def run(self) -> None:
        """Build and push for ever."""
        stores = (*self._inputs.authored.values(), *self._inputs.derived.values())
        ends = [store.subscribe(self.changed) for store in stores]
        ends += [one.subscribe(self.changed) for one in self._inputs.registries.values()]
        ends.append(self._inputs.secrets.subscribe(self.changed))
        ends.append(self._progress.subscribe(self._serve_sources))
        self.changed(changes.Change(source="start"))
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                merged, self._pending = tuple(self._pending), []
                await self._turn(merged)
        finally:
            for end in ends:
                end()

    async def _turn(self, merged: tuple[changes.Change, ...]) -> None:
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
            started = time.perf_counter()
            self._build()
            self._metrics.builds.observe(time.perf_counter() - started)
            self._serve_sources()
            await self._serve_proxies()

    def _build(self) -> None:
        self.world = built = world.assemble(
            self._inputs.read(), previous=self._accepted, domain=self._domain
        )
        self._accepted = built.accepted
        self._translator.begin_generation()
        self._translated = {}
        self._mesh = self._planner.update(built.state)
        self._authored.update(
            (
                config
                for config in built.state.configs.values()
                if config.source in self._inputs.authored
            ),
            traceparent=telemetry.current_traceparent(),
        )
        conditions = dict(built.conditions)
        for key, found in self._mesh.conditions.items():
            conditions[key] = (*conditions.get(key, ()), *found)
        self._progress.observe(built.observed, conditions)
        self._metrics.services.set(len(built.state.services))
        self._metrics.problems.set(len(built.problems))

    async def _serve_proxies(self) -> None:
        pending = []
        resumed = time.perf_counter()
        for client in self._clients.proxies:
            if client in self._clients and self.serve(client):
                pending.append(client)
            if time.perf_counter() - resumed > YIELD_EVERY:
                await asyncio.sleep(0)
                resumed = time.perf_counter()
        # A client may have gone, or even answered, while others were served.
        self._progress.opened(
            [
                client
                for client in pending
                if client in self._clients and not client.session.stream.idle
            ],
            attributes={"xds.proxies": len(self._clients.proxies)},
        )

    def serve(self, client: clients.Client) -> bool:
        """Give a client its target; True when that leaves something to be acknowledged."""
        snapshot = (
            self._source_snapshot(client) if client.is_source else self._proxy_snapshot(client)
        )
        if snapshot is None:
            return False
        traceparent = telemetry.current_traceparent() if client.is_source else ""
        pending = client.push(snapshot, traceparent=traceparent)
        self._progress.moved(client)
        return pending

    def _serve_sources(self) -> None:
        for client in self._clients.sources:
            self.serve(client)

    def _proxy_snapshot(self, client: clients.Client) -> resources.Snapshot | None:
        if self._mesh is None:
            client.waiting_for = ("the first build",)
            return None
        served = client.session.stream.target is not None
        planned = self._mesh.plan(client.proxy, served=served)
        if isinstance(planned, plan.NotReady):
            if client.waiting_for != planned.waiting_for:
                _LOG.info(
                    "proxy waits for sources",
                    node=str(client.proxy.id),
                    waiting_for=planned.waiting_for,
                )
            client.waiting_for = planned.waiting_for
            return None
        client.waiting_for = ()
        known = self._translated.get(id(planned))
        if known is None:
            snapshot = self._translator.snapshot(planned, self._inputs.secrets.secrets())
            # The plan is kept with it, so that nothing else can get its identity.
            known = self._translated[id(planned)] = (planned, snapshot)
        return known[1]

    def _source_snapshot(self, client: clients.Client) -> resources.Snapshot | None:
        unsynced = (
            []
            if self.world is None
            else [n for n in self._inputs.authored if n in self.world.state.unsynced]
        )
        if self.world is None or unsynced:
            client.waiting_for = tuple(unsynced)
            return None
        client.waiting_for = ()
        status = views.status_layer(self._progress.states, source=client.proxy.id.name)
        return resources.Snapshot.of((self._authored.layer, status))
