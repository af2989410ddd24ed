# SPDX-License-Identifier: Apache-2.0
"""Discovery, ingress, egress and proxies in any order of start, and with sources that die.

A proxy that needs a source waits for it and gets no half of its configuration; whoever does not
need it never notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from pilothouse.model import keys, proxy
from tests.support import backends, fleet, programs, waiting

pytestmark = pytest.mark.envoy

ROOT = "pilothouse-system"
INGRESS_PORT, EGRESS_PORT, GATEWAY_PORT = 15031, 15032, 8080
SIDECARS = [f"sidecar-{variant}" for variant in fleet.VARIANTS]
GATEWAYS = [f"gateway-{variant}" for variant in fleet.VARIANTS]
INGRESS = """
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: pilothouse}
spec: {controller: pilothouse.dev/ingress}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: app}
spec:
  ingressClassName: pilothouse
  rules:
  - host: app.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: app, port: {name: http}}}}
"""


@dataclasses.dataclass(slots=True)
class Parts:
    """What can be started, by name, and what runs."""

    mesh: fleet.Fleet
    app: backends.Backend
    outside: backends.Backend
    stack: contextlib.AsyncExitStack
    running: dict[str, programs.Program] = dataclasses.field(default_factory=dict)
    envoys: dict[str, fleet.Proxy] = dataclasses.field(default_factory=dict)
    numbers: Callable[[], int] = itertools.count(1).__next__

    @property
    def egress_gateway(self) -> str:
        """Address of the egress gateway's proxy."""
        return f"127.{self.mesh.block.number}.3.1"

    def write(self, *, external: bool = True) -> None:
        """A service, an Ingress to it, and a host outside that is reached by the gateway."""
        files = {
            "app.yaml": fleet.join(fleet.service("app"), fleet.pod("app", "v1", self.app.port)),
            "ingress.yaml": INGRESS,
            "gateway.yaml": self._gateway(),
        }
        if external:
            files["outside.yaml"] = self.external()
        for name, text in files.items():
            (self.mesh.folder / name).write_text(text)

    def _gateway(self) -> str:
        labels = "{pilothouse.dev/gateway: egress}"
        return (
            "apiVersion: v1\nkind: Service\n"
            f"metadata: {{name: egress-gateway, namespace: {ROOT}}}\n"
            f"spec: {{selector: {labels}, ports: [{{name: http, port: {GATEWAY_PORT}}}]}}\n"
            f"---\napiVersion: v1\nkind: Pod\n"
            f"metadata: {{name: egress-gateway, namespace: {ROOT}, labels: {labels}}}\n"
            f"spec: {{containers: []}}\nstatus: {{podIP: {self.egress_gateway}}}\n"
        )

    def external(self) -> str:
        """The host outside."""
        return (
            "apiVersion: pilothouse.dev/v1alpha1\nkind: ExternalService\n"
            "metadata: {name: outside}\nspec:\n  hosts: [outside.example]\n"
            f"  ports: [{{number: 80, targetPort: {self.outside.port}}}]\n"
            "  resolution: STATIC\n  endpoints: [{address: 127.0.0.1}]\n"
            "  throughEgressGateway: true\n"
        )

    async def start(self, name: str) -> None:
        """Start a part; it need not be ready afterwards."""
        host = self.mesh.block.control
        match name:
            case "discovery":
                await self.mesh.start(
                    f"ingress={host}:{INGRESS_PORT}", f"egress={host}:{EGRESS_PORT}"
                )
            case "ingress" | "egress":
                port = INGRESS_PORT if name == "ingress" else EGRESS_PORT
                flags = ["--config", str(self.mesh.folder)] if name == "ingress" else []
                addresses = (
                    "--grpc-address",
                    f"{host}:{port}",
                    "--http-address",
                    f"{host}:{port + 10}",
                )
                self.running[name] = await self.stack.enter_async_context(
                    programs.run(
                        f"pilothouse_{name}",
                        *flags,
                        *addresses,
                        "--discovery-address",
                        self.mesh.grpc,
                        folder=self.mesh.home,
                    )
                )
            case "proxies":
                for each in (*SIDECARS, *GATEWAYS, "egress"):
                    await self.proxy(each)

    async def proxy(self, name: str) -> fleet.Proxy:
        """Start a sidecar-*, a gateway-* or the egress gateway's proxy."""
        if name.startswith("sidecar"):
            made = self.mesh.envoy(name, proxy.Role.SIDECAR, ready=False)
        else:
            kind = "egress" if name == "egress" else "ingress"
            made = self.mesh.envoy(
                name,
                proxy.Role.GATEWAY,
                labels=keys.labels(**{"pilothouse.dev/gateway": kind}),
                namespace=ROOT,
                address=self.egress_gateway if name == "egress" else "",
                port=GATEWAY_PORT,
                ready=False,
            )
        self.envoys[name] = await self.stack.enter_async_context(made)
        return self.envoys[name]

    async def get(self, via: str, host: str) -> str:
        """Who answers a request by a proxy; a status when it is no application."""
        one = self.envoys[via]
        at = f"http://{one.address}:{one.port}"
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            request = (
                session.get(f"http://{host}/", proxy=at)
                if one.role is proxy.Role.SIDECAR
                else session.get(f"{at}/", headers={"host": host})
            )
            async with request as answer:
                if answer.status != 200:
                    return str(answer.status)
                return str((await answer.json())["backend"])

    async def answers(self, via: str, host: str, wanted: str, deadline: float = 20) -> None:
        """Wait until a request by a proxy is answered so."""

        async def answered() -> bool:
            assert await self.get(via, host) == wanted
            return True

        await waiting.eventually(answered, deadline, what=f"{host} by {via} is {wanted}")

    async def all_work(self, deadline: float = 20) -> None:
        """Wait until every proxy carries what it should."""
        for name in GATEWAYS:
            await self.answers(name, "app.example", "app", deadline)
        for name in SIDECARS:
            await self.answers(name, "app", "app", deadline)
            await self.answers(name, "outside.example", "outside", deadline)


