# SPDX-License-Identifier: Apache-2.0
"""The processes of a mesh: started, guarded, and stopped so that nothing is left.

Each is tied to this process by the kernel, so that even ``kill -9`` leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pathlib
from collections.abc import Collection, Iterable
from typing import NoReturn

from pilothouse.adapters import process
from pilothouse.cli.local import commands, errors, logs

STOP_GRACE = 8.0


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Child:
    """A process of the mesh."""

    command: commands.Command
    supervisor: process.Supervisor
    log: pathlib.Path

    @property
    def name(self) -> str:
        """What it is called."""
        return self.command.name

    def tail(self) -> str:
        """The end of its log."""
        return logs.tail(self.log.read_text(errors="replace") if self.log.exists() else "")

    def ended(self) -> errors.MeshError:
        """The error to raise when it has ended by itself."""
        code = self.supervisor.returncode or 0
        hint = process.exit_hint(code)
        how = f"ended with code {code}{f' ({hint})' if hint else ''}"
        return errors.MeshError(f"{self.name} {how}; the end of its log:\n{self.tail()}")


class Children:
    """All processes of one mesh, by name."""

    def __init__(self, folder: pathlib.Path) -> None:
        """``folder`` takes the logs; it is made with the first of them."""
        self.folder = folder
        self._running: dict[str, Child] = {}
        self._guards: dict[str, asyncio.Task[None]] = {}
        self._failures: asyncio.Queue[errors.MeshError] = asyncio.Queue()

    async def spawn(self, command: commands.Command) -> Child:
        """Start a process; its end is not noticed before ``guard``."""
        self.folder.mkdir(exist_ok=True)
        log = self.folder / f"{command.name}.log"
        with log.open("wb") as output:
            supervisor = process.Supervisor(
                command.arguments,
                env={**_environment(), **command.environment},
                output=output.fileno(),
                directory=command.directory,
            )
            await supervisor.start()
        child = Child(command=command, supervisor=supervisor, log=log)
        self._running[command.name] = child
        return child

    def guard(self, guarded: Iterable[Child]) -> None:
        """From now on ``failure`` raises when one of them ends by itself."""
        for child in guarded:
            self._guards[child.name] = asyncio.create_task(self._guard(child), name=child.name)

    async def _guard(self, child: Child) -> None:
        await child.supervisor.wait()
        self._failures.put_nowait(child.ended())

    async def failure(self) -> NoReturn:
        """Wait until a guarded process ends by itself, and raise which one."""
        raise await self._failures.get()

    async def stop(self, names: Collection[str] | None = None) -> None:
        """Stop these, or everything: programs and proxies first, then what they depend on."""
        chosen = [child for name, child in self._running.items() if names is None or name in names]
        guards = [guard for c in chosen if (guard := self._guards.pop(c.name, None)) is not None]
        for guard in guards:
            guard.cancel()
        if guards:
            await asyncio.wait(guards)
        services = [c for c in chosen if c.command.group is commands.Group.SERVICE]
        for generation in ([c for c in chosen if c not in services], services):
            async with asyncio.TaskGroup() as group:
                for child in generation:
                    group.create_task(child.supervisor.stop(STOP_GRACE), name=f"stop-{child.name}")
        for child in chosen:
            self._running.pop(child.name, None)


def _environment() -> dict[str, str]:
    """What every process inherits: ours, but for the addresses, which the mesh gives out."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("PILOTHOUSE_") and name.endswith("_ADDRESS"))
    }
    # They start programs before they call anybody; gRPC need not prepare for that.
    return {"GRPC_ENABLE_FORK_SUPPORT": "false", **kept}
