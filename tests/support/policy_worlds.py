# SPDX-License-Identifier: Apache-2.0
"""DestinationPolicies at work: from their YAML through plan and translation to a real Envoy."""

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping

import aiohttp

from pilothouse.config import objects
from pilothouse.envoy import names, translate
from pilothouse.envoy.gate import gate
from pilothouse.model import keys, secrets, services
from pilothouse.routing import plan
from tests.support import envoy_plans, envoy_static, meshes

PORT = 80
ANYWHERE = services.Locality()
_NOTHING: Mapping[secrets.SecretKey, secrets.TlsSecret] = {}


def at(port: int, place: str = "") -> services.Endpoint:
    """An endpoint on a port of this machine, at REGION/ZONE/SUB-ZONE or a part of it."""
    found: services.Endpoint = meshes.endpoint(envoy_plans.LOOPBACK, port, locality=locality(place))
    return found


def locality(place: str) -> services.Locality:
    """REGION/ZONE/SUB-ZONE or a part of it."""
    region, zone, sub_zone, *_ = *place.split("/"), "", "", ""
    return services.Locality(region=region, zone=zone, sub_zone=sub_zone)


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """A sidecar's Envoy, and the application beside it."""

    envoy: envoy_static.RunningEnvoy
    client: aiohttp.ClientSession

    def ask(
        self, service: str, path: str = "/", method: str = "GET", **headers: str
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A request to a service, as a context manager."""
        return self.client.request(
            method,
            self.envoy.url("http-proxy", path),
            headers={"host": service} | {name.replace("_", "-"): headers[name] for name in headers},
            allow_redirects=False,
        )

    async def reached(self, service: str, path: str = "/", **headers: str) -> str:
        """Which backend answers; else the status."""
        async with self.ask(service, path, **headers) as answer:
            return (await answer.json())["backend"] if answer.status == 200 else str(answer.status)

    async def tally(self, service: str, requests: int, **headers: str) -> Counter[str]:
        """What each of many requests, one after another, reached."""
        return Counter([await self.reached(service, **headers) for _ in range(requests)])

    async def at_once(self, service: str, requests: int, path: str = "/") -> Counter[str]:
        """What each of many requests at once reached."""
        asked = (self.reached(service, path) for _ in range(requests))
        return Counter(await asyncio.gather(*asked))

    async def counter(self, service: str, name: str) -> int:
        """A counter or gauge of a service's cluster."""
        key = plan.ClusterKey(
            direction=plan.Direction.OUTBOUND, port=PORT, service=meshes.service_key(service)
        )
        of = names.stat(names.cluster(key))
        return await self.envoy.counter(f"cluster.{of}.{name}")


@contextlib.asynccontextmanager
async def running(
    endpoints: Mapping[str, Iterable[int | services.Endpoint]],
    policies: Mapping[str, str],
    *more: services.Service | Mapping[keys.ObjectKey, objects.Config],
    locality: services.Locality = ANYWHERE,
    labels: keys.Labels = (),
    held: Mapping[secrets.SecretKey, secrets.TlsSecret] = _NOTHING,
) -> AsyncIterator[World]:
    """A sidecar in a mesh of HTTP services, until the block ends.

    Args:
        endpoints: Ports of this machine where each service is; all services unless in `more`.
        policies: Specs of DestinationPolicies without their service, in YAML flow style without
            the braces, by service.
        more: Services that are no plain HTTP services on port 80, and other config objects.
        locality: Where the sidecar is.
        labels: The sidecar's.
        held: The secrets that there are.
    """
    given = {one.key.name: one for one in more if isinstance(one, services.Service)}
    mesh = meshes.mesh(
        *(given.get(name) or meshes.service(name, meshes.port(PORT)) for name in endpoints),
        *(one for one in more if not isinstance(one, services.Service)),
        *(meshes.policy(name, f"{{service: {name}, {spec}}}") for name, spec in policies.items()),
        endpoints={
            name: [at(port) if isinstance(port, int) else port for port in ports]
            for name, ports in endpoints.items()
        },
    )
    planned = meshes.planned(
        mesh,
        meshes.sidecar(
            bind_address=envoy_plans.LOOPBACK, outbound_port=0, locality=locality, labels=labels
        ),
    )
    snapshot = translate.Translator().snapshot(planned, held)
    assert gate.Gate().report(snapshot).all == (), "the gate would hold what Envoy takes"
    async with (
        envoy_static.running(snapshot) as envoy,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=50)) as client,
    ):
        yield World(envoy, client)
