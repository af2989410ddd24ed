# SPDX-License-Identifier: Apache-2.0
"""Waiting until processes of a mesh are ready, and telling how far that is.

They may become so in any order; what is late is named with what it says of itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NoReturn

import aiohttp

from pilothouse.cli.local import children, errors, probes

READY_SECONDS = 60.0
POLL_SECONDS = 0.05
PATIENCE = 15.0
"""Seconds after which those that are waited for are named, and again after as many."""


async def wait(
    waited: Sequence[children.Child], say: Callable[[str], None], *, started: float
) -> None:
    """Wait until each is ready.

    Args:
        waited: the processes.
        say: takes progress lines.
        started: when they were started, in the loop's time.

    Raises:
        errors.MeshError: one did not become ready in time, or ended.
    """
    waiting = _Waiting(waited, say, started)
    try:
        async with asyncio.timeout(READY_SECONDS):
            await waiting.run()
    except TimeoutError:
        raise errors.MeshError("\n".join(waiting.late())) from None


class _Waiting:
    def __init__(
        self, waited: Sequence[children.Child], say: Callable[[str], None], started: float
    ) -> None:
        self._waited = waited
        self._left = {child.name: child for child in waited}
        self._answers = dict.fromkeys(self._left, "no answer")
        self._say = say
        self._started = started

    async def run(self) -> None:
        try:
            async with probes.session() as session, asyncio.TaskGroup() as group:
                patience = group.create_task(self._name_the_late(), name="patience")
                tasks = [
                    group.create_task(self._follow(child, session), name=f"ready-{child.name}")
                    for child in self._waited
                ]
                if tasks:
                    await asyncio.wait(tasks)
                patience.cancel()
        except* errors.MeshError as failed:
            raise _first(failed) from None

    def late(self) -> list[str]:
        return [
            f"{name} is not ready after {READY_SECONDS:.0f} s: {self._answers[name]}; "
            f"the end of its log:\n{child.tail()}"
            for name, child in sorted(self._left.items())
        ]

    async def _follow(self, child: children.Child, session: aiohttp.ClientSession) -> None:
        while child.command.probe:
            if child.supervisor.returncode is not None:
                raise child.ended()
            ready, self._answers[child.name] = await probes.probe(child.command.probe, session)
            if ready:
                break
            await asyncio.sleep(POLL_SECONDS)
        del self._left[child.name]
        self._tell(child)

    def _tell(self, child: children.Child) -> None:
        """One line for each group, when the last of it is ready."""
        group = child.command.group
        if any(other.command.group is group for other in self._left.values()):
            return
        names = [other.name for other in self._waited if other.command.group is group]
        what = names[0] if len(names) == 1 else f"{len(names)} {group}s"
        self._say(f"{what} ready after {asyncio.get_running_loop().time() - self._started:.1f} s")

    async def _name_the_late(self) -> NoReturn:
        while True:
            await asyncio.sleep(PATIENCE)
            for name in sorted(self._left):
                self._say(f"still waiting for {name}: {self._answers[name]}")


def _first(group: BaseExceptionGroup[errors.MeshError]) -> errors.MeshError:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
