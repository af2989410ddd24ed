# SPDX-License-Identifier: Apache-2.0
"""Applications for tests: small HTTP servers that say who they are and what they were asked."""

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@dataclasses.dataclass(slots=True)
class Backend:
    """One server. It answers with JSON: its name, and the request's method, path and headers.

    Of several headers with one name ``headers`` has the last, ``all`` has all.

    The path says how: ``/hold`` answers after `release`, ``/drop`` reads the request and then cuts
    the connection, ``/status/503`` answers with that status, ``/echo`` echoes a WebSocket.
    """

    name: str
    port: int = 0
    requests: list[str] = dataclasses.field(default_factory=list)
    """``METHOD PATH`` of each request received, in order."""
    hosts: dict[str, str] = dataclasses.field(default_factory=dict)
    """The host that was asked for, by path; the last one."""
    status: int = 200
    """What it answers with, unless the path says."""
    release: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request."""
        self.requests.append(f"{request.method} {request.raw_path}")
        self.hosts[request.raw_path] = request.host
        await request.read()
        if request.path.endswith("/echo"):
            return await _echo(request)
        if request.path.endswith("/hold"):
            await self.release.wait()
        if request.path.endswith("/drop") and request.transport is not None:
            request.transport.abort()
        _, status, code = request.path.rpartition("/status/")
        return web.json_response(
            {
                "backend": self.name,
                "method": request.method,
                "path": request.raw_path,
                "headers": {name.lower(): value for name, value in request.headers.items()},
                "all": {name.lower(): request.headers.getall(name) for name in request.headers},
            },
            status=int(code) if status else self.status,
            headers={"server": "the-application"},
        )


async def _echo(request: web.BaseRequest) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data)
    return socket


@asynccontextmanager
async def backend(name: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Backend]:
    """A backend on a free port of 127.0.0.1, until the block ends; in clear text unless told."""
    served = Backend(name=name)
    runner = web.ServerRunner(web.Server(served.answer), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        served.port = runner.addresses[0][1]
        yield served
    finally:
        served.release.set()
        await runner.cleanup()
