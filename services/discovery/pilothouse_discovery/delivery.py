# SPDX-License-Identifier: Apache-2.0
"""Who is given what: each client its target, once for all that are alike.

A builder says what a proxy shall hold. Of those of one kind one asks for all, and of those that are
at rest and ask for the same (`herds`) one is given it for all, if it has nothing new for them. So
the cost of a change is that of the proxies for which there is something in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import assert_never

import grpc
import structlog

from pilothouse.routing import kinship, plan
from pilothouse.xds import resources
from pilothouse_discovery import builder, clients, herds, holding, progress, records, workbench

_LOG = structlog.get_logger(__name__)

BATCH = 512
"""Proxies that are asked for at a time. Going to the builder's thread and back takes as long as
planning a few of them, and more on a busy machine: with 400 streams, in batches of 64, a change
took a third longer."""
TURN = 64
"""Proxies that are served before the streams have a turn: a millisecond or two."""


class Delivery:
    """Gives targets to clients."""

    def __init__(
        self,
        *,
        connected: clients.Clients,
        by: builder.Builder,
        holder: holding.Holding,
        tracker: progress.Progress,
    ) -> None:
        """Begin with nobody; ``by`` says what proxies shall hold."""
        self._clients = connected
        self._builder = by
        self._holding = holder
        self._progress = tracker
        self._herds = herds.Herds()
        self._told: dict[int, tuple[kinship.Kind, builder.Told]] = {}
        """What those of a kind shall hold by the newest build, by the kind's identity; the kind is
        kept, so that nothing else can get that."""

    def welcome(self, client: clients.Client) -> None:
        """A proxy has come, or must be looked at on its own."""
        self._herds.add(client)

    def settled(self, client: clients.Client) -> None:
        """A client has answered: when it is at rest, it is served with those that are like it."""
        if self._holding.at_peace(client):
            self._herds.settle(client)

    def gone(self, client: clients.Client) -> None:
        """A client's stream has ended."""
        self._herds.remove(client)

    async def everybody(self, bench: workbench.Workbench, moved: frozenset[str] | None) -> None:
        """Give all proxies their part of a new build, and begin the wave of those with news.

        Args:
            bench: Where the builder works.
            moved: The addresses whose proxies may be of another kind; None if any may be.
        """
        self._told.clear()
        self._herds.begin(moved)
        pending: list[clients.Client] = []
        while self._herds.herds or self._herds.loose:
            pending += await self._drive(bench, self._herds.herds)
            pending += await self.serve(bench, self._herds.loose)
        # A client may have gone, or even answered, while others were served.
        self._progress.opened(
            [
                client
                for client in pending
                if client in self._clients and not client.session.stream.idle
            ],
            attributes={"xds.proxies": len(self._clients.proxies)},
        )

    async def _drive(
        self, bench: workbench.Workbench, wanted: Sequence[herds.Herd]
    ) -> list[clients.Client]:
        """Give herds their targets; those of their members that are to acknowledge something."""
        pending: list[clients.Client] = []
        for start in range(0, len(wanted), BATCH):
            led = [(one, one.first) for one in wanted[start : start + BATCH] if one.members]
            told = await self._ask(bench, [leader for _, leader in led])
            for number, ((herd, leader), one) in enumerate(zip(led, told, strict=True), start=1):
                # If its leader has left meanwhile, it goes on waiting.
                if leader.rest is herd and self._lead(herd, leader, one):
                    pending.append(leader)
                if number % TURN == 0:
                    await asyncio.sleep(0)
        return pending

    def _lead(self, herd: herds.Herd, leader: clients.Client, told: builder.Told) -> bool:
        """Give a herd its target as one, if nothing in it is for it; else let its members go.

        True when that leaves its leader with something to be acknowledged.
        """
        if told.answer is herd.target:
            herd.move(herd.target)
            return False
        self._herds.part(leader)
        pending = self._given(leader, told, self._holding.held(leader))
        answer = told.answer
        if isinstance(answer, resources.Snapshot) and self._herds.rests(leader, herd, answer):
            herd.move(answer)
            self.settled(leader)
        else:
            herd.disband()
        return pending

    async def serve(
        self, bench: workbench.Workbench, wanted: Sequence[clients.Client]
    ) -> list[clients.Client]:
        """Give proxies their targets; those that are to acknowledge something now."""
        pending: list[clients.Client] = []
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            held = [self._holding.held(client) for client in batch]
            told = await self._ask(bench, batch)
            served = zip(batch, told, held, strict=True)
            for number, (client, one, without) in enumerate(served, start=1):
                if self._given(client, one, without):
                    pending.append(client)
                else:
                    self.settled(client)
                if number % TURN == 0:
                    await asyncio.sleep(0)
        return pending

    async def _ask(
        self, bench: workbench.Workbench, batch: Sequence[clients.Client]
    ) -> list[builder.Told]:
        """What each shall hold; of those of one kind, with nothing held, one asks for all."""
        kinds = {id(one): one for client in batch if (one := client.kind) is not None}
        keys = [
            client.id if client.kind is None or self._holding.held(client) else id(client.kind)
            for client in batch
        ]
        asked = {
            key: self.asked(client)
            for key, client in zip(keys, batch, strict=True)
            if key not in self._told
        }
        found: dict[int | str, builder.Told] = {}
        if asked:
            told = await bench.do(self._builder.answers, tuple(asked.values()))
            found.update(zip(asked, told, strict=True))
        # Single clients may be asked for again, with something else held for them.
        for key, kind in kinds.items():
            if key in found:
                self._told[key] = kind, found[key]
        return [self._told[key][1] if isinstance(key, int) else found[key] for key in keys]

    def _given(self, client: clients.Client, told: builder.Told, held: records.Held) -> bool:
        """Note that a proxy is given its part; True when that leaves something to acknowledge."""
        if client not in self._clients:
            self._herds.remove(client)
            return False
        pending = self._give(client, told.answer)
        self._herds.given(client, told.kind)
        self._holding.given(client, held)
        return pending

    def asked(self, client: clients.Client) -> builder.Asked:
        """What the builder is asked for a proxy."""
        return builder.Asked(
            proxy=client.proxy,
            served=client.session.stream.target is not None,
            held=self._holding.held(client),
        )

    def _give(self, client: clients.Client, answer: builder.Answer) -> bool:
        """Pass an answer on; True when that leaves something to be acknowledged."""
        match answer:
            case resources.Snapshot():
                client.waiting_for = ()
                return self.push(client, answer)
            case plan.NotReady(waiting_for=waiting_for):
                if client.waiting_for != waiting_for:
                    _LOG.info("proxy waits for sources", node=client.name, waiting_for=waiting_for)
                client.waiting_for = waiting_for
                return False
            case builder.Failed():
                client.session.end(grpc.StatusCode.INTERNAL, "internal error")
                return False
            case _:
                assert_never(answer)

    def push(
        self, client: clients.Client, snapshot: resources.Snapshot, *, traceparent: str = ""
    ) -> bool:
        """Give a client a target; True when that leaves something to be acknowledged."""
        new = snapshot is not client.session.stream.target
        pending = client.push(snapshot, traceparent=traceparent)
        if new or client.refusals:  # which may count from now on, as a search has ended
            self._progress.moved(client)
        return pending
