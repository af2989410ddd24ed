# SPDX-License-Identifier: Apache-2.0
"""xDS streams over real sockets, with a client that speaks bytes."""

import asyncio
import contextlib

import grpc
import grpc.aio
import pytest
import structlog.testing
from google.protobuf import descriptor_pool, wrappers_pb2

from pilothouse.adapters.rpc import services, serving, streams
from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import resources, types
from pilothouse.xds import streams as xds_streams
from tests.support.waiting import eventually

CDS = types.CLUSTER.type_url
LDS = types.LISTENER.type_url
NODE = base_pb2.Node(id="sidecar~127.0.0.1~a.default~cluster.local")


def snapshot(**bodies):
    """A snapshot of clusters by name; their bodies are opaque bytes to everybody here."""
    made = [
        resources.Resource.of(CDS, name, wrappers_pb2.BytesValue(value=body).SerializeToString())
        for name, body in bodies.items()
    ]
    return resources.Snapshot.of([resources.Layer.of(made)])


class Host:
    """A StreamHost that gives everybody one snapshot, and remembers."""

    def __init__(self, first=None):
        self.first = first
        self.sessions, self.gone, self.log, self.sent_names = [], [], [], []

    def opened(self, session):
        self.sessions.append(session)
        if self.first is not None:
            session.push(self.first)

    def events(self, session, events):
        self.log.extend(events)

    def sent(self, session, response):
        self.sent_names.append(response.nonce)

    def closed(self, session):
        self.gone.append(session)

    def saw(self, kind):
        return [each for each in self.log if isinstance(each, kind)]


