# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server that says who it is, and calls other services when its settings say so.

Environment: SERVICE, VERSION, POD_NAME say who it is; BIND_ADDRESS (default 127.0.0.1) and PORT
(default 8080) where it listens; UPSTREAMS which paths it answers by calling somebody, as
``/path=http://host:port/path`` separated by blanks; HTTP_PROXY is the sidecar that it calls
through.
"""

import asyncio
import json
import os
import signal

import aiohttp
from aiohttp import web

TRACE_HEADERS = ("traceparent", "tracestate", "x-request-id", "x-user")
"""What a program must pass on so that a trace, and rules about headers, span several hops."""
UPSTREAM_TIMEOUT = aiohttp.ClientTimeout(total=10)


def identity() -> dict[str, str]:
    """Who this process is."""
    return {
        "service": os.environ.get("SERVICE", "echo"),
        "version": os.environ.get("VERSION", ""),
        "pod": os.environ.get("POD_NAME", ""),
    }


def upstreams() -> dict[str, str]:
    """Path to the URL that is called for it."""
    pairs = (entry.split("=", 1) for entry in os.environ.get("UPSTREAMS", "").split())
    return dict(pairs)


class Echo:
    """The request handler and the client it calls others with."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        """Take the session that upstream calls use."""
        self._session = session
        self._identity = identity()
        self._upstreams = upstreams()
        self._proxy = os.environ.get("HTTP_PROXY") or None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer with who we are, what we saw and, for an upstream's path, what it answered."""
        answer: dict[str, object] = {
            **self._identity,
            "method": request.method,
            "path": request.path,
            "host": request.host,
            "headers": {name.lower(): value for name, value in sorted(request.headers.items())},
        }
        status = 200
        url = self._upstreams.get(request.path)
        if url is not None:
            status, answer["upstream"] = await self._call(url, request)
        return web.json_response(
            answer, status=status, dumps=lambda value: json.dumps(value, sort_keys=True)
        )

    async def _call(self, url: str, request: web.Request) -> tuple[int, object]:
        headers = {name: request.headers[name] for name in TRACE_HEADERS if name in request.headers}
        try:
            async with self._session.get(url, headers=headers, proxy=self._proxy) as response:
                text = await response.text()
                failed = response.status >= 400
                body = json.loads(text) if response.content_type == "application/json" else text
                return (502 if failed else 200), {
                    "url": url,
                    "status": response.status,
                    "body": body,
                }
        except (aiohttp.ClientError, TimeoutError) as error:
            return 502, {"url": url, "error": f"{type(error).__name__}: {error}"}


async def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with aiohttp.ClientSession(timeout=UPSTREAM_TIMEOUT) as session:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", Echo(session).handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        host, port = (
            os.environ.get("BIND_ADDRESS", "127.0.0.1"),
            int(os.environ.get("PORT", "8080")),
        )
        await web.TCPSite(runner, host, port).start()
        await stop.wait()
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
