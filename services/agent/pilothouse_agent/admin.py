# SPDX-License-Identifier: Apache-2.0
"""Asking the running Envoy how it is, on its admin page."""

import contextlib
from collections.abc import AsyncIterator

import aiohttp

from pilothouse.envoy import bootstrap

_TIMEOUT = aiohttp.ClientTimeout(total=2)


class Admin:
    """Envoy's admin page at one address."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def state(self) -> str:
        """LIVE, PRE_INITIALIZING, INITIALIZING or DRAINING; "" when nobody answers.

        `/server_info`, because the gauge `server.state` reads 0, which means LIVE, before the
        first flush of statistics.
        """
        try:
            async with self._session.get(f"{self._base}/server_info") as response:
                content = await response.json(content_type=None)
        except (aiohttp.ClientError, OSError, ValueError):
            return ""
        return str(content.get("state", "")) if isinstance(content, dict) else ""


@contextlib.asynccontextmanager
async def admin(address: bootstrap.Address) -> AsyncIterator[Admin]:
    """The admin page at `address`, whether or not somebody serves it at the moment."""
    connector: aiohttp.BaseConnector
    if isinstance(address, bootstrap.UnixSocket):
        connector, base = aiohttp.UnixConnector(address.path), "http://envoy"
    else:
        connector, base = aiohttp.TCPConnector(), f"http://{address}"
    async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
        yield Admin(session, base)
