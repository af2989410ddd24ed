# SPDX-License-Identifier: Apache-2.0
"""The parent's end of the link to one worker.

What is to be said is worked out when it can be written: while a worker is slow, only the newest
target of each client waits. All of it runs on the parent's event loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import grpc
import structlog

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import resources, streams
from pilothouse_discovery import sessions
from pilothouse_discovery.workers import library, messages, remote

_LOG = structlog.get_logger(__name__)


class Host(Protocol):
    """Whom the clients are served for: that of discovery."""

    def opened(self, session: sessions.Session) -> None:
        """A client has said who it is."""

    def events(self, session: sessions.Session, events: tuple[streams.Event, ...]) -> None:
        """A client has answered, or moved."""

    def written(self, type_url: str, size: int) -> None:
        """A response of so many bytes was written."""

    def held(self, seconds: float) -> None:
        """A loop with streams was held for so long."""

    def closed(self, session: sessions.Session) -> None:
        """A client's stream is over."""


class LinkError(Exception):
    """A worker said something that makes no sense."""


class Link:
    """One worker, as long as it lives."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: Host
    ) -> None:
        """Wire it; nothing is said before `run`."""
        self._reader = reader
        self._writer = writer
        self._host = host
        self._out: list[messages.Message] = []
        self._targets: dict[remote.RemoteSession, str] = {}
        """Clients with a new target, and the trace of what it removes."""
        self._sender = library.Sender(self._out.append)
        self._receiver = library.Receiver(ours=self._sender)
        self._sessions: dict[int, remote.RemoteSession] = {}
        self._wake = asyncio.Event()
        self._questions = itertools.count(1)
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self.queued = messages.Queued(0, 0)
        """How many streams wait to begin at the worker, and were refused."""
        self.serving = asyncio.Event()
        """Set once the worker listens."""
        self.failure = ""
        """Why it cannot, if it cannot."""

    @property
    def sessions(self) -> Mapping[int, remote.RemoteSession]:
        """Its clients."""
        return self._sessions

    def say(self, message: messages.Message) -> None:
        """Say something, soon."""
        self._out.append(message)
        self._wake.set()

    async def ask(self, topic: str, body: bytes = b"") -> bytes:
        """What the worker answers; nothing when it goes before that."""
        number = next(self._questions)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self.say(messages.Ask(number, topic, body))
        try:
            return await answer
        finally:
            self._asked.pop(number, None)

    async def run(self) -> None:
        """Talk until the worker is gone; then so are its clients.

        Raises:
            LinkError: what it says makes no sense.
        """
        writing = asyncio.create_task(self._write(), name="worker link")
        try:
            while True:
                header = await self._reader.readexactly(messages.HEADER)
                frame = await self._reader.readexactly(messages.length(header))
                for message in messages.decode(frame):
                    self._take(message)
                await asyncio.sleep(0)  # what is buffered is read without a pause
        except (asyncio.IncompleteReadError, ConnectionError):
            _LOG.info("worker's link has ended", clients=len(self._sessions))
        except ValueError as error:
            raise LinkError(str(error)) from error
        finally:
            writing.cancel()
            await asyncio.wait((writing,))
            self._end()

    def _end(self) -> None:
        self._writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(b"")
        for session in tuple(self._sessions.values()):
            del self._sessions[session.number]
            self._host.closed(session)

    # To the worker

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for chunk in self._chunks():
                    self._writer.write(messages.encode(chunk))
                    await self._writer.drain()
        except ConnectionError:
            return  # the reader sees it too

    def _chunks(self) -> Iterator[list[messages.Message]]:
        """Everything there is to say, the newest target of each client at the time it is told."""
        self._sender.tidy()
        while self._out or self._targets:
            self._out += self._tell_targets(messages.CHUNK - len(self._out))
            chunk = self._out[: messages.CHUNK]
            del self._out[: messages.CHUNK]
            yield chunk

    def _tell_targets(self, room: int) -> list[messages.Target]:
        """What so many clients shall hold, once for all that shall hold the same."""
        alike: dict[tuple[int, str], list[int]] = {}
        while self._targets and room > 0:
            room -= 1
            session = next(iter(self._targets))
            traceparent = self._targets.pop(session)
            target = session.stream.target
            if target is None or session.number not in self._sessions:
                continue
            number = self._sender.number(target)
            if number is None:
                base = session.sent[-1][1] if session.sent else self._like()
                number = self._sender.snapshot(target, base)
            session.tell(number, target)
            alike.setdefault((number, traceparent), []).append(session.number)
        return [messages.Target(tuple(clients), *told) for told, clients in alike.items()]

    def _like(self) -> resources.Snapshot | None:
        """What some client was told: a newcomer's target is most likely similar."""
        for session in self._sessions.values():
            if session.sent:
                return session.sent[-1][1]
        return None

    def _push(self, session: remote.RemoteSession, traceparent: str) -> None:
        self._targets[session] = traceparent or self._targets.get(session, "")
        self._wake.set()

    def _finish(self, session: remote.RemoteSession) -> None:
        if session.ending is not None:
            code, text = session.ending
            self.say(messages.End(session.number, code.name, text))

    # From the worker

    def _take(self, message: messages.Message) -> None:
        match message:
            case messages.Layer() | messages.Snapshot() | messages.Drop():
                self._receiver.take(message)
            case messages.Opened():
                self._opened(message)
            case messages.Moved():
                self._moved(message)
            case messages.Closed():
                self._closed(message)
            case messages.Sent() | messages.Held() | messages.Queued():
                self._count(message)
            case messages.Answer():
                waiting = self._asked.get(message.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message.body)
            case messages.Serving():
                self.serving.set()
            case messages.Failed():
                self.failure = message.reason
                self.serving.set()
            case _:
                raise LinkError(f"a worker does not say {type(message).__name__}")

    def _count(self, message: messages.Sent | messages.Held | messages.Queued) -> None:
        match message:
            case messages.Held():
                self._host.held(message.seconds)
            case messages.Queued():
                self.queued = message
            case messages.Sent():
                for url, sizes in message.sizes:
                    for size in sizes:
                        self._host.written(url, size)

    def _opened(self, message: messages.Opened) -> None:
        session = remote.RemoteSession(
            message.client,
            node=base_pb2.Node.FromString(message.node),
            peer=message.peer,
            push=self._push,
            end=self._finish,
        )
        self._sessions[message.client] = session
        self._host.opened(session)

    def _moved(self, message: messages.Moved) -> None:
        found: list[streams.Event] = [
            streams.Nacked(type_url=url, nonce=nonce, message=words)
            for url, nonce, words in message.refused
        ]
        found += [streams.Stale(type_url=url, nonce=nonce) for url, nonce in message.stale]
        events = tuple(found)
        told = [messages.TypePlace(*fields) for fields in message.places]
        shared: dict[resources.Snapshot | None, remote.Position] = {}
        for number in message.clients:
            session = self._sessions.get(number)
            if session is None:
                continue
            target = session.told_of(message.target)
            position = shared.get(target)
            if position is None:
                position, same = self._position(message, told, target, session.stream.position)
                if same:
                    shared[target] = position
            session.stream.stand(position)
            self._host.events(session, events)

    def _position(
        self,
        message: messages.Moved,
        told: Sequence[messages.TypePlace],
        target: resources.Snapshot | None,
        known: remote.Position,
    ) -> tuple[remote.Position, bool]:
        """Where a client stands, and whether all that are told of with it stand there too."""
        places, same = {}, True
        for one in told:
            acked = self._receiver.snapshot(one.acked)
            if acked is None:  # gone here: it was nobody's target any more
                same = False
                before = known.places.get(one.type_url)
                acked = before.acked if before is not None else resources.Snapshot.EMPTY
            places[one.type_url] = remote.Place(
                acked=acked, refusal=one.refusal, claimed=one.claimed
            )
        position = remote.Position(
            target=target,
            arrived=message.arrived,
            idle=message.idle,
            in_sync=message.in_sync,
            places=places,
        )
        return position, same

    def _closed(self, message: messages.Closed) -> None:
        session = self._sessions.pop(message.client, None)
        if session is None:
            return
        self._targets.pop(session, None)
        if message.code:
            session.ending = (grpc.StatusCode[message.code], message.text)
        self._host.closed(session)