@contextlib.asynccontextmanager
async def parts(*, external: bool = True) -> AsyncIterator[Parts]:
    """Everything, not started; all that was started is gone after the block."""
    async with (
        backends.backend("app") as app,
        backends.backend("outside") as outside,
        fleet.fleet() as mesh,
        contextlib.AsyncExitStack() as stack,
    ):
        made = Parts(mesh, app, outside, stack)
        made.write(external=external)
        yield made


@pytest.mark.parametrize(
    "order",
    [
        ("discovery", "ingress", "egress", "proxies"),
        ("proxies", "egress", "ingress", "discovery"),
        ("ingress", "proxies", "discovery", "egress"),
    ],
    ids="-".join,
)
async def test_every_order_of_start_ends_well(order: tuple[str, ...]) -> None:
    """Whoever comes first waits for the others, and none has to be started again."""
    async with parts() as made:
        for name in order:
            await made.start(name)
        await made.all_work()


async def test_only_those_wait_who_need_what_is_missing() -> None:
    """A gateway waits for ingress and is served when it comes; sidecars are served before.

    That some host goes through an egress gateway that was never heard of is bad for this host only.
    """
    async with parts(external=False) as made:
        await made.start("discovery")
        await made.start("proxies")
        for name in SIDECARS:
            await made.answers(name, "app", "app")
        for name in GATEWAYS:
            assert not await made.envoys[name].live()

        # Those that are served already go on being served.
        await made.mesh.apply({"outside.yaml": made.external()}, wait=False)
        for name in SIDECARS:
            await made.answers(name, "outside.example", "503")
        async with backends.backend("other") as other:
            pods = fleet.join(fleet.service("app"), fleet.pod("app", "v1", other.port))
            await made.mesh.apply({"app.yaml": pods}, wait=False)
            for name in SIDECARS:
                await made.answers(name, "app", "other")

            for name in ("ingress", "egress"):
                await made.start(name)
                await made.running[name].ready()
            began = asyncio.get_running_loop().time()
            for name in GATEWAYS:
                await made.answers(name, "app.example", "other")
            assert asyncio.get_running_loop().time() - began < 2
            for name in SIDECARS:
                await made.answers(name, "outside.example", "outside")


async def test_a_source_that_dies_leaves_what_it_said() -> None:
    """Requests go on without it, changes too, and its return costs no response."""
    async with parts() as made:
        for name in ("discovery", "ingress", "egress", "proxies"):
            await made.start(name)
        await made.all_work()
        await made.mesh.settled()
        for name in ("ingress", "egress"):
            await made.running[name].stop(9)
        await made.all_work()

        weights = {"app-rule.yaml": fleet.rule("app", {"v1": 1})}
        await made.mesh.apply(weights)
        await made.all_work()

        before = await made.mesh.responses()
        for name in ("ingress", "egress"):
            await made.start(name)
            await made.running[name].ready()

        def told() -> bool:
            seen = {client.proxy.id.name for client in made.mesh.discovery.clients.sources}
            return seen == {"ingress", "egress"}

        await waiting.eventually(told)
        await made.mesh.settled()
        await made.all_work()
        after = await made.mesh.responses()
        for kind in (fleet.CDS, fleet.EDS, fleet.LDS, fleet.RDS):
            assert after[kind] == before[kind], kind
