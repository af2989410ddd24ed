# SPDX-License-Identifier: Apache-2.0
"""What a worker tells its parent, without a parent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from pilothouse.adapters.rpc import streams
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import delta, types
from pilothouse_discovery.workers import messages, reporting
from tests.support import waiting

URL = types.CLUSTER.type_url
T = TypeVar("T")


class Writer:
    """The way to the parent, who reads everything."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def write(self, frame: bytes) -> None:
        self.frames.append(frame)

    async def drain(self) -> None:
        pass

    def said(self, kind: type[T]) -> list[T]:
        """Everything of a kind that was written so far."""
        frames = [messages.decode(frame[messages.HEADER :]) for frame in self.frames]
        return [one for frame in frames for one in frame if isinstance(one, kind)]


class Talk:
    """A reporter, and the test in the parent's place."""

    def __init__(self, said: Sequence[messages.Message]) -> None:
        self.reader = asyncio.StreamReader()
        self.writer = Writer()
        self.reporter = reporting.Reporter(
            self.reader,
            self.writer,  # type: ignore[arg-type]
            said=said,
            topics={},
        )

    def ask(self, session: streams.Session, request: discovery_pb2.DeltaDiscoveryRequest) -> None:
        """Have a client say something, as its stream would pass it on."""
        new = session.stream.node is None
        events = session.stream.receive(request.SerializeToString())
        if new:
            self.reporter.opened(session)
        self.reporter.events(session, events)


def subscribing(number: int) -> discovery_pb2.DeltaDiscoveryRequest:
    """The first words of a client."""
    request = discovery_pb2.DeltaDiscoveryRequest(type_url=URL)
    request.node.id = f"n{number}"
    return request


def cluster(number: int) -> list[messages.Message]:
    """How the parent tells of a snapshot with one cluster, under that number."""
    return [
        messages.Resource(number, URL, "c", f"v{number}", b"body", (), b""),
        messages.Layer(number, 0, (), (number,)),
        messages.Snapshot(number, (number,)),
    ]


async def test_those_who_stand_in_the_same_place_are_told_of_together() -> None:
    """Once, with the numbers of all; who refuses is told of with its own words."""
    count = 20
    everybody = [streams.Session(delta.DeltaStream(), peer="p") for _ in range(count)]
    talk = Talk(cluster(1))
    running = asyncio.create_task(talk.reporter.run())
    for number, session in enumerate(everybody):
        talk.ask(session, subscribing(number))
    await waiting.eventually(lambda: len(talk.writer.said(messages.Opened)) == count)
    talk.reader.feed_data(messages.encode([messages.Target(tuple(range(1, count + 1)), 1, "")]))
    await waiting.eventually(lambda: all(session.stream.ready for session in everybody))
    before = len(talk.writer.said(messages.Moved))
    for session in everybody:
        response = session.stream.poll()
        assert response is not None
        answer = discovery_pb2.DeltaDiscoveryRequest(type_url=URL, response_nonce=response.nonce)
        if session is everybody[0]:
            answer.error_detail.message = "no"
        talk.ask(session, answer)

    def told() -> list[messages.Moved]:
        return talk.writer.said(messages.Moved)[before:]

    await waiting.eventually(lambda: sum(len(one.clients) for one in told()) == count)
    refused, accepted = sorted(told(), key=lambda one: one.in_sync)
    assert refused.clients == (1,)
    assert [words for _, _, words in refused.refused] == ["no"]
    assert refused.places == ((URL, 0, "no", False),)
    assert accepted.clients == tuple(range(2, count + 1))
    assert (accepted.target, accepted.arrived, accepted.idle) == (1, True, True)
    assert accepted.places == ((URL, 1, None, False),)
    talk.reader.feed_data(messages.encode([messages.Stop()]))
    await running


async def test_a_frame_speaks_of_so_many_clients_and_no_more() -> None:
    """However many are told of at once: taking a frame in holds the parent's loop."""
    count = 2 * messages.CHUNK
    talk = Talk(cluster(1))
    for number in range(count):
        talk.ask(streams.Session(delta.DeltaStream(), peer="p"), subscribing(number))
    running = asyncio.create_task(talk.reporter.run())
    await waiting.eventually(
        lambda: sum(len(one.clients) for one in talk.writer.said(messages.Moved)) == count
    )
    for frame in talk.writer.frames:
        told = messages.decode(frame[messages.HEADER :])
        clients = [len(one.clients) if isinstance(one, messages.Moved) else 1 for one in told]
        assert sum(clients) <= messages.CHUNK
    talk.reader.feed_eof()
    await running
