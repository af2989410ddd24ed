# SPDX-License-Identifier: Apache-2.0
"""What an Envoy says of itself on its admin socket."""

from __future__ import annotations

import pathlib

import aiohttp


async def requests_received(socket: pathlib.Path) -> int:
    """Requests that its own listeners have taken since it started.

    Raises:
        aiohttp.ClientError: the admin interface does not answer.
    """
    connector = aiohttp.UnixConnector(path=str(socket))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(
            "http://envoy/stats",
            params={"filter": r"^http\..*\.downstream_rq_total$", "format": "json"},
        ) as response,
    ):
        response.raise_for_status()
        listed = (await response.json())["stats"]
    return sum(
        int(one["value"])
        for one in listed
        if "value" in one and not one["name"].startswith("http.admin.")
    )
