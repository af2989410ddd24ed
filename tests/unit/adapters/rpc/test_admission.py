# SPDX-License-Identifier: Apache-2.0
"""How many streams may begin in a second (P73)."""

import asyncio
import collections

import grpc
import grpc.aio
import pytest

from pilothouse.adapters.rpc import admission
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import types
from tests.support import waiting, xds_server

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"


class Clock:
    """Time that a test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize("rate", [1, 3, 100])
def test_p73_a_second_s_worth_begins_at_once_and_the_next_wait(clock, rate):
    """One after another, as the bucket fills; who would wait too long gets nothing."""
    door = admission.Admission(rate, patience=1.0, clock=clock)
    assert [door.turn() for _ in range(rate)] == [0] * rate
    turns = [door.turn() for _ in range(rate)]
    assert turns == pytest.approx([(number + 1) / rate for number in range(rate)])
    assert door.turn() is None


def test_p73_the_bucket_fills_with_time_and_no_further(clock):
    """After a quiet hour as after a quiet second."""
    door = admission.Admission(4, patience=0.0, clock=clock)
    for quiet, begun in ((0, 4), (0.5, 2), (1, 4), (3600, 4)):
        clock.now += quiet
        assert [door.turn() for _ in range(begun)] == [0] * begun
        assert door.turn() is None


def test_p73_who_is_refused_takes_nothing_from_others(clock):
    """However many are."""
    door = admission.Admission(2, patience=0.25, clock=clock)
    assert [door.turn() for _ in range(10)] == [0, 0, *[None] * 8]
    clock.now += 0.25
    assert door.turn() == pytest.approx(0.25)


def test_less_than_one_a_second_is_a_rate_too(clock):
    """One at once, then one every so often."""
    door = admission.Admission(0.5, patience=0.0, clock=clock)
    assert [door.turn(), door.turn()] == [0, None]
    clock.now += 2
    assert [door.turn(), door.turn()] == [0, None]


async def test_waiting_and_refusals_are_counted(clock):
    """Those that gave up waiting are counted as neither."""
    door = admission.Admission(2, patience=0.75, clock=clock)
    assert all([await door.admit() for _ in range(2)])
    tries = [asyncio.create_task(door.admit()) for _ in range(3)]
    await waiting.eventually(lambda: door.waiting == 3)
    tries[0].cancel()
    assert await asyncio.gather(*tries[1:]) == [False, False]
    assert (door.waiting, door.refused) == (0, 2)


async def test_p73_a_stream_too_many_is_refused_and_later_ones_are_served(clock):
    """With RESOURCE_EXHAUSTED; those that exist go on."""
    door = admission.Admission(1, patience=0.05, clock=clock)
    host = xds_server.Host()
    request = discovery_pb2.DiscoveryRequest(
        node={"id": "sidecar~10.0.0.1~a.default~cluster.local"}, type_url=types.CLUSTER.type_url
    ).SerializeToString()
    async with (
        xds_server.serving_xds(host, admitting=door) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        first = channel.stream_stream(ADS)()
        await first.write(request)
        assert isinstance(await first.read(), bytes)
        second = channel.stream_stream(ADS)()
        assert await second.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "another replica" in await second.details()
        clock.now += 1
        third = channel.stream_stream(ADS)()
        await third.write(request)
        assert isinstance(await third.read(), bytes)
        assert len(host.sessions) == 2
        first.cancel()
        third.cancel()


async def test_p73_of_a_whole_fleet_at_once_as_many_begin_as_may(clock):
    """All others are told why they may not; gRPC cancels none, as it would by itself."""
    may, fleet = 20, 4_000
    door = admission.Admission(may, patience=0.0, clock=clock)
    request = discovery_pb2.DiscoveryRequest(
        node={"id": "sidecar~10.0.0.1~a.default~cluster.local"}, type_url=types.CLUSTER.type_url
    ).SerializeToString()
    async with xds_server.serving_xds(xds_server.Host(), admitting=door) as port:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(30)
            stream = channel.unary_unary(ADS)
            # The loop does not run meanwhile; the server's own threads take all of them.
            calls = [stream.future(request) for _ in range(fleet)]
            await waiting.eventually(lambda: all(call.done() for call in calls))
            ended = collections.Counter(call.code() for call in calls)
    # Those that may begin are over too: one request is all that such a client has to say.
    assert ended[grpc.StatusCode.RESOURCE_EXHAUSTED] == door.refused == fleet - may
    assert ended[grpc.StatusCode.CANCELLED] == 0
