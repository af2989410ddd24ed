# SPDX-License-Identifier: Apache-2.0
"""The worker's end of the link: targets come in, and where the clients stand goes out.

What is told of a client is worked out when it can be written: of what happens meanwhile only the
last matters, but for refusals, which are all told.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
import structlog

from pilothouse.adapters.rpc import streams
from pilothouse.xds import streams as xds_streams
from pilothouse_discovery import holds, limits
from pilothouse_discovery.workers import library, messages

_LOG = structlog.get_logger(__name__)

Asked = Callable[["Reporter", bytes], bytes]

PAUSE = 0.003
"""Seconds between two times that the parent is told something: where clients stand is told for all
that moved meanwhile, and the first of them at once."""


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """A client of this worker."""

    number: int
    session: streams.Session
    refused: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    stale: list[tuple[str, str]] = dataclasses.field(default_factory=list)


class Reporter:
    """Implements `streams.StreamHost`, by way of the parent."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        said: Sequence[messages.Message],
        topics: Mapping[str, Asked],
    ) -> None:
        """Wire it.

        Args:
            reader: From the parent.
            writer: To the parent.
            said: What the parent has said already.
            topics: What answers the parent's questions.
        """
        self._reader = reader
        self._writer = writer
        self._said = said
        self._topics = topics
        self._numbers = itertools.count(1)
        self._clients: dict[int, Client] = {}
        self._by_session: dict[streams.Session, Client] = {}
        self._moved: dict[Client, None] = {}
        self._sizes: dict[str, list[int]] = collections.defaultdict(list)
        self._out: list[messages.Message] = []
        self._receiver = library.Receiver()
        self._sender = library.Sender(self._out.append, theirs=self._receiver)
        self._wake = asyncio.Event()
        self.watch = holds.LoopWatch(lambda seconds: self.say(messages.Held(seconds)))
        self.ready = asyncio.Event()
        """Set when the parent has read and built everything."""

    @property
    def clients(self) -> tuple[Client, ...]:
        """The clients that are connected, the oldest first."""
        return tuple(self._clients.values())

    def say(self, message: messages.Message) -> None:
        """Tell the parent, soon."""
        self._out.append(message)
        self._wake.set()

    # What streams do

    def opened(self, session: streams.Session) -> None:
        """A stream has said its first words: tell the parent who it is."""
        client = Client(number=next(self._numbers), session=session)
        self._clients[client.number] = self._by_session[session] = client
        session.stream.limit = limits.of_node(session.node.id)
        self.say(messages.Opened(client.number, session.node.SerializeToString(), session.peer))

    def events(self, session: streams.Session, events: tuple[xds_streams.Event, ...]) -> None:
        """A client has acknowledged, refused or subscribed."""
        client = self._by_session.get(session)
        if client is None:
            return
        for event in events:
            match event:
                case xds_streams.Nacked(type_url=url, nonce=nonce, message=words):
                    client.refused.append((url, nonce, words))
                case xds_streams.Stale(type_url=url, nonce=nonce):
                    client.stale.append((url, nonce))
                case xds_streams.Acked() | xds_streams.Subscribed():
                    continue
        self._look_again(client)

    def sent(self, session: streams.Session, response: xds_streams.Response) -> None:
        """A response has been written."""
        del session
        self._sizes[response.type_url].append(len(response.body))
        self._wake.set()

    def closed(self, session: streams.Session) -> None:
        """A stream has ended, for whatever reason."""
        client = self._by_session.pop(session, None)
        if client is None:
            return
        del self._clients[client.number]
        self._moved.pop(client, None)
        code, text = session.ending or (None, "")
        self.say(messages.Closed(client.number, code.name if code else "", text))

    def _look_again(self, client: Client) -> None:
        self._moved[client] = None
        self._wake.set()

    # The link

    async def run(self) -> None:
        """Talk until the parent says stop or is gone."""
        writing = asyncio.create_task(self._write(), name="parent link")
        told = self._said
        try:
            while True:
                with self.watch.working():
                    for message in told:
                        if isinstance(message, messages.Stop):
                            return
                        self._take(message)
                    await asyncio.sleep(0)  # what is buffered is read without a pause
                header = await self._reader.readexactly(messages.HEADER)
                frame = await self._reader.readexactly(messages.length(header))
                told = messages.decode(frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            _LOG.info("the parent is gone")
        finally:
            writing.cancel()
            await asyncio.wait((writing,))

    def _take(self, message: messages.Message) -> None:
        match message:
            case messages.Resource() | messages.Layer() | messages.Snapshot() | messages.Drop():
                self._receiver.take(message)
            case messages.Target():
                self._target(message)
            case messages.End():
                client = self._clients.get(message.client)
                if client is not None:
                    client.session.end(grpc.StatusCode[message.code], message.text)
            case messages.Ready():
                self.ready.set()
            case messages.Ask():
                self.say(
                    messages.Answer(message.number, self._topics[message.topic](self, message.body))
                )
            case _:
                raise ValueError(f"a parent does not say {type(message).__name__}")

    def _target(self, message: messages.Target) -> None:
        snapshot = self._receiver.snapshot(message.snapshot)
        if snapshot is None:
            return  # it has gone meanwhile
        for number in message.clients:
            client = self._clients.get(number)
            if client is None:
                continue  # likewise
            client.session.push(snapshot, traceparent=message.traceparent)
            if client.session.stream.idle:
                self._look_again(client)  # else its answer does: nothing is known before that

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for chunk in self._chunks():
                    self._writer.write(messages.encode(chunk))
                    await self._writer.drain()
                # What comes next is told together with what comes soon after.
                await asyncio.sleep(PAUSE)
        except ConnectionError:
            return  # the reader sees it too

    def _chunks(self) -> Iterator[list[messages.Message]]:
        self._sender.tidy()
        if self._sizes:
            sizes = tuple((url, tuple(found)) for url, found in self._sizes.items())
            self._sizes.clear()
            self._out.append(messages.Sent(sizes))
        while self._out or self._moved:
            self._out += self._reports(messages.CHUNK - len(self._out))
            chunk = self._out[: messages.CHUNK]
            del self._out[: messages.CHUNK]
            yield chunk

    def _reports(self, room: int) -> list[messages.Moved]:
        """Where so many clients stand, once for all that stand in the same place."""
        alike: dict[tuple[Any, ...], list[int]] = {}
        while self._moved and room > 0:
            room -= 1
            client = next(iter(self._moved))
            del self._moved[client]
            alike.setdefault(self._standing(client), []).append(client.number)
        return [messages.Moved(tuple(clients), *standing) for standing, clients in alike.items()]

    def _standing(self, client: Client) -> tuple[Any, ...]:
        """What is told of a client: a `messages.Moved` but for whom it is about."""
        stream = client.session.stream
        target = stream.target
        refusals = stream.refusals
        agreed = target if stream.in_sync else None
        number = None if target is None else self._sender.snapshot(target, None)
        refused: tuple[tuple[str, str, str], ...] = ()
        stale: tuple[tuple[str, str], ...] = ()
        if client.refused:
            refused, client.refused = tuple(client.refused), []
        if client.stale:
            stale, client.stale = tuple(client.stale), []
        places = tuple(
            [
                (
                    url,
                    number
                    if agreed is not None
                    else self._sender.snapshot(stream.acked(url), target),
                    refusals.get(url),
                    stream.claimed(url),
                )
                for url in stream.subscribed
            ]
        )
        arrived = stream.current is target
        return number, arrived, stream.idle, agreed is not None, places, refused, stale
