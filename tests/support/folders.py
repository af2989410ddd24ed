# SPDX-License-Identifier: Apache-2.0
"""A folder being watched, for as long as a test needs it; and the ways in which files change."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pilothouse.adapters.files import configs, folder, registry
from pilothouse.config import objects
from pilothouse.model import changes, keys

REVIEWS = keys.ObjectKey("RouteRule", "default", "reviews")
DETAILS = keys.ObjectKey("RouteRule", "default", "details")


def rule(name: str = "reviews", timeout: str = "1s", metadata: str = "") -> str:
    """A RouteRule; tests tell its versions apart by the timeout."""
    return f"""
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {{name: {name}{metadata}}}
spec:
  parents: [{{service: {name}}}]
  http: [{{destinations: [{{service: {name}}}], timeout: {timeout}}}]
"""


def service(name: str = "web", port: int = 80) -> str:
    """A headless Service."""
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{port: {port}}}], clusterIP: None}}
"""


class Watched:
    """A folder with a store and a registry, and what their subscribers heard."""

    def __init__(self, path: pathlib.Path, *, poll_interval: float) -> None:
        self.spans: list[tuple[keys.ObjectKey, ...]] = []
        self.folder = folder.Folder(path, on_change=self._on_change, poll_interval=poll_interval)
        self.store = configs.FileConfigStore(self.folder)
        self.registry = registry.FileRegistry(self.folder)
        self.changes: list[changes.Change] = []
        self.registry_changes: list[changes.Change] = []
        self.store.subscribe(self.changes.append)
        self.registry.subscribe(self.registry_changes.append)

    def _on_change(self, changed: tuple[keys.ObjectKey, ...]) -> str:
        self.spans.append(changed)
        return f"trace-{len(self.spans)}"

    @property
    def configs(self) -> Mapping[keys.ObjectKey, objects.Config]:
        """The objects of the store."""
        return self.store.current().configs

    @property
    def problems(self) -> list[str]:
        """The messages of the store's problems."""
        return [each.message for each in self.store.current().problems]

    def timeout(self, key: keys.ObjectKey = REVIEWS) -> int | None:
        """Which version of a RouteRule is there, in seconds; None when it is not."""
        config = self.configs.get(key)
        if config is None:
            return None
        spec: Any = config.spec
        seconds: int = spec.http[0].timeout.seconds
        return seconds


@contextlib.asynccontextmanager
async def running(*folders: folder.Folder, synced: bool = True) -> AsyncIterator[None]:
    """Run folders while the block runs; begin when all are synced. An error of theirs ends it."""
    tasks = [asyncio.create_task(each.run(), name=f"folder {each.path}") for each in folders]
    try:
        if synced:
            for each, task in zip(folders, tasks, strict=True):
                ready = asyncio.create_task(each.synced())
                async with asyncio.timeout(60):
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
