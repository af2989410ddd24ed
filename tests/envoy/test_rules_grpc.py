# SPDX-License-Identifier: Apache-2.0
"""gRPC routes: real gRPC clients and servers, with a real Envoy between them."""

import contextlib
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


def to(name: str, matches: str = "", more: str = "") -> str:
    """A route to a backend."""
    matching = f"matches: [{matches}], " if matches else ""
    return f"{{{matching}destinations: [{{service: {name}}}]{more}}}"


RULES = {
    "shop": ", ".join(
        (
            to("red", "{service: shop.v1.Cart, method: Add}"),
            to("green", "{service: shop.v1.Cart}"),
            to("blue", "{method: Check}, {headers: [{name: x-user, exact: jason}]}"),
            to("grey"),
        )
    ),
    "failing": to("red", more=", fault: {abort: {grpcStatus: NOT_FOUND}}"),
    "limited": to("red", more=", rateLimit: {requests: 1, per: 1h}"),
}
COLOURS = ("red", "green", "blue", "grey")


class Handler(grpc.GenericRpcHandler):
    """Any method: says who answered."""

    def __init__(self, name: str) -> None:
        self._name = name

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        del handler_call_details

        async def answer(_request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
            return self._name.encode()

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with contextlib.AsyncExitStack() as stack:
        ports = {}
        for name in COLOURS:
            server = grpc.aio.server(handlers=[Handler(name)])
            ports[name] = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            stack.push_async_callback(server.stop, None)
        yield await stack.enter_async_context(rule_worlds.grpc_sidecar(RULES, ports))


async def call(world: rule_worlds.World, host: str, method: str, **metadata: str) -> str:
    """Who answers a call; else the status."""
    target = f"127.0.0.1:{world.envoy.ports[world.listener]}"
    options = [("grpc.default_authority", host)]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        given = [(name.replace("_", "-"), value) for name, value in metadata.items()]
        try:
            answer: bytes = await channel.unary_unary(method)(b"", metadata=given, timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return answer.decode()


@pytest.mark.parametrize(
    ("method", "user", "answered"),
    [
        ("/shop.v1.Cart/Add", "", "red"),
        ("/shop.v1.Cart/Add", "jason", "red"),
        ("/shop.v1.Cart/Remove", "", "green"),
        ("/shop.v1.CartAdmin/Remove", "", "grey"),
        ("/other.Service/Check", "", "blue"),
        ("/other.Service/CheckAll", "", "grey"),
        ("/other.Service/Do", "jason", "blue"),
        ("/other.Service/Do", "", "grey"),
    ],
)
async def test_calls_find_their_routes(
    world: rule_worlds.World, method: str, user: str, answered: str
):
    """A method before its service, a service before a method of any service, then metadata."""
    metadata = {"x_user": user} if user else {}
    assert await call(world, "shop", method, **metadata) == answered


async def test_calls_fail_as_the_route_says(world: rule_worlds.World):
    """With statuses of gRPC."""
    assert await call(world, "failing", "/a.B/C") == "NOT_FOUND"
    assert await call(world, "limited", "/a.B/C") == "red"
    assert await call(world, "limited", "/a.B/C") == "RESOURCE_EXHAUSTED"


async def test_other_requests_are_no_calls(world: rule_worlds.World):
    """They find the service's own route, which has no gRPC fault."""
    assert await world.reached("failing", "/a.B/C", "POST") == "503"  # no endpoints of its own
    assert await call(world, "failing", "/a.B/C") == "NOT_FOUND"
