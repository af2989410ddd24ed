# SPDX-License-Identifier: Apache-2.0
"""A folder being watched, for as long as a test needs it; and the ways in which files change."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

from pilothouse.adapters.files import folder


@contextlib.asynccontextmanager
async def running(*folders: folder.Folder, synced: bool = True) -> AsyncIterator[None]:
    """Run folders while the block runs; begin when all are synced. An error of theirs ends it."""
    tasks = [asyncio.create_task(each.run(), name=f"folder {each.path}") for each in folders]
    try:
        if synced:
            for each, task in zip(folders, tasks, strict=True):
                ready = asyncio.create_task(each.synced())
                async with asyncio.timeout(10):
                    await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
                if not ready.done():
                    ready.cancel()
                    await task
        yield
        ended = [task for task in tasks if task.done()]
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def replace(path: pathlib.Path, text: str) -> None:
    """Write beside the file and rename over it: a change as a whole."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def swap_link(link: pathlib.Path, target: str) -> None:
    """Point a link elsewhere by renaming a new one over it, as Kubernetes does with ``..data``."""
    beside = link.with_name(f"{link.name}_tmp")
    beside.symlink_to(target)
    beside.replace(link)
