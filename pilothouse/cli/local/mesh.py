# SPDX-License-Identifier: Apache-2.0
"""A running mesh on this machine: services, gateways, and a sidecar beside every program.

Everything is started at once, for any order of start must work; what is not ready in time is named
together with the end of its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, NoReturn

import yaml

from pilothouse.adapters import process
from pilothouse.cli.local import addresses, children, commands, errors, pods, ports, sources

FAREWELL_SECONDS = 1.0
"""What proxies get to forget a pod before it is stopped; acknowledgements take a tenth of that."""

Say = Callable[[str], None]


class Mesh:
    """The processes of one mesh and where they are."""

    def __init__(
        self, *, source: sources.Source, block: addresses.Block, home: pathlib.Path, say: Say
    ) -> None:
        """Use ``running`` instead."""
        self.block = block
        self.home = home
        self.hosts = source.hosts
        """Host names that the folder's Ingresses name."""
        self.pods: tuple[pods.Pod, ...] = ()
        """What the folder asks for, but for what could not be started."""
        self._failed: tuple[pods.Pod, ...] = ()
        self._source = source
        self._say = say
        self._children = children.Children(home / "logs")
        self._envoy = ""

    @property
    def ingress_url(self) -> str:
        """Where requests from outside go; the Host header chooses the Ingress rule."""
        return f"http://{self.block.ingress}:{commands.GATEWAY_PORT}"

    @property
    def discovery_address(self) -> str:
        """HOST:PORT of discovery's gRPC server."""
        return f"{self.block.control}:{commands.DISCOVERY_PORT}"

    def admin_socket(self, address: str) -> pathlib.Path:
        """Unix socket of the admin interface of the Envoy at an address."""
        return commands.work_folder(self.home, address) / "admin.sock"

    def describe(self) -> dict[str, Any]:
        """Where everything is, for people and scripts."""
        return {
            "ingress": self.ingress_url,
            "hosts": list(self.hosts),
            "discovery": self.discovery_address,
            "debug": f"http://{self.block.control}:{commands.DISCOVERY_HTTP_PORT}/debug",
            "home": str(self.home),
            "logs": str(self._children.folder),
            "workloads": [
                {
                    "name": f"{pod.namespace}/{pod.name}",
                    "address": pod.address,
                    "httpProxy": f"http://{pod.address}:{commands.OUTBOUND_PORT}"
                    if pod.sidecar
                    else None,
                }
                for pod in self.pods
            ],
        }

    async def start(self) -> None:
        """Start all processes and wait until each is ready.

        Raises:
            errors.MeshError: one did not become ready, or ended.
            process.EnvoyNotFoundError: there is no Envoy, or not where it was said to be.
        """
        self._envoy = str(process.find_envoy(None))
        self.pods, problems = pods.plan(self._source.manifests, self.block)
        for problem in problems:
            self._say(f"warning: {problem}")
        ports.require_free(commands.listens(self.block, self.pods))
        config = self._source.link(self.home / "config")
        self._write_manifests()
        wanted = [
            *commands.control_plane(self.block, config),
            *commands.gateways(self.block, self.home, self._envoy),
            *(command for pod in self.pods for command in self._workload(pod)),
        ]
        self._say(f"starting {len(wanted)} processes on 127.{self.block.number}.0.0/16")
        await self._bring_up(wanted)

    def _workload(self, pod: pods.Pod) -> tuple[commands.Command, ...]:
        return commands.workload(pod, self.block, self.home, self._envoy)

    async def _bring_up(self, wanted: Iterable[commands.Command]) -> None:
        at = asyncio.get_running_loop().time()
        started = [await self._children.spawn(command) for command in wanted]
        # A quarter of a second of imports that the children, started by now, need not wait for.
        from pilothouse.cli.local import readiness  # noqa: PLC0415

        await readiness.wait(started, self._say, started=at)
        self._children.guard(started)

    async def warnings(self) -> tuple[str, ...]:
        """What the services find wrong in the folder, in the words of its user."""
        from pilothouse.cli.local import checks  # noqa: PLC0415  imports as above

        return tuple(map(self._source.in_users_words, await checks.warnings(self.block)))

    async def watch(self) -> NoReturn:
        """Return never; raise as soon as a process ends by itself.

        Raises:
            errors.MeshError: which one, and the end of its log.
        """
        await self._children.failure()

    async def follow(self) -> NoReturn:
        """Start and stop programs as the folder's Deployments and Pods change; never returns.

        What cannot be run is told, and the rest runs on.
        """
        told: tuple[str, ...] = ()
        while True:
            manifests = await self._source.changed()
            known = (*self.pods, *self._failed)
            wanted, problems = pods.plan(manifests, self.block, before=known)
            for problem in sorted(set(problems) - set(told)):
                self._say(f"warning: {problem}")
            told = problems
            await self._replace(wanted)

    async def _replace(self, wanted: tuple[pods.Pod, ...]) -> None:
        going = [pod for pod in self.pods if pod not in wanted]
        self.pods = tuple(pod for pod in self.pods if pod in wanted)
        # What failed is tried again when it has changed, and not before.
        self._failed = tuple(pod for pod in self._failed if pod in wanted)
        if going:
            self._write_manifests()
            await asyncio.sleep(FAREWELL_SECONDS)
            await self._children.stop([c.name for pod in going for c in self._workload(pod)])
            self._say(f"stopped {_names(going)}")
        for pod in wanted:
            if pod not in self.pods and pod not in self._failed:
                await self._add(pod)

    async def _add(self, pod: pods.Pod) -> None:
        wanted = self._workload(pod)
        try:
            ports.require_free(commands.listens_for(pod))
            # Not ready yet: its sidecar is served, and nobody sends requests to it.
            self._write_manifests(pod.manifest(ready=False))
            await self._bring_up(wanted)
        except errors.MeshError as error:
            self._say(f"warning: {error}")
            self._failed = (*self._failed, pod)
            await self._children.stop([command.name for command in wanted])
        else:
            self.pods = tuple(sorted((*self.pods, pod), key=lambda one: one.id))
        self._write_manifests()

    def _write_manifests(self, *more: Mapping[str, Any]) -> None:
        """What Kubernetes would say of the running pods and gateways."""
        running_pods = [pod.manifest() for pod in self.pods if pod.sidecar]
        text = yaml.safe_dump_all(
            [*running_pods, *more, *commands.gateway_manifests(self.block)], sort_keys=True
        )
        sources.replace(self.home / "config" / "up" / "running.yaml", text)

    async def stop(self) -> None:
        """Stop everything."""
        await self._children.stop()


def _names(listed: Iterable[pods.Pod]) -> str:
    return ", ".join(f"{pod.namespace}/{pod.name}" for pod in listed)


@contextlib.asynccontextmanager
async def running(
    folder: pathlib.Path, *, say: Say, block: int | None = None, keep: bool = False
) -> AsyncIterator[Mesh]:
    """A whole mesh for the time of the block; afterwards no process, port or file of it is left.

    Args:
        folder: manifests and config objects; edits are picked up while the mesh runs.
        say: takes progress lines.
        block: second part of the loopback addresses; None takes a free one.
        keep: leave the folder with logs in place.

    Raises:
        errors.MeshError: the mesh could not be started, or the folder is not there.
        process.EnvoyNotFoundError: there is no Envoy.
    """
    source = sources.Source(folder)
    held = addresses.HeldBlock.take(block)
    home = pathlib.Path(tempfile.mkdtemp(prefix="pilothouse-"))
    try:
        mesh = Mesh(source=source, block=held.block, home=home, say=say)
        try:
            await mesh.start()
            yield mesh
        finally:
            await mesh.stop()
    finally:
        held.close()
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
