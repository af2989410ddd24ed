# SPDX-License-Identifier: Apache-2.0
"""Whether the proxy may be given traffic, and if not, what is missing.

Ready means that the running Envoy has accepted clusters and listeners once, and says that it is
LIVE. Losing discovery later does not matter: Envoy keeps what it has. Stopping does, at once.
"""

import asyncio
import contextlib
from typing import Any, Protocol

import structlog

from pilothouse_agent import admin, observation, relay

_LOG = structlog.get_logger(__name__)

_WHILE_NOT_READY = 0.1
_WHILE_READY = 1.0


class Changed(Protocol):
    """Is told when the verdict turns."""

    async def __call__(self, *, ready: bool) -> None:
        """The new verdict."""


class Readiness:
    """Judges, from what the relay saw and what Envoy says."""

    def __init__(
        self,
        *,
        observer: observation.Observer,
        relay: relay.Relay,
        envoy: admin.Admin,
        address: str,
    ) -> None:
        self._observer = observer
        self._relay = relay
        self._envoy = envoy
        self._address = address
        self._stopping = asyncio.Event()
        self.ready = False
        """The last verdict."""

    def stop(self) -> None:
        """From now on the answer is no."""
        self._stopping.set()
        self.ready = False

    async def report(self) -> dict[str, Any]:
        """The verdict and its reasons, as /readyz shows them."""
        state = await self._envoy.state()
        missing = self._missing(state)
        self.ready = not missing
        return {
            "ready": self.ready,
            "missing": missing,
            "envoy": state or "not answering",
            "discovery": {"address": self._address, "connected": self._relay.connected},
            "types": {
                name: {
                    "state": str(status.state),
                    "accepted": status.accepted,
                    "rejected": status.rejected,
                    "last_error": status.error,
                }
                for name, status in sorted(self._observer.types.items())
            },
        }

    def _missing(self, state: str) -> list[str]:
        if self._stopping.is_set():
            return ["the agent is stopping"]
        missing = self._observer.missing()
        if missing and not self._relay.connected:
            missing.append(f"discovery: not reachable at {self._address}")
        if state != "LIVE":
            missing.append(f"envoy: {state or 'not answering'}")
        return missing

    async def watch(self, changed: Changed) -> None:
        """Keep the verdict fresh, tell `changed` and log when it turns."""
        told: bool | None = None
        while not self._stopping.is_set():
            report = await self.report()
            if self.ready is not told:
                told = self.ready
                await changed(ready=told)
                if told:
                    _LOG.info("ready")
                else:
                    _LOG.info("not ready", missing=report["missing"])
            pause = _WHILE_READY if told else _WHILE_NOT_READY
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
        await changed(ready=self.ready)
