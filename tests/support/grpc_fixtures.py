# SPDX-License-Identifier: Apache-2.0
"""pytest-grpc's fixtures for `grpc.aio` servicers: import both names into a test module.

pytest-grpc runs a synchronous server, which cannot serve `async def`, on a TCP port that it leaves
open. These two take the place of its own; `grpc_stub` and the rest then work as it says.
Good for unary services. Streams are better tested with a client on the test's own loop.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest


class AioServerThread:
    """Answers to what pytest-grpc calls on a `grpc.Server`, with a `grpc.aio` one on a thread."""

    def __init__(self) -> None:
        self._setup: list[Callable[[grpc.aio.Server], object]] = []
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Called by the generated `add_..._to_server`."""
        self._setup.append(lambda server: server.add_generic_rpc_handlers(handlers))

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Called by the generated `add_..._to_server`."""
        self._setup.append(lambda server: server.add_registered_method_handlers(service, handlers))

    def add_insecure_port(self, address: str) -> None:
        """Listen there once started."""
        self._setup.append(lambda server: server.add_insecure_port(address))

    def start(self) -> None:
        """Return when the server listens."""
        self._thread.start()
        if not self._started.wait(timeout=10):
            pytest.fail("the gRPC server did not start")

    def stop(self, grace: float | None = None) -> None:
        """Return when the server's thread has ended."""
        self._grace = grace
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server()
        for step in self._setup:
            step(server)
        await server.start()
        self._started.set()
        await self._stop.wait()
        await server.stop(self._grace)


@pytest.fixture(scope="module")
def grpc_addr(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Unix socket: no port to race for, none to leave open."""
    return f"unix:{tmp_path_factory.mktemp('grpc')}/s"


@pytest.fixture(scope="module")
def _grpc_server() -> AioServerThread:
    return AioServerThread()
