# SPDX-License-Identifier: Apache-2.0
"""Plans over a real xDS stream: an Envoy that holds just what a test writes down."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping

from pilothouse.envoy import translate
from pilothouse.model import proxy, secrets
from pilothouse.routing import plan
from tests.support import fleet, waiting, xds_server


@dataclasses.dataclass(slots=True)
class Wired:
    """An Envoy on an xDS server."""

    host: xds_server.Host
    envoy: fleet.Proxy
    translator: translate.Translator
    held: dict[secrets.SecretKey, secrets.TlsSecret] = dataclasses.field(default_factory=dict)

    async def give(self, *layers: plan.Layer, wait: bool = True) -> None:
        """Hand out a plan, and wait until all of it is acknowledged; nothing may be refused."""
        planned = plan.ProxyPlan(layers=layers)
        self.host.give(self.translator.snapshot(planned, self.held))
        if wait:
            await waiting.eventually(lambda: self.host.in_sync, what="all is acknowledged")
            assert self.host.refused == []

    async def updates(self) -> Mapping[str, int]:
        """What became of listeners so far: how many were added, modified, updated in place."""
        stats = ("added", "modified", "in_place_updated", "removed")
        return {one: await self.envoy.stat(f"listener_manager.listener_{one}") for one in stats}


@contextlib.asynccontextmanager
async def wired(variant: str = "delta") -> AsyncIterator[Wired]:
    """An Envoy that holds nothing yet."""
    host = xds_server.Host()
    async with (
        fleet.fleet() as made,
        xds_server.serving_xds(host, made.grpc),
        made.envoy(f"gateway-{variant}", proxy.Role.GATEWAY) as envoy,
    ):
        yield Wired(host, envoy, translate.Translator())
