# SPDX-License-Identifier: Apache-2.0
"""How far changes have travelled: waves with their spans, and the status of every object.

A wave's ``xds.push`` span lasts from the push to the last acknowledgement and carries counts;
proxies that were slowest or that refused have spans of their own below it, the others none, so that
tracing costs the same for ten proxies and for ten thousand.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable, Iterable, Mapping

import structlog
from opentelemetry import trace

from pilothouse.adapters import telemetry
from pilothouse.config import objects
from pilothouse.model import keys
from pilothouse.rollout import ledger, waves
from pilothouse.routing import memo as memory
from pilothouse.xds import resources, rests
from pilothouse_discovery import clients, held_counts, holding, metrics, statuses

_LOG = structlog.get_logger(__name__)

States = Mapping[keys.ObjectKey, statuses.ObjectState]
STATUS_INTERVAL = 0.02
"""Seconds between two counts while acknowledgements pour in; the first of a burst is counted at
once."""
REST = 9.0
"""How many times as long as a count took is waited before the next one, if that is longer."""


class Progress:
    """Watches acknowledgements; knows the status of every object."""

    def __init__(
        self,
        *,
        connected: clients.Clients,
        holder: holding.Holding,
        tracing: telemetry.Telemetry,
        counters: metrics.Metrics,
    ) -> None:
        """Begin with nothing observed."""
        self._holding = holder
        self._clients = connected
        self._telemetry = tracing
        self._metrics = counters
        self._book = waves.WaveBook()
        self._spans: dict[int, trace.Span] = {}
        self._observed: Mapping[keys.ObjectKey, objects.Config] = {}
        self._conditions: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]] = {}
        self._memo = memory.Memo()
        self._dirty = asyncio.Event()
        self._moved: set[clients.Client] = set()
        self._standings: dict[clients.Client, clients.Standing] = {}
        self._groups: dict[clients.Standing, int] = {}
        self._listeners: list[Callable[[], None]] = []
        self.states: States = {}

    def observe(
        self,
        observed: Mapping[keys.ObjectKey, objects.Config],
        conditions: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]],
    ) -> None:
        """Take the objects and conditions of a new build."""
        self._observed = observed
        self._conditions = conditions
        self._dirty.set()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` whenever ``states`` has changed; the answer ends the subscription."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def opened(
        self, pending: Iterable[clients.Client], *, attributes: Mapping[str, int | str]
    ) -> None:
        """Begin a wave to these clients, below the current span."""
        streams = [client.id for client in pending]
        wave = self._book.open(streams, at=time.time_ns())
        if wave.done:
            return
        self._spans[wave.number] = self._telemetry.tracer.start_span(
            "xds.push",
            start_time=wave.started,
            attributes={"xds.streams": len(streams), **attributes},
        )

    @property
    def under_way(self) -> tuple[waves.Wave, ...]:
        """The waves that some client has not answered, the oldest first."""
        return self._book.under_way()

    def moved(self, client: clients.Client) -> None:
        """Note that a client has a new target, or has answered, or has gone."""
        self._moved.add(client)
        self._dirty.set()

    def answered(self, client: clients.Client) -> None:
        """Look at a client that has just acknowledged or asked for something."""
        self.moved(client)
        stream = client.session.stream
        if not stream.idle:
            return
        if stream.current is stream.target:
            self._settle(client)
        elif client.refusals:
            # An older refusal stands in the way of what is newer.
            words = "; ".join(f"{url}: {text}" for url, text in sorted(client.refusals.items()))
            self._settle(client, refused=words)

    def refused(self, client: clients.Client, words: str) -> None:
        """Note that a client has just refused a response."""
        self.moved(client)
        self._settle(client, refused=words)

    def gone(self, client: clients.Client) -> None:
        """Note that a client's stream has ended."""
        self.moved(client)
        self._settle(client, gone=True)

    def _settle(self, client: clients.Client, *, refused: str = "", gone: bool = False) -> None:
        outcome = waves.ProxyOutcome(
            proxy=client.name, at=time.time_ns(), refused=refused, gone=gone
        )
        for wave in self._book.settle(client.id, outcome):
            self._finish(wave)

    def _finish(self, wave: waves.Wave) -> None:
        seconds = (wave.ended - wave.started) / 1e9
        self._metrics.convergence.observe(seconds)
        _LOG.info(
            "change has reached every proxy" if not wave.refused else "change was refused",
            proxies=len(wave.outcomes),
            acked=wave.acked,
            refused=[outcome.proxy for outcome in wave.refused],
            seconds=round(seconds, 6),
        )
        span = self._spans.pop(wave.number, None)
        if span is None or not span.is_recording():
            return
        span.set_attributes({"xds.acked": wave.acked, "xds.refused": len(wave.refused)})
        context = trace.set_span_in_context(span)
        for outcome in (*wave.slowest, *wave.refused):
            child = self._telemetry.tracer.start_span(
                "xds.ack",
                context=context,
                start_time=wave.started,
                attributes={"xds.node.id": outcome.proxy},
            )
            if outcome.refused:
                child.set_status(trace.StatusCode.ERROR, outcome.refused)
            child.end(end_time=outcome.at)
        if wave.refused:
            span.set_status(trace.StatusCode.ERROR, f"{len(wave.refused)} proxies refused")
        span.end(end_time=wave.ended)

    async def run(self) -> None:
        """Keep ``states`` up to date; never returns."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            began = time.perf_counter()
            self._recount()
            await asyncio.sleep(max(STATUS_INTERVAL, REST * (time.perf_counter() - began)))

    def _recount(self) -> None:
        moved, self._moved = self._moved, set()
        for client in moved:
            self._place(client)
        # Of those that stand at different places some may hold the same.
        positions: collections.Counter[ledger.Position] = collections.Counter()
        for standing, count in self._groups.items():
            positions[clients.position(standing)] += count
        concerned = self._holding.concerned
        self._memo = self._memo.next()
        states = statuses.compute(
            self._observed,
            self._conditions,
            held_counts.adjusted(concerned, ledger.count(positions)),
            words=held_counts.words(concerned),
            memo=self._memo,
        )
        if states == self.states:
            return
        self.states = states
        for listener in tuple(self._listeners):
            listener()

    def _place(self, client: clients.Client) -> None:
        """Count a client where it is now, and no longer where it was."""
        here = client in self._clients and not client.is_source
        now = client.standing() if here else None
        if now is not None and now[1] is not None and client.refusals:
            now = self._mildly(client, now[0], now[1])
        before = self._standings.get(client)
        if now == before:
            return
        if before is not None:
            left = self._groups[before] - 1
            if left:
                self._groups[before] = left
            else:
                del self._groups[before]
        if now is None:
            del self._standings[client]
        else:
            self._standings[client] = now
            self._groups[now] = self._groups.get(now, 0) + 1

    def _mildly(
        self,
        client: clients.Client,
        target: resources.Snapshot | rests.Rest,
        places: clients.Places,
    ) -> clients.Standing:
        """Where a client stands that refuses something."""
        if self._holding.searched(client):
            # Of what it refuses most is right; which part is not will be known soon.
            places = tuple((url, acked, False) for url, acked, _ in places)
        return target, places
