# SPDX-License-Identifier: Apache-2.0
"""How long connections live, and what they bear: real gRPC clients of a real server."""

import asyncio
import contextlib
import gc

import grpc
import grpc.aio
import pytest

from pilothouse.adapters.rpc import serving, streams
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import type_state, types
from tests.support import xds_server
from tests.support.waiting import eventually

NODE = "sidecar~10.0.0.1~a.default~cluster.local"
SERVICE = "/envoy.service.discovery.v3.AggregatedDiscoveryService"
DELTA, SOTW = f"{SERVICE}/DeltaAggregatedResources", f"{SERVICE}/StreamAggregatedResources"
CDS = types.CLUSTER.type_url


def asking(*, sotw=False, **fields):
    """The first request of a stream."""
    kind = discovery_pb2.DiscoveryRequest if sotw else discovery_pb2.DeltaDiscoveryRequest
    return kind(node={"id": NODE}, type_url=CDS, **fields).SerializeToString()


@contextlib.asynccontextmanager
async def serving_with(host, client_options=(), **options):
    """A server with these options, and a channel to it."""
    made = serving.GrpcOptions(**options)
    async with (
        xds_server.serving_xds(host, options=made) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=client_options) as channel,
    ):
        yield channel


async def begun(channel, method=DELTA, **fields):
    """A stream that has had its first response."""
    call = channel.stream_stream(method)()
    await call.write(asking(sotw=method == SOTW, **fields))
    assert isinstance(await call.read(), bytes)
    return call


async def test_p71_an_eternal_stream_ends_with_its_connection():
    """The age is finite, and so is the grace after it; the client comes back at once."""
    host = xds_server.Host()
    async with serving_with(host, max_connection_age=0.2, max_connection_age_grace=0.1) as channel:
        call = await begun(channel)
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        await eventually(lambda: not host.sessions)
        again = await begun(channel)
        again.cancel()


async def test_p71_without_an_age_nothing_ends():
    """Nor is there one unless it is asked for."""
    arguments = dict(serving.GrpcOptions().channel_arguments())
    assert not [name for name in arguments if "connection_age" in name]


@pytest.mark.parametrize("strict", [False, True])
async def test_p72_a_client_may_ping(strict):
    """As often as the server permits; more often, and its connection ends."""
    pings = [
        ("grpc.keepalive_time_ms", 50),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_time_between_pings_ms", 50),
    ]
    host = xds_server.Host()
    gap = 3600.0 if strict else 0.01
    async with serving_with(host, pings, min_ping_interval=gap) as channel:
        call = await begun(channel)
        if strict:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call.read()
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        else:
            host.set()  # nothing is different, so nothing is sent
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.shield(asyncio.ensure_future(call.read()))
            assert not call.done()
            call.cancel()


async def test_p47_a_first_request_may_be_larger_than_grpc_takes_by_itself():
    """A gateway's list of what it holds: here 8 MiB, of which gRPC's own limit is the half."""
    held = {f"outbound|80||{number:0160}": "0123456789abcdef" for number in range(45_000)}
    request = asking(initial_resource_versions=held)
    assert len(request) > 2 * 4 * 1024 * 1024
    any_size = [("grpc.max_receive_message_length", -1)]
    async with serving_with(xds_server.Host(), any_size) as channel:
        call = channel.stream_stream(DELTA)()
        await call.write(request)
        said = discovery_pb2.DeltaDiscoveryResponse.FromString(await call.read())
        # Clusters go after whoever used them has been asked for.
        while not said.removed_resources:
            ack = discovery_pb2.DeltaDiscoveryRequest(type_url=CDS, response_nonce=said.nonce)
            await call.write(ack.SerializeToString())
            said = discovery_pb2.DeltaDiscoveryResponse.FromString(await call.read())
        assert set(said.removed_resources) == set(held)
        call.cancel()


def _left(kinds):
    gc.collect()
    return [type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds)]


async def test_hundreds_of_streams_leave_no_object_behind():
    """However they end: hung up, said goodbye, broken by their connection, refused."""
    kinds = (streams.Session, streams.streams.Stream, type_state.TypeState, streams._Call)
    before = len(_left(kinds)), len(asyncio.all_tasks())
    host = xds_server.Host()
    host.set()
    async with xds_server.serving_xds(host) as port:
        for turn in range(15):
            async with grpc.aio.insecure_channel(
                f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
            ) as channel:
                calls = await asyncio.gather(
                    *(begun(channel, (DELTA, SOTW)[number % 2]) for number in range(20))
                )
                refused = channel.stream_stream(DELTA)()
                await refused.write(b"\xff\xff")
                assert await refused.code() is grpc.StatusCode.INVALID_ARGUMENT
                for call in calls if turn % 3 == 0 else ():
                    call.cancel()
                for call in calls if turn % 3 == 1 else ():
                    await call.done_writing()
                    while await call.read() is not grpc.aio.EOF:
                        pass
                del calls, refused  # the others end with their channel
        # grpc.aio holds the newest call that it accepted until there is another.
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            (await begun(channel)).cancel()
        await eventually(lambda: not host.sessions)
        await eventually(lambda: not _left(kinds), what="nothing is left")
    await eventually(lambda: (len(_left(kinds)), len(asyncio.all_tasks())) == before)