@contextlib.asynccontextmanager
async def serve(host, **options):
    """An XdsServer on a free port; the value is the server and a channel to it."""
    xds = streams.XdsServer(host, **options)
    server = serving.GrpcServer()
    xds.add_to(server)
    port = server.bind(serving.Address("127.0.0.1", 0), setting="x")
    async with server.running(grace=0.5):
        large = [("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=large) as channel:
            yield xds, channel
        await xds.drain()


def delta_call(channel, service=services.ADS):
    return channel.stream_stream(service.delta_path)()


def asking(type_url=CDS, node=NODE, **more):
    return discovery_pb2.DeltaDiscoveryRequest(
        node=node, type_url=type_url, **more
    ).SerializeToString()


async def answer(call):
    return discovery_pb2.DeltaDiscoveryResponse.FromString(await call.read())


async def status(call):
    """How a call ends, with whatever is still to be read read."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    return await call.code(), await call.details()


async def test_delta_stream_gives_what_the_host_pushes():
    """A client that subscribes gets the host's snapshot, and its ACK is an event."""
    host = Host(snapshot(a=b"1", b=b"2"))
    async with serve(host) as (_, channel):
        call = delta_call(channel)
        await call.write(asking())
        got = await answer(call)
        assert [one.name for one in got.resources] == ["a", "b"]
        await call.write(asking(response_nonce=got.nonce))
        await eventually(lambda: host.saw(xds_streams.Acked))
        assert host.sessions[0].stream.in_sync
        assert host.sessions[0].node.id == NODE.id
        assert host.sent_names == [got.nonce]
        call.cancel()


async def test_state_of_the_world_on_a_service_of_one_type():
    """On the cluster service the type may be left out, and the whole set comes."""
    host = Host(snapshot(a=b"1"))
    async with serve(host, per_type=True) as (_, channel):
        call = channel.stream_stream(
            "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"
        )()
        await call.write(discovery_pb2.DiscoveryRequest(node=NODE).SerializeToString())
        got = discovery_pb2.DiscoveryResponse.FromString(await call.read())
        assert (got.type_url, len(got.resources)) == (CDS, 1)
        call.cancel()


@pytest.mark.parametrize("service", services.PER_TYPE, ids=lambda one: one.name.split(".")[-1])
async def test_every_service_of_one_type_is_there_under_envoys_name(service):
    """Each per-type service is registered by the name that Envoy's protos declare."""
    services.load_descriptors()
    declared = descriptor_pool.Default().FindServiceByName(service.name)
    streams_ = {name for name in declared.methods_by_name if not name.startswith("Fetch")}
    assert {service.sotw, service.delta} - {None} == streams_


async def test_services_of_one_type_refuse_another():
    """A type that the service does not serve ends the stream with INVALID_ARGUMENT."""
    async with serve(Host(), per_type=True) as (_, channel):
        call = delta_call(channel, services.PER_TYPE[0])
        await call.write(asking(type_url=LDS))
        code, text = await status(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert LDS in text


@pytest.mark.parametrize("request_bytes", [asking(node=None), b"\xff\xff"])
async def test_client_that_says_nothing_of_itself_is_refused(request_bytes):
    """Without a node, or with bytes that are no request: INVALID_ARGUMENT, and no session."""
    host = Host()
    async with serve(host) as (_, channel):
        call = delta_call(channel)
        await call.write(request_bytes)
        code, _ = await status(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert (host.sessions, host.gone) == ([], [])


async def test_host_may_refuse_at_opening():
    """`end` inside `opened` ends the stream with that status; no event follows, one `closed`."""
    host = Host()
    host.opened = lambda session: session.end(grpc.StatusCode.PERMISSION_DENIED, "not you")
    async with serve(host) as (_, channel):
        call = delta_call(channel)
        await call.write(asking())
        assert await status(call) == (grpc.StatusCode.PERMISSION_DENIED, "not you")
        await eventually(lambda: len(host.gone) == 1)
    assert host.log == []


@pytest.mark.parametrize("leave", ["cancel", "done_writing"])
async def test_closed_is_called_once_when_the_client_goes(leave):
    """A client that cancels or ends its half is closed once, and nothing of it stays."""
    host = Host(snapshot(a=b"1"))
    async with serve(host) as (xds, channel):
        before = asyncio.all_tasks()
        call = delta_call(channel)
        await call.write(asking())
        await answer(call)
        left = getattr(call, leave)()
        if left is not True:
            await left
        await eventually(lambda: not xds.sessions)
        await eventually(
            lambda: not {t for t in asyncio.all_tasks() - before if "xds" in t.get_name()}
        )
    assert host.gone == host.sessions
    assert len(host.gone) == 1


async def test_p65_a_slow_client_gets_the_newest_state_and_no_steps_between():
    """Pushes that come while a response is unacknowledged merge into one."""
    host = Host(snapshot(a=b"0"))
    async with serve(host) as (_, channel):
        call = delta_call(channel)
        await call.write(asking())
        first = await answer(call)
        for number in range(1, 20):
            host.sessions[0].push(snapshot(a=b"%d" % number))
        await call.write(asking(response_nonce=first.nonce))
        second = await answer(call)
        newest = snapshot(a=b"19").get(CDS, "a")
        assert [one.version for one in second.resources] == [newest.version]
        await call.write(asking(response_nonce=second.nonce))
        await eventually(lambda: host.sessions[0].stream.in_sync)
        assert len(host.sent_names) == 2
        call.cancel()


async def test_p66_a_stuck_client_is_given_up_and_told_when_it_reads():
    """A client that does not read is closed after the write timeout; the others go on."""
    host = Host()
    async with serve(host, write_timeout=0.2) as (_, channel):
        call = delta_call(channel)
        await call.write(asking())
        await eventually(lambda: host.sessions)
        stuck = host.sessions[0]
        # Beyond what gRPC and the kernel buffer for a client: about 4 MB.
        stuck.push(snapshot(**{f"c{number}": bytes(1_000_000) for number in range(20)}))
        await call.write(asking(type_url=LDS))
        stuck.push(snapshot(**{f"d{number}": bytes(1_000_000) for number in range(20)}))
        with structlog.testing.capture_logs() as logs:
            await eventually(lambda: host.gone == [stuck])
        assert [each["event"] for each in logs if each["log_level"] == "warning"] == [
            "client is stuck"
        ]
        other = delta_call(channel)
        await other.write(asking())
        await eventually(lambda: len(host.sessions) == 2)
        other.cancel()
        code, text = await status(call)
        assert (code, text) == (grpc.StatusCode.DEADLINE_EXCEEDED, "nothing was read for 0.2 s")


async def test_p70_drain_tells_everybody_and_lets_nobody_in():
    """Draining ends streams with UNAVAILABLE and answers new ones likewise."""
    host = Host(snapshot(a=b"1"))
    async with serve(host) as (xds, channel):
        call = delta_call(channel)
        await call.write(asking())
        await answer(call)
        await xds.drain(message="going home")
        assert await status(call) == (grpc.StatusCode.UNAVAILABLE, "going home")
        late = delta_call(channel)
        assert (await status(late))[0] is grpc.StatusCode.UNAVAILABLE
        assert xds.sessions == ()
    assert len(host.gone) == 1


async def test_mistake_of_the_host_costs_its_stream_only():
    """An exception in the host ends that stream with INTERNAL, is logged, and harms no other."""
    host = Host(snapshot(a=b"1"))
    good_events = host.events

    def events(session, found):
        if "bad" in session.node.id:
            raise KeyError("oh")
        good_events(session, found)

    host.events = events
    async with serve(host) as (_, channel):
        good, bad = delta_call(channel), delta_call(channel)
        await good.write(asking())
        with structlog.testing.capture_logs() as logs:
            await bad.write(asking(node=base_pb2.Node(id="sidecar~1.1.1.1~bad.x~d")))
            assert await status(bad) == (grpc.StatusCode.INTERNAL, "internal error")
        assert [each["event"] for each in logs] == ["request not handled"]
        got = await answer(good)
        await good.write(asking(response_nonce=got.nonce))
        await eventually(lambda: host.saw(xds_streams.Acked))
        good.cancel()
