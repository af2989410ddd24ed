# SPDX-License-Identifier: Apache-2.0
"""The small HTTP server beside every gRPC one: `/livez`, `/readyz`, `/metrics` and debug pages.

All bodies are JSON but that of `/metrics`, which is Prometheus text. Nothing here takes a request
body or changes anything.
"""

import contextlib
import inspect
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from pilothouse.adapters.rpc import serving

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that has to be so for a program to be alive, or ready."""

    name: str
    ok: bool
    message: str = ""
    """For people: what is missing, or what is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What the server answers with; everything is asked anew for each request."""

    live: Callable[[], Sequence[Check]] = lambda: ()
    """Behind `/livez`: 200 when all hold, else 503. That it answers at all is the first check."""
    ready: Callable[[], Sequence[Check]] = lambda: ()
    """Behind `/readyz`, likewise."""
    metrics: Callable[[], str | bytes] = lambda: ""
    """Behind `/metrics`, in Prometheus' text format (`prometheus_client.generate_latest` fits)."""
    debug: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    """Path -> what gives a JSON value, or a promise of one; `/debug` lists them."""
    routes: Iterable[web.AbstractRouteDef] = ()
    """Whatever else a program serves on this port."""


@contextlib.asynccontextmanager
async def http_server(
    address: serving.Address,
    pages: Pages,
    *,
    setting: str,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve inside the block; the value is the port. Raises serving.StartError."""
    runner = web.AppRunner(_application(pages), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        # Without a second server on the port going unseen: aiohttp reuses addresses, not ports.
        site = web.TCPSite(runner, address.host, address.port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise serving.cannot_listen(address, setting=setting, error=error) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _application(pages: Pages) -> web.Application:
    application = web.Application()
    application.router.add_get("/livez", _checks_page(pages.live))
    application.router.add_get("/readyz", _checks_page(pages.ready))
    application.router.add_get("/metrics", _metrics_page(pages.metrics))
    application.router.add_get("/debug", _json_page(lambda: {"pages": sorted(pages.debug)}))
    for path, answer in pages.debug.items():
        application.router.add_get(path, _json_page(answer))
    application.add_routes(pages.routes)
    return application


Handler = Callable[[web.Request], Any]


def _checks_page(ask: Callable[[], Sequence[Check]]) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        checks = ask()
        good = all(each.ok for each in checks)
        body = {
            "ok": good,
            "checks": [
                {"name": each.name, "ok": each.ok, "message": each.message} for each in checks
            ],
        }
        return _json(body, status=200 if good else 503)

    return answer


def _json_page(ask: Callable[[], Any]) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        value = ask()
        return _json(await value if inspect.isawaitable(value) else value)

    return answer


def _metrics_page(ask: Callable[[], str | bytes]) -> Handler:
    async def answer(_request: web.Request) -> web.Response:
        text = ask()
        body = text.encode() if isinstance(text, str) else text
        return web.Response(body=body, headers={"Content-Type": METRICS_CONTENT_TYPE})

    return answer


def _json(value: Any, *, status: int = 200) -> web.Response:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return web.Response(text=text, status=status, content_type="application/json")
