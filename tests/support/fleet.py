# SPDX-License-Identifier: Apache-2.0
"""A discovery in the test's process, and real Envoys of both variants that it steers.

Every fleet has a block of loopback addresses of its own. A folder holds what is in force; `apply`
changes it and returns when every connected proxy has acknowledged what follows from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import aiohttp

from pilothouse.adapters import process, telemetry
from pilothouse.cli.local import addresses
from pilothouse.config import codec, documents, schema
from pilothouse.envoy import bootstrap
from pilothouse.kubernetes import services as manifests
from pilothouse.model import keys, mapped, proxy, services
from pilothouse_discovery import app, settings
from tests.support import folders, waiting

VARIANTS = ("delta", "sotw")
SIDECAR_PORT, GATEWAY_PORT, GRPC_PORT, HTTP_PORT = 15001, 18080, 15010, 15014
CDS, EDS, LDS, RDS = (
    f"type.googleapis.com/envoy.config.{name}"
    for name in (
        "cluster.v3.Cluster",
        "endpoint.v3.ClusterLoadAssignment",
        "listener.v3.Listener",
        "route.v3.RouteConfiguration",
    )
)


@dataclasses.dataclass(slots=True)
class Proxy:
    """A running Envoy."""

    name: str
    address: str
    role: proxy.Role
    port: int
    """Where it takes requests."""
    child: process.Supervisor
    admin: aiohttp.ClientSession
    log: Path

    async def page(self, path: str) -> str:
        """A page of its admin interface; OSError while there is none."""
        async with self.admin.get(f"http://admin{path}") as answer:
            return await answer.text()

    async def stat(self, name: str) -> int:
        """A counter or gauge; 0 when there is none."""
        listed = json.loads(await self.page("/stats?format=json"))["stats"]
        return next((int(each["value"]) for each in listed if each.get("name") == name), 0)

    async def clusters(self) -> dict[str, set[str]]:
        """The clusters in use, each with its endpoints, HOST:PORT."""
        listed = json.loads(await self.page("/clusters?format=json")).get("cluster_statuses", [])
        return {
            each["name"]: {
                "{address}:{port_value}".format(**host["address"]["socket_address"])
                for host in each.get("host_statuses", [])
                if "socket_address" in host["address"]
            }
            for each in listed
        }

    async def live(self) -> bool:
        """Whether Envoy has begun to serve."""
        if self.child.returncode is not None:
            raise RuntimeError(f"Envoy ended with {self.child.returncode}:\n{self.log.read_text()}")
        try:
            return (await self.page("/ready")).strip() == "LIVE"
        except aiohttp.ClientError:
            return False


class Fleet:
    """A folder, a discovery that reads it, and proxies."""

    def __init__(self, home: Path, block: addresses.Block) -> None:
        self.home = home
        self.block = block
        self.folder = home / "config"
        self.folder.mkdir()
        self.proxies: list[Proxy] = []
        self.server: app.Discovery | None = None
        self._numbers = itertools.count(1)
        self._sources: set[str] = set()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def grpc(self) -> str:
        """HOST:PORT of discovery, before and after a restart."""
        return f"{self.block.control}:{GRPC_PORT}"

    @property
    def discovery(self) -> app.Discovery:
        """The running discovery."""
        assert self.server is not None
        return self.server

    # Discovery

    async def start(self, *sources: str, sync_grace: float = 10.0) -> None:
        """Start discovery, which reads from sources NAME=HOST:PORT; returns once it has built."""
        self._sources = {each.partition("=")[0] for each in sources}
        chosen = settings.Settings(
            config=self.folder,
            grpc_address=self.grpc,
            http_address=f"{self.block.control}:{HTTP_PORT}",
            source=sources,
            sync_grace=sync_grace,
            shutdown_grace=0.2,
        )
        self.server = app.Discovery(chosen, telemetry.Telemetry.off())
        self._stop = asyncio.Event()
        task = self._task = asyncio.create_task(self.server.run(self._stop), name="discovery")
        engine = self.server.engine
        await waiting.eventually(lambda: engine.world is not None or task.done())
        if task.done():
            task.result()

    async def stop(self) -> None:
        """Stop discovery."""
        if self._task is not None:
            self._stop.set()
            task, self._task, self.server = self._task, None, None
            await task

    async def get(self, path: str) -> str:
        """A page of discovery."""
        url = f"http://{self.block.control}:{HTTP_PORT}{path}"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            return await answer.text()

    async def responses(self) -> dict[str, int]:
        """How many responses discovery has written so far, by type URL."""
        found: dict[str, int] = {}
        for line in (await self.get("/metrics")).splitlines():
            if line.startswith("pilot_xds_pushes_total{"):
                labels, _, value = line.rpartition(" ")
                found[labels.split('"')[1]] = int(float(value))
        return found

    # Configuration

    async def apply(self, changes: Mapping[str, str | None], *, wait: bool = True) -> None:
        """Write files, or remove those that are None; wait until the change is acknowledged."""
        for name, text in changes.items():
            path = self.folder / name
            if text is None:
                path.unlink(missing_ok=True)
            else:
                folders.replace(path, text)
        if wait:
            await self.settled()

    async def settled(self, deadline: float = 45.0) -> None:
        """Wait until what the folder says is in force, and acknowledged by every proxy."""
        seen = 0

        def done() -> bool:
            nonlocal seen
            assert self._read() == self._wanted()
            clients = self.discovery.clients.proxies
            expected = sum(one.child.returncode is None for one in self.proxies)
            assert len(clients) == expected, [client.id for client in clients]
            late = [client.id for client in clients if not client.in_sync]
            assert not late, late
            engine = self.discovery.engine
            # Envoy acknowledges before its workers have taken note.
            seen += engine.handed_out is engine.built
            return seen > 1

        await waiting.eventually(done, deadline, what="the change is acknowledged everywhere")

    def _wanted(self) -> tuple[object, ...]:
        found: list[documents.RawDocument] = []
        for path in sorted(self.folder.glob("*.yaml")):
            found += documents.load(path.read_text(), location=path.name)[0]
        known, _ = manifests.registry_state(found)
        configs: dict[keys.ObjectKey, bytes] = {}
        for document in found:
            if document.manifest.get("apiVersion") == schema.API_VERSION:
                config, _ = codec.from_manifest(document, source="store")
                if config is not None:
                    configs[config.key] = config.spec.SerializeToString(deterministic=True)
        return known.services, known.endpoints, configs

    def _read(self) -> tuple[object, ...]:
        world = self.discovery.engine.world
        assert world is not None
        configs = {
            key: config.spec.SerializeToString(deterministic=True)
            for key, config in world.observed.items()
            if config.source not in self._sources
        }
        return world.state.services, world.state.endpoints, configs

    # Proxies

    @contextlib.asynccontextmanager
    async def envoy(
        self,
        name: str,
        role: proxy.Role,
        *,
        labels: keys.Labels = (),
        namespace: str = "default",
        locality: services.Locality = services.Locality(),
        address: str = "",
        port: int = 0,
        ready: bool = True,
        maps: tuple[str, ...] = (),
    ) -> AsyncIterator[Proxy]:
        """An Envoy without an agent; `name` ends in its variant.

        `port` is the one that its gateway has, if that is another than `gateway` gives. `maps` are
        mapped ports without the address.
        """
        address = address or f"127.{self.block.number}.2.{next(self._numbers)}"
        folder = self.home / name
        folder.mkdir()
        socket, config, log = folder / "admin", folder / "bootstrap.json", folder / "log"
        parameters = bootstrap.BootstrapParameters(
            node_id=proxy.NodeId(role=role, address=address, name=name, namespace=namespace),
            cluster=f"{name}.{namespace}",
            version="test",
            discovery=bootstrap.parse_address(self.grpc),
            admin=bootstrap.UnixSocket(str(socket)),
            labels=labels,
            locality=locality,
            bind_address=address,
            outbound_port=SIDECAR_PORT,
            mapped=mapped.parse_all(tuple(f"{address}:{one}" for one in maps)),
            delta=not name.endswith("sotw"),
        )
        config.write_text(bootstrap.to_json(bootstrap.build(parameters)))
        options = ("--disable-hot-restart", "--concurrency", "1", "-l", "warning")
        with log.open("wb") as output:
            child = process.Supervisor(
                (str(process.find_envoy()), "-c", str(config), *options), output=output.fileno()
            )
            await child.start()
        try:
            connector = aiohttp.UnixConnector(path=str(socket))
            async with aiohttp.ClientSession(connector=connector) as admin:
                port = port or (SIDECAR_PORT if role is proxy.Role.SIDECAR else GATEWAY_PORT)
                started = Proxy(name, address, role, port, child, admin, log)
                self.proxies.append(started)
                if ready:
                    await waiting.eventually(started.live, 20, what=f"{name} is ready")
                yield started
        except AssertionError as error:
            error.add_note(f"{name}:\n{log.read_text()[-2000:]}")
            raise
        finally:
            self.proxies[:] = [one for one in self.proxies if one.child is not child]
            await child.stop(grace=3)

    @contextlib.asynccontextmanager
    async def envoys(
        self, *roles: proxy.Role, labels: keys.Labels = ()
    ) -> AsyncIterator[list[Proxy]]:
        """An Envoy of each role and variant, started together."""
        async with contextlib.AsyncExitStack() as stack:
            made = [
                await stack.enter_async_context(
                    self.envoy(f"{role}-{variant}", role, labels=labels, ready=False)
                )
                for role in roles
                for variant in VARIANTS
            ]
            for one in made:
                await waiting.eventually(one.live, 20, what=f"{one.name} is ready")
            yield made


@contextlib.asynccontextmanager
async def fleet(files: Mapping[str, str] | None = None) -> AsyncIterator[Fleet]:
    """A fleet without discovery and proxies yet; nothing of it is left after the block."""
    held = addresses.HeldBlock.take()
    home = Path(tempfile.mkdtemp(prefix="fleet-"))  # short: a Unix socket's path has 107 bytes
    made = Fleet(home, held.block)
    try:
        for name, text in (files or {}).items():
            (made.folder / name).write_text(text)
        yield made
    finally:
        try:
            await made.stop()
        finally:
            shutil.rmtree(home, ignore_errors=True)
            held.close()


# What is written into the folder


def service(name: str) -> str:
    """A Service on port 80 that selects app=NAME."""
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n"
        f"spec: {{selector: {{app: {name}}}, "
        "ports: [{name: http, port: 80, targetPort: http}]}\n"
    )


def pod(service_name: str, version: str, port: int, *, suffix: str = "0") -> str:
    """A Pod whose application listens on a port of 127.0.0.1."""
    labels = f"{{app: {service_name}, version: {version}}}"
    return (
        f"apiVersion: v1\nkind: Pod\n"
        f"metadata: {{name: {service_name}-{version}-{suffix}, labels: {labels}}}\n"
        f"spec: {{containers: [{{name: app, ports: [{{name: http, containerPort: {port}}}]}}]}}\n"
        "status: {podIP: 127.0.0.1}\n"
    )


def join(*parts: str) -> str:
    """Several objects in one file."""
    return "---\n".join(parts)


def rule(
    name: str,
    weights: Mapping[str, int],
    *,
    gateway: str = "",
    service_name: str = "",
    more: Iterable[str] = (),
) -> str:
    """A RouteRule that spreads requests over versions, or over services with `gateway`'s hosts."""
    target = service_name or name
    parent = f"{{gateway: {gateway}}}" if gateway else f"{{service: {target}}}"
    hosts = f"  hosts: [{target}.example]\n" if gateway else ""
    lines = "".join(
        f"    - {{service: {target}, labels: {{version: {version}}}, weight: {weight}}}\n"
        for version, weight in weights.items()
    )
    extra = "".join(f"    {line}\n" for line in more)
    return (
        f"apiVersion: {schema.API_VERSION}\nkind: RouteRule\nmetadata: {{name: {name}}}\n"
        f"spec:\n  parents: [{parent}]\n{hosts}  http:\n  - destinations:\n{lines}{extra}"
    )


def gateway(name: str, *, label: str) -> str:
    """A MeshGateway for proxies with app=LABEL, with one plain listener for every host."""
    return (
        f"apiVersion: {schema.API_VERSION}\nkind: MeshGateway\nmetadata: {{name: {name}}}\n"
        f"spec:\n  selector: {{app: {label}}}\n"
        f"  listeners: [{{name: http, port: {GATEWAY_PORT}, protocol: HTTP}}]\n"
    )


def policy(name: str, spec: str) -> str:
    """A DestinationPolicy for the service of its name."""
    return (
        f"apiVersion: {schema.API_VERSION}\nkind: DestinationPolicy\nmetadata: {{name: {name}}}\n"
        f"spec: {{service: {name}, {spec}}}\n"
    )
