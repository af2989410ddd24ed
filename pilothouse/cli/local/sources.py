# SPDX-License-Identifier: Apache-2.0
"""The user's folder: which programs it asks for, now and whenever it changes.

Broken documents are told by discovery; here they only keep what was known of their file in place,
so that a half-written file stops no program.
"""

from __future__ import annotations

import asyncio
import pathlib

from pilothouse.cli.local import errors, pods
from pilothouse.config import documents

POLL_SECONDS = 0.3
_SUFFIXES = (".yaml", ".yml", ".json")

_Stamps = dict[pathlib.Path, tuple[int, int, int]]


class Source:
    """A folder as its user names it."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Read it.

        Raises:
            errors.MeshError: it is not there.
        """
        if not folder.is_dir():
            raise errors.MeshError(f"{folder}: no such folder")
        self._folder = folder
        self._linked = ""
        self._stamps = _stamps(folder)
        self._files: dict[pathlib.Path, tuple[pods.Manifest, ...]] = {}
        self._read()

    @property
    def manifests(self) -> tuple[pods.Manifest, ...]:
        """All documents, by file and place."""
        return tuple(one for _, listed in sorted(self._files.items()) for one in listed)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host names that its Ingresses name."""
        return pods.hosts(self.manifests)

    def link(self, config: pathlib.Path) -> pathlib.Path:
        """Put it below the folder that the services watch, which is made; edits go through."""
        config.mkdir()
        linked = config / "user"
        linked.symlink_to(self._folder.resolve(), target_is_directory=True)
        self._linked = str(linked)
        return config

    def in_users_words(self, text: str) -> str:
        """A warning, with the folder named as the user did, and the file of its object."""
        if self._linked:
            text = text.replace(self._linked, str(self._folder))
        place = self._places().get(text.partition(": ")[0])
        return f"{self._folder / place}: {text}" if place else text

    def _places(self) -> dict[str, str]:
        """Where each object is, by KIND/NAMESPACE/NAME; of two that have the same, the first."""
        places: dict[str, str] = {}
        for one in self.manifests:
            namespace, name = one.name
            places.setdefault(f"{one.body.get('kind')}/{namespace}/{name}", one.location)
        return places

    async def changed(self) -> tuple[pods.Manifest, ...]:
        """Wait until a file is not as it was, and read it; all documents then."""
        while True:
            stamps = await asyncio.to_thread(_stamps, self._folder)
            if stamps != self._stamps:
                break
            await asyncio.sleep(POLL_SECONDS)
        self._stamps = stamps
        await asyncio.to_thread(self._read)
        return self.manifests

    def _read(self) -> None:
        before, self._files = self._files, {}
        for path in self._stamps:
            try:
                text = path.read_text(errors="replace")
            except OSError:  # gone again, or not ours to read
                continue
            listed, problems = documents.load(text, location=str(path.relative_to(self._folder)))
            found = tuple(
                pods.Manifest(
                    location=document.location,
                    directory=str(path.parent.resolve()),
                    body=document.manifest,
                )
                for document in listed
            )
            self._files[path] = found if not problems else (*found, *before.get(path, ()))


def _stamps(folder: pathlib.Path) -> _Stamps:
    """The folder's files, each with what changes when it is written; names with a dot are none."""
    found: _Stamps = {}
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if path.suffix not in _SUFFIXES or any(part.startswith(".") for part in below.parts):
            continue
        try:
            stat = path.stat()
        except OSError:
            continue
        if path.is_file():
            found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return found


def replace(path: pathlib.Path, text: str) -> None:
    """Write a file in one step, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text)
    fresh.rename(path)
