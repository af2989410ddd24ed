# SPDX-License-Identifier: Apache-2.0
"""The small HTTP server beside every gRPC one."""

import socket

import aiohttp
import pytest

from pilothouse.adapters.rpc import serving, web

LOCAL = serving.Address("127.0.0.1", 0)


async def _get(port, path):
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        body = await (answer.text() if path == "/metrics" else answer.json())
        return answer.status, answer.content_type, body


async def test_ready_page_tells_each_check():
    """/readyz is 503 while one check fails and 200 after, and names every check in JSON."""
    checks = [web.Check(name="discovery", ok=False, message="not synced yet")]
    pages = web.Pages(ready=lambda: checks)
    async with web.http_server(LOCAL, pages, setting="x") as port:
        assert await _get(port, "/readyz") == (
            503,
            "application/json",
            {
                "ok": False,
                "checks": [{"name": "discovery", "ok": False, "message": "not synced yet"}],
            },
        )
        checks[0] = web.Check(name="discovery", ok=True)
        status, _, body = await _get(port, "/readyz")
        assert (status, body["ok"]) == (200, True)


async def test_live_page_without_checks_is_fine():
    """/livez answers 200: that it answers is the check."""
    async with web.http_server(LOCAL, web.Pages(), setting="x") as port:
        assert await _get(port, "/livez") == (200, "application/json", {"ok": True, "checks": []})


async def test_metrics_are_prometheus_text():
    """/metrics hands the text through under Prometheus' content type."""
    pages = web.Pages(metrics=lambda: "pilothouse_things 1\n")
    async with web.http_server(LOCAL, pages, setting="x") as port:
        assert await _get(port, "/metrics") == (200, "text/plain", "pilothouse_things 1\n")


async def test_debug_pages_are_listed_and_answer_json():
    """/debug lists the pages; each gives its JSON value of now."""
    pages = web.Pages(debug={"/debug/things": lambda: ["a"]})
    async with web.http_server(LOCAL, pages, setting="x") as port:
        assert (await _get(port, "/debug"))[2] == {"pages": ["/debug/things"]}
        assert (await _get(port, "/debug/things"))[2] == ["a"]


async def test_taken_port_names_address_and_setting():
    """As for gRPC: a StartError says which address, and by which setting to change it."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        address = serving.Address("127.0.0.1", busy.getsockname()[1])
        with pytest.raises(serving.StartError) as caught:
            async with web.http_server(address, web.Pages(), setting="--http-address"):
                pass
    assert str(caught.value) == (f"cannot listen on {address} (--http-address): the port is in use")
