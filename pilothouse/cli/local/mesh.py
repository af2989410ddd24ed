# SPDX-License-Identifier: Apache-2.0
"""A running mesh on this machine: services, gateways, and a sidecar beside every program.

Everything is started at once, for any order of start must work; what is not ready in time is named
together with the end of its log. Each child is tied to this process by the kernel, so that even
``kill -9`` leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import yaml

from pilothouse.adapters import process
from pilothouse.cli.local import addresses, commands, pods
from pilothouse.config import documents

READY_SECONDS = 60.0
POLL_SECONDS = 0.05
STOP_GRACE = 8.0


class MeshError(Exception):
    """The mesh could not be started, or a part of it ended; the message is for the user."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Child:
    """A process of the mesh."""

    name: str
    supervisor: process.Supervisor
    log: pathlib.Path
    probe: str = ""
    """URL that answers 200 when it is ready, or ``tcp:HOST:PORT``; empty when there is nothing to
    ask."""

    def tail(self, lines: int = 8) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return (
            "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
            or "    (its log is empty)"
        )


class Mesh:
    """The processes of one mesh and where they are."""

    def __init__(
        self,
        *,
        block: addresses.Block,
        home: pathlib.Path,
        planned: tuple[pods.Pod, ...],
        hosts: tuple[str, ...],
    ) -> None:
        """Use ``running`` instead."""
        self.block = block
        self.hosts = hosts
        """Host names that the folder's Ingresses name."""
        self.home = home
        self.pods = planned
        self._children: list[Child] = []

    @property
    def ingress_url(self) -> str:
        """Where requests from outside go; the Host header chooses the Ingress rule."""
        return f"http://{self.block.ingress}:{commands.GATEWAY_PORT}"

    @property
    def discovery_address(self) -> str:
        """HOST:PORT of discovery's gRPC server."""
        return f"{self.block.control}:{commands.DISCOVERY_PORT}"

    def admin_socket(self, name: str) -> pathlib.Path:
        """Unix socket of an Envoy's admin interface, by pod or gateway name."""
        return self.home / "agents" / name / "admin.sock"

    def describe(self) -> dict[str, Any]:
        """Where everything is, for people and scripts."""
        return {
            "ingress": self.ingress_url,
            "discovery": self.discovery_address,
            "debug": f"http://{self.block.control}:{commands.DISCOVERY_HTTP_PORT}/debug",
            "logs": str(self.home / "logs"),
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

    async def start(self, say: Callable[[str], None]) -> None:
        """Start all processes and wait until each is ready.

        Raises:
            MeshError: one did not become ready, or ended.
        """
        envoy = str(process.find_envoy(None))
        self._write_manifests()
        config = self.home / "config"
        wanted = [
            *commands.control_plane(self.block, config),
            *commands.gateways(self.block, self.home / "agents", envoy),
            *(
                command
                for pod in self.pods
                for command in commands.workload(pod, self.block, self.home / "agents", envoy)
            ),
        ]
        say(f"starting {len(wanted)} processes on 127.{self.block.number}.0.0/16")
        for command in wanted:
            await self._spawn(command)
        started = asyncio.get_running_loop().time()
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
            asyncio.TaskGroup() as group,
        ):
            for child in self._children:
                group.create_task(
                    self._wait_ready(child, session, say, started), name=f"ready-{child.name}"
                )

    async def _spawn(self, command: commands.Command) -> None:
        log = self.home / "logs" / f"{command.name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("wb") as output:
            supervisor = process.Supervisor(
                command.arguments,
                env={**os.environ, **command.environment},
                output=output.fileno(),
                directory=command.directory,
            )
            await supervisor.start()
        self._children.append(
            Child(name=command.name, supervisor=supervisor, log=log, probe=command.probe)
        )

    def _write_manifests(self) -> None:
        """What Kubernetes would say of the running pods and gateways."""
        folder = self.home / "config" / "up"
        folder.mkdir(parents=True)
        listed = [pod.manifest() for pod in self.pods if pod.sidecar]
        text = yaml.safe_dump_all(
            [*listed, *commands.gateway_manifests(self.block)], sort_keys=True
        )
        (folder / "running.yaml").write_text(text)

    async def _wait_ready(
        self,
        child: Child,
        session: aiohttp.ClientSession,
        say: Callable[[str], None],
        started: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        answer = "no answer"
        while child.probe:
            if child.supervisor.returncode is not None:
                raise MeshError(self._ended(child))
            ready, answer = await _probe(child.probe, session)
            if ready:
                break
            if loop.time() - started > READY_SECONDS:
                late = f"{child.name} is not ready after {READY_SECONDS:.0f} s"
                msg = f"{late}: {answer}\n{child.tail()}"
                raise MeshError(msg)
            await asyncio.sleep(POLL_SECONDS)
        say(f"{child.name} ready after {loop.time() - started:.1f} s")

    def _ended(self, child: Child) -> str:
        code = child.supervisor.returncode
        hint = process.exit_hint(code or 0)
        return f"{child.name} ended with code {code}{f' ({hint})' if hint else ''}\n{child.tail()}"

    async def watch(self) -> None:
        """Return never; raise as soon as a process ends by itself.

        Raises:
            MeshError: which one, and the end of its log.
        """
        waits = {
            asyncio.create_task(child.supervisor.wait(), name=child.name): child
            for child in self._children
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.wait(waits)
        raise MeshError(
            "\n".join(
                self._ended(waits[task]) for task in sorted(done, key=lambda task: task.get_name())
            )
        )

    async def stop(self) -> None:
        """Stop everything: programs and proxies first, then the services they depend on."""
        services = [child for child in self._children if child.name in commands.SERVICES]
        others = [child for child in self._children if child.name not in commands.SERVICES]
        for generation in (others, services):
            async with asyncio.TaskGroup() as group:
                for child in generation:
                    group.create_task(child.supervisor.stop(STOP_GRACE), name=f"stop-{child.name}")
        self._children.clear()


async def _probe(url: str, session: aiohttp.ClientSession) -> tuple[bool, str]:
    """Whether it is ready, and what it answered."""
    try:
        if url.startswith("tcp:"):
            host, _, port = url.removeprefix("tcp:").rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return True, "open"
        async with session.get(url) as response:
            return response.status == 200, " ".join((await response.text()).split())
    except (OSError, aiohttp.ClientError, TimeoutError) as error:
        return False, f"{type(error).__name__}: {error}"


def read_folder(folder: pathlib.Path) -> tuple[pods.Manifest, ...]:
    """All documents of a folder's YAML files, for planning pods.

    What is broken in them is told by discovery, not here.

    Raises:
        MeshError: the folder is not there.
    """
    if not folder.is_dir():
        msg = f"{folder}: no such folder"
        raise MeshError(msg)
    found: list[pods.Manifest] = []
    for path in sorted(
        p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml", ".json") and p.is_file()
    ):
        listed, _ = documents.load(
            path.read_text(errors="replace"), location=str(path.relative_to(folder))
        )
        found.extend(
            pods.Manifest(
                location=document.location,
                directory=str(path.parent.resolve()),
                body=document.manifest,
            )
            for document in listed
        )
    return tuple(found)


def _link(folder: pathlib.Path, config: pathlib.Path) -> None:
    """Put the user's folder below the one that the services watch; edits go through the link."""
    config.mkdir()
    (config / "user").symlink_to(folder.resolve(), target_is_directory=True)


@contextlib.asynccontextmanager
async def running(
    folder: pathlib.Path,
    *,
    say: Callable[[str], None],
    block: int | None = None,
    keep: bool = False,
) -> AsyncIterator[Mesh]:
    """A whole mesh for the time of the block; afterwards no process, port or file of it is left.

    Args:
        folder: manifests and config objects; edits are picked up while the mesh runs.
        say: takes progress lines.
        block: second part of the loopback addresses; None takes a free one.
        keep: leave the folder with logs in place.

    Raises:
        MeshError: the mesh could not be started.
        addresses.NoBlockError: no block of addresses is free.
    """
    manifests = read_folder(folder)
    held = addresses.HeldBlock.take(block)
    home = pathlib.Path(tempfile.mkdtemp(prefix="pilothouse-"))
    try:
        planned, problems = pods.plan(manifests, held.block)
        for problem in problems:
            say(f"warning: {problem}")
        _link(folder, home / "config")
        mesh = Mesh(block=held.block, home=home, planned=planned, hosts=pods.hosts(manifests))
        try:
            try:
                await mesh.start(say)
            except* MeshError as group:
                raise MeshError(str(_first(group))) from group
            yield mesh
        finally:
            await mesh.stop()
    finally:
        held.close()
        if not keep:
            shutil.rmtree(home, ignore_errors=True)


def _first(group: BaseExceptionGroup[MeshError]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
