# SPDX-License-Identifier: Apache-2.0
"""What every server program has: addresses, ports, health, reflection, signals, exit codes."""

import asyncio
import os
import signal
import socket

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pilothouse.adapters.rpc import serving

LOCAL = serving.Address("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:15010", "127.0.0.1", 15010),
        ("localhost:0", "localhost", 0),
        ("[::1]:80", "::1", 80),
    ],
)
def test_address_is_read_and_written_alike(text, host, port):
    """HOST:PORT is read into its parts and written back the same."""
    address = serving.Address.parse(text)
    assert (address.host, address.port) == (host, port)
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "15010", ":15010", "a:", "a:b", "a:65536", "a:-1", "a:²"])
def test_wrong_address_is_named(text):
    """What is no HOST:PORT is refused with its own words in the message."""
    with pytest.raises(ValueError, match="is not of the form HOST:PORT"):
        serving.Address.parse(text)


@pytest.fixture
def taken():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        yield serving.Address("127.0.0.1", busy.getsockname()[1])


async def test_taken_port_names_address_and_setting(taken):
    """A port in use is a StartError that says which address, and by which setting to change it."""
    server = serving.GrpcServer()
    with pytest.raises(serving.StartError) as caught:
        server.bind(taken, setting="--grpc-address")
    assert str(caught.value) == (f"cannot listen on {taken} (--grpc-address): the port is in use")


async def test_second_server_of_ours_does_not_share_a_port():
    """Two servers cannot share a port unnoticed, which SO_REUSEPORT would allow."""
    first, second = serving.GrpcServer(), serving.GrpcServer()
    port = first.bind(LOCAL, setting="x")
    async with first.running(grace=0):
        with pytest.raises(serving.StartError, match="in use"):
            second.bind(serving.Address("127.0.0.1", port), setting="x")


async def test_unknown_host_is_a_start_error():
    """A host that has no address is told as such."""
    with pytest.raises(serving.StartError, match=r"no-such-host\.invalid:1 \(--grpc-address\)"):
        serving.GrpcServer().bind(
            serving.Address("no-such-host.invalid", 1), setting="--grpc-address"
        )


async def test_health_follows_readiness():
    """The server and each announced service are NOT_SERVING until ready, then SERVING."""
    server = serving.GrpcServer()
    server.announce("some.Service")
    port = server.bind(LOCAL, setting="x")
    status = health_pb2.HealthCheckResponse
    async with server.running(grace=0), _channel(port) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def ask(name):
            return (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status

        assert [await ask(""), await ask("some.Service")] == [status.NOT_SERVING] * 2
        await server.set_ready(ready=True)
        assert [await ask(""), await ask("some.Service")] == [status.SERVING] * 2


async def test_reflection_lists_announced_services():
    """Reflection names what was announced, health and itself."""
    server = serving.GrpcServer()
    server.announce("some.Service")
    port = server.bind(LOCAL, setting="x")
    async with server.running(grace=0), _channel(port) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        answer = await call.read()
        call.cancel()
    assert {each.name for each in answer.list_services_response.service} == {
        "some.Service",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_stop_ends_a_health_watch_within_its_grace():
    """A watcher that stays does not hold up the end: it hears NOT_SERVING, then is cut off."""
    server = serving.GrpcServer()
    port = server.bind(LOCAL, setting="x")
    async with _channel(port) as channel:
        async with server.running(grace=0.1):
            await server.set_ready(ready=True)
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()


async def test_calls_of_a_whole_fleet_wait_for_their_turn():
    """More calls than gRPC lets wait by itself come while the loop is busy; each is answered."""
    server = serving.GrpcServer()
    port = server.bind(LOCAL, setting="x")
    calls = 4_000  # gRPC cancels some above 1,000, and all above 3,000
    everybody = asyncio.get_running_loop().create_future()
    left = calls

    def answered(_):
        nonlocal left
        left -= 1
        if not left:
            everybody.get_loop().call_soon_threadsafe(everybody.set_result, None)

    async with server.running(grace=0):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(30)
            check = health_pb2_grpc.HealthStub(channel).Check
            # The loop does not run meanwhile; the server's own threads do.
            answers = [check.future(health_pb2.HealthCheckRequest()) for _ in range(calls)]
            for answer in answers:
                answer.add_done_callback(answered)
            await asyncio.wait_for(everybody, 60)
            assert {answer.code() for answer in answers} == {grpc.StatusCode.OK}


@pytest.fixture
def _signals_restored():
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals_restored")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_program_ends_well_on_a_signal(number):
    """SIGTERM and SIGINT set the event; the program then ends with 0."""

    async def main():
        with serving.stop_signals() as stop:
            os.kill(os.getpid(), number)
            async with asyncio.timeout(60):
                await stop.wait()

    assert serving.run_program(main) == 0


def test_program_that_cannot_start_exits_with_one(capfd):
    """A StartError, also out of a task group, becomes a log line and exit code 1."""

    async def fail():
        raise serving.StartError("the port is in use")

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    assert serving.run_program(main) == 1
    assert "the port is in use" in "".join(capfd.readouterr())


def test_program_that_fails_exits_with_one(capfd):
    """Any other exception is told with its traceback, and the exit code is 1."""

    async def main():
        raise KeyError("a mistake")

    assert serving.run_program(main) == 1
    assert "a mistake" in "".join(capfd.readouterr())


def _channel(port):
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")
