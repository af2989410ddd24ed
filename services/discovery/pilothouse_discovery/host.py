# SPDX-License-Identifier: Apache-2.0
"""What happens when a client connects, speaks or goes."""

from __future__ import annotations

import asyncio
import itertools

import grpc
import structlog

from pilothouse.xds import streams as xds_streams
from pilothouse_discovery import (
    clients,
    engine,
    holding,
    limits,
    metrics,
    nodes,
    progress,
    sessions,
)

_LOG = structlog.get_logger(__name__)


class Host:
    """The StreamHost of discovery."""

    def __init__(
        self,
        *,
        connected: clients.Clients,
        builder: engine.Engine,
        tracker: progress.Progress,
        holder: holding.Holding,
        counters: metrics.Metrics,
        sync_grace: float,
    ) -> None:
        """Wire the host; ``sync_grace`` is in seconds."""
        self._clients = connected
        self._engine = builder
        self._progress = tracker
        self._holding = holder
        self._metrics = counters
        self._sync_grace = sync_grace
        self._numbers = itertools.count(1)
        self._by_session: dict[sessions.Session, clients.Client] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def opened(self, session: sessions.Session) -> None:
        """A stream has said its first words: read its node and serve it."""
        try:
            proxy = nodes.read(session.node)
        except nodes.NodeError as error:
            session.end(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return
        client = clients.Client(
            id=f"{session.node.id}#{next(self._numbers)}", proxy=proxy, session=session
        )
        session.stream.limit = limits.of_node(session.node.id)
        self._by_session[session] = client
        self._clients.add(client)
        self._metrics.clients.labels(role=str(proxy.id.role)).inc()
        _LOG.info("client connected", node=str(proxy.id), peer=session.peer)
        if not client.is_source:
            self._holding.opened(client)
        self._engine.welcome(client)
        self._give_time(client)

    def _give_time(self, client: clients.Client) -> None:
        if client.session.stream.target is None:
            self._timers[client.id] = asyncio.get_running_loop().call_later(
                self._sync_grace, self._give_up, client
            )

    def _give_up(self, client: clients.Client) -> None:
        """Its time is over, if it waits for a source; for the builder it may wait as it must."""
        del self._timers[client.id]
        if client.waiting_for:
            names = ", ".join(client.waiting_for)
            client.session.end(grpc.StatusCode.UNAVAILABLE, f"waiting for config sources: {names}")
        else:
            self._give_time(client)

    def events(self, session: sessions.Session, events: tuple[xds_streams.Event, ...]) -> None:
        """A client has acknowledged, refused or subscribed."""
        client = self._by_session.get(session)
        if client is None:
            return
        for event in events:
            match event:
                case xds_streams.Nacked(type_url=type_url, message=message):
                    self._progress.refused(client, f"{type_url}: {message}")
                    self._metrics.rejects.labels(type=type_url).inc()
                    _LOG.warning(
                        "response refused", node=str(client.proxy.id), type=type_url, reason=message
                    )
                case xds_streams.Stale(type_url=type_url):
                    self._metrics.stale.labels(type=type_url).inc()
                case xds_streams.Acked() | xds_streams.Subscribed():
                    continue
        self._progress.answered(client)
        self._holding.look(client)
        if not client.is_source:
            self._engine.settled(client)

    def sent(self, session: sessions.Session, response: xds_streams.Response) -> None:
        """A response has been written."""
        del session
        self.written(response.type_url, len(response.body))

    def written(self, type_url: str, size: int) -> None:
        """A response of so many bytes has been written, by whichever process."""
        self._metrics.pushed(type_url, size)

    def held(self, seconds: float) -> None:
        """A loop that serves streams was held for so long."""
        self._metrics.held(seconds)

    def closed(self, session: sessions.Session) -> None:
        """A stream has ended, for whatever reason."""
        client = self._by_session.pop(session, None)
        if client is None:
            return
        timer = self._timers.pop(client.id, None)
        if timer is not None:
            timer.cancel()
        self._clients.remove(client)
        self._metrics.clients.labels(role=str(client.proxy.id.role)).dec()
        self._count(session.ending)
        self._progress.gone(client)
        self._holding.gone(client)
        self._engine.gone(client)
        _LOG.info("client gone", node=str(client.proxy.id))

    def _count(self, ending: tuple[grpc.StatusCode, str] | None) -> None:
        match ending:
            case (grpc.StatusCode.DEADLINE_EXCEEDED, _):
                self._metrics.write_timeouts.inc()
            case (grpc.StatusCode.INTERNAL, _):
                self._metrics.internal_errors.inc()
            case _:
                pass
