# SPDX-License-Identifier: Apache-2.0
"""Asking the processes of a mesh over HTTP: are you ready, what do you know."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=2)


def session() -> aiohttp.ClientSession:
    """A session for probes."""
    return aiohttp.ClientSession(timeout=_TIMEOUT)


async def probe(url: str, client: aiohttp.ClientSession) -> tuple[bool, str]:
    """Whether it is ready, and what it answered.

    Args:
        url: answers 200 when it is ready; or ``tcp:HOST:PORT``, which is ready when it is open.
        client: a session.
    """
    try:
        if url.startswith("tcp:"):
            host, _, port = url.removeprefix("tcp:").rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return True, "open"
        async with client.get(url) as response:
            return response.status == 200, " ".join((await response.text()).split())
    except (OSError, aiohttp.ClientError, TimeoutError) as error:
        return False, f"{type(error).__name__}: {error}"


async def page(url: str, client: aiohttp.ClientSession) -> Any:
    """A debug page's JSON; None when it cannot be had."""
    try:
        async with client.get(url) as response:
            return await response.json() if response.status == 200 else None
    except (OSError, aiohttp.ClientError, TimeoutError, ValueError):
        return None
