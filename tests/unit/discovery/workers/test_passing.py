# SPDX-License-Identifier: Apache-2.0
"""Calls that are passed on, over real gRPC: nobody can tell who answers."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from pilothouse_discovery.workers import passing

SERVICE = "test.Service"
DETAILS = ("grpc-status-details-bin", b"what exactly")


class Behind(grpc.GenericRpcHandler):
    """Answers each message with its own, and notes the metadata of calls."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        refuses = str(handler_call_details.method).endswith("/Refuse")

        async def answer(requests: Any, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            self.heard += [(key, value) for key, value in context.invocation_metadata() or ()]
            if refuses:
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing", (DETAILS,))
            context.set_trailing_metadata((("team", "answers"),))
            async for request in requests:
                await context.write(b"got " + request)

        return grpc.stream_stream_rpc_method_handler(answer)


@pytest.fixture
async def behind() -> Any:
    """Who answers, and a channel to whoever passes calls on to that."""
    end = Behind()
    last, first = grpc.aio.server(handlers=[end]), grpc.aio.server()
    inner = last.add_insecure_port("127.0.0.1:0")
    await last.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{inner}") as between:
        first.add_generic_rpc_handlers((passing.Passing(between, {SERVICE}),))
        outer = first.add_insecure_port("127.0.0.1:0")
        await first.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{outer}") as channel:
                yield end, channel
        finally:
            await first.stop(None)
            await last.stop(None)


async def test_messages_and_metadata_go_through(behind: tuple[Behind, Any]) -> None:
    """Both ways; but for what belongs to a connection, of which there are two."""
    end, channel = behind
    given = (("tenant", "a"), ("te-st", "b"), ("trace-bin", b"\x00"))
    call = channel.unary_unary(f"/{SERVICE}/Ask")(b"this", metadata=given, timeout=30)
    assert await call == b"got this"
    assert ("team", "answers") in [tuple(one) for one in await call.trailing_metadata()]
    assert [one for one in end.heard if one[0] in dict(given)] == list(given)
    names = [name for name, _ in end.heard]
    assert len(names) == len(set(names))


async def test_refusals_go_through(behind: tuple[Behind, Any]) -> None:
    """Status, words and details."""
    _, channel = behind
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(f"/{SERVICE}/Refuse")(b"this", timeout=30)
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.NOT_FOUND,
        "no such thing",
    )
    assert DETAILS in [tuple(one) for one in caught.value.trailing_metadata()]


async def test_other_services_are_nobodys(behind: tuple[Behind, Any]) -> None:
    """They are not there, as far as this server knows."""
    end, channel = behind
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary("/other.Service/Ask")(b"this", timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert end.heard == []
