# SPDX-License-Identifier: Apache-2.0
"""What a parent says to a worker, and what it makes of the answers, without a worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import resources, streams, types
from pilothouse_discovery import sessions
from pilothouse_discovery.workers import library, links, messages
from tests.support import waiting

URL = types.CLUSTER.type_url


class Writer:
    """The way to a worker that reads when it is let."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.free = asyncio.Event()
        self.draining = False
        self.closed = False

    def write(self, frame: bytes) -> None:
        self.frames.append(frame)

    async def drain(self) -> None:
        self.draining = True
        await self.free.wait()
        self.draining = False

    def close(self) -> None:
        self.closed = True

    def said(self) -> list[messages.Message]:
        """Everything that was written so far."""
        return [one for frame in self.frames for one in messages.decode(frame[messages.HEADER :])]


class Host:
    """Notes what happens to whom."""

    def __init__(self) -> None:
        self.sessions: list[sessions.Session] = []
        self.noted: list[Any] = []

    def opened(self, session: sessions.Session) -> None:
        self.sessions.append(session)

    def events(self, session: sessions.Session, events: tuple[streams.Event, ...]) -> None:
        self.noted.append(events)

    def written(self, type_url: str, size: int) -> None:
        self.noted.append((type_url, size))

    def held(self, seconds: float) -> None:
        self.noted.append(seconds)

    def closed(self, session: sessions.Session) -> None:
        self.noted.append("closed")


class Talk:
    """A link, and the test in the worker's place."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.writer = Writer()
        self.host = Host()
        self.link = links.Link(self.reader, self.writer, self.host)  # type: ignore[arg-type]
        self.running = asyncio.create_task(self.link.run())

    async def hear(self, *said: messages.Message) -> None:
        """Have the worker say something, and wait until that is done with."""
        self.reader.feed_data(messages.encode(said))
        await waiting.eventually(self._rests)

    def _rests(self) -> bool:
        """Whether all was read, and all was written that the worker lets in."""
        if self.running.done():
            return True
        reads = self.reader._waiter is not None  # type: ignore[attr-defined]
        if self.writer.draining:
            return reads and not self.writer.free.is_set()
        return reads and not self.link._wake.is_set()

    async def open(self, number: int) -> sessions.Session:
        """A client that has just come."""
        node = base_pb2.Node(id=f"n{number}").SerializeToString()
        await self.hear(messages.Opened(number, node, "peer"))
        return self.host.sessions[-1]


def cluster(version: int) -> resources.Snapshot:
    """A snapshot with one cluster."""
    one = resources.Resource.of(URL, "c", f"{version}".encode())
    return resources.Snapshot.of([resources.Layer.of([one])])


async def test_a_slow_worker_is_told_the_newest_target_only() -> None:
    """What came and went while it did not read is never told; nothing piles up."""
    talk = Talk()
    session = await talk.open(1)
    targets = [cluster(version) for version in range(1, 6)]
    session.push(targets[0])
    await talk.hear()
    for target in targets[1:]:
        session.push(target)
        await talk.hear()
    assert len(talk.writer.frames) == 1
    talk.writer.free.set()
    await talk.hear()
    told = [one.body for one in talk.writer.said() if isinstance(one, messages.Resource)]
    assert told == [b"1", b"5"]
    talk.reader.feed_eof()
    await talk.running
    assert talk.host.noted == ["closed"]
    assert talk.writer.closed


async def test_what_is_the_same_for_many_is_said_once() -> None:
    """One target for all of them, and one report of those that stand in the same place."""
    talk = Talk()
    talk.writer.free.set()
    node = base_pb2.Node(id="n").SerializeToString()
    opened = [messages.Opened(number, node, "peer") for number in range(1, 2 * messages.CHUNK)]
    await talk.hear(*opened)
    everybody = talk.host.sessions
    target, other = cluster(1), cluster(2)
    for session in everybody[1:]:
        session.push(target)
    everybody[0].push(other)
    await talk.hear()
    told = [one for one in talk.writer.said() if isinstance(one, messages.Target)]
    assert len(told) <= 4  # a frame speaks of so many and no more
    numbers = [number for one in told for number in one.clients]
    assert sorted(numbers) == list(range(1, 2 * messages.CHUNK))
    (theirs,) = {one.snapshot for one in told if 2 in one.clients}
    places = ((URL, theirs, None, False),)
    standing = {"target": theirs, "arrived": True, "idle": True, "in_sync": True, "places": places}
    clients = tuple(range(1, 2 * messages.CHUNK))
    await talk.hear(messages.Moved(clients=clients, **standing))  # type: ignore[arg-type]
    assert all(session.stream.in_sync for session in everybody[1:])
    assert all(session.stream.acked(URL) is target for session in everybody[1:])
    assert not everybody[0].stream.in_sync  # it was never told that target
    assert talk.host.noted == [()] * len(everybody)
    talk.reader.feed_eof()
    await talk.running


async def test_who_holds_something_that_is_gone_stands_where_it_stood() -> None:
    """Each by itself, though they are told of together."""
    talk = Talk()
    talk.writer.free.set()
    first, second = await talk.open(1), await talk.open(2)
    held = {first: cluster(1), second: cluster(2)}
    numbers = {}
    for session, target in held.items():
        session.push(target)
        await talk.hear()
        numbers[session] = [
            one.snapshot for one in talk.writer.said() if isinstance(one, messages.Target)
        ][-1]
    for session, number in numbers.items():
        place = ((URL, number, None, False),)
        client = (talk.host.sessions.index(session) + 1,)
        await talk.hear(messages.Moved(client, number, True, True, True, place))  # noqa: FBT003
    target = cluster(3)
    for session in (first, second):
        session.push(target)
    await talk.hear()
    told = [one for one in talk.writer.said() if isinstance(one, messages.Target)][-1]
    assert told.clients == (1, 2)
    unknown = ((URL, 10_000, None, False),)
    moved = messages.Moved((1, 2), told.snapshot, True, True, False, unknown)  # noqa: FBT003
    await talk.hear(moved)
    assert [session.stream.acked(URL) for session in (first, second)] == list(held.values())
    talk.reader.feed_eof()
    await talk.running


async def test_what_a_worker_tells_is_what_the_host_is_told() -> None:
    """Positions, refusals, sizes and ends."""
    talk = Talk()
    talk.writer.free.set()
    session = await talk.open(1)
    target = cluster(1)
    session.push(target)
    await talk.hear()
    worker = library.Receiver()
    numbers = []
    for one in talk.writer.said():
        if isinstance(one, messages.Target):
            numbers.append(one.snapshot)
        elif isinstance(one, messages.Resource | messages.Layer | messages.Snapshot):
            worker.take(one)
    (number,) = numbers
    moved = messages.Moved(
        clients=(1,),
        target=number,
        arrived=True,
        idle=True,
        in_sync=False,
        places=((URL, 0, "no", False),),
        refused=((URL, "n1", "no"),),
        stale=((URL, "n0"),),
    )
    await talk.hear(moved, messages.Sent(((URL, (10, 20)),)), messages.Held(0.5))
    assert session.stream.refusals == {URL: "no"}
    assert session.stream.current is target
    assert session.stream.acked(URL) is resources.Snapshot.EMPTY
    assert talk.host.noted == [
        (
            streams.Nacked(type_url=URL, nonce="n1", message="no"),
            streams.Stale(type_url=URL, nonce="n0"),
        ),
        (URL, 10),
        (URL, 20),
        0.5,
    ]
    await talk.hear(messages.Closed(1, "UNAVAILABLE", "over"))
    assert session.ending is not None
    assert session.ending[1] == "over"
    assert not talk.link.sessions
    talk.reader.feed_eof()
    await talk.running


async def test_a_worker_that_makes_no_sense_is_given_up() -> None:
    """Its clients are gone, and whoever asked it something is answered with nothing."""
    talk = Talk()
    await talk.open(1)
    asked = asyncio.create_task(talk.link.ask("types"))
    await talk.hear()
    await talk.hear(messages.Ready())
    with pytest.raises(links.LinkError, match="does not say Ready"):
        await talk.running
    assert await asked == b""
    assert talk.host.noted == ["closed"]
