# SPDX-License-Identifier: Apache-2.0
"""Which files a folder holds, and which folders must be watched to hear of every change to them.

Kubernetes mounts a ConfigMap or Secret as links: ``a.yaml`` leads to ``..data/a.yaml``, ``..data``
to a folder named after the time, and an update renames a new ``..data`` over the old one. So a
watch on a file, or on the folder it was found in, is not enough: the folder of every link on the
way counts, and the folder that it leads to.
"""

# Paths are compared as text, thousands at a time.
# ruff: noqa: PTH100, PTH112, PTH114, PTH115, PTH116, PTH118, PTH120

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from typing import NamedTuple

SUFFIXES = (".yaml", ".yml", ".json")
_MAX_LINKS = 40  # what Linux allows in one path


class Watched(NamedTuple):
    """A folder to watch. The numbers tell it from another of the same name made later."""

    path: str
    device: int
    inode: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file that may hold objects."""

    path: str
    """Below the folder, with ``/`` between its parts."""
    absolute: str
    signature: tuple[int, ...] = ()
    """Changes whenever the content may have changed."""
    size: int = 0
    changed_at: int = 0
    """The later of mtime and ctime, in nanoseconds since 1970."""
    fault: str = ""
    """Why it cannot be read; empty when it may be tried."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A folder as found."""

    fault: str = ""
    """Why the folder itself cannot be read; empty when it can."""
    entries: tuple[Entry, ...] = ()
    """Sorted by path."""
    hidden: tuple[tuple[str, str], ...] = ()
    """Subfolders that cannot be read, and why; sorted."""
    watched: frozenset[Watched] = frozenset()
    own: frozenset[str] = frozenset()
    """Paths of the watched folders in which everything matters."""
    names: frozenset[str] = frozenset()
    """Full paths that matter in the other watched folders."""

    def concerns(self, path: str) -> bool:
        """Tell whether an event at this full path may mean a change."""
        folder = os.path.dirname(path)
        return folder in self.own or path in self.own or path in self.names


def walk(root: str) -> Tree:
    """Look at a folder and everything below it; OSErrors become faults."""
    walker = _Walker()
    real = os.path.abspath(root)
    try:
        real = walker.follow(real)
        found = os.stat(real)
        fault = "" if stat.S_ISDIR(found.st_mode) else "is not a folder"
        if not fault:
            walker.scan(real, prefix="", above=())
    except FileNotFoundError:
        fault = "does not exist"
        walker.watch_above(real)
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    hidden = dict(walker.hidden)
    fault = fault or hidden.pop("", "")
    return Tree(
        fault=fault,
        entries=tuple(sorted(walker.entries, key=lambda entry: entry.path)),
        hidden=tuple(sorted(hidden.items())),
        watched=frozenset(walker.watched),
        own=frozenset(walker.own),
        names=frozenset(walker.names),
    )


class _Walker:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.hidden: dict[str, str] = {}
        self.watched: set[Watched] = set()
        self.own: set[str] = set()
        self.names: set[str] = set()

    def scan(self, real: str, *, prefix: str, above: tuple[tuple[int, int], ...]) -> None:
        """Take in a folder by its resolved path; ``above`` are the folders it was reached through.

        Raises:
            OSError: the folder is gone, or its state cannot be read.
        """
        identity = self._watch(real)
        if identity in above:
            return  # a link to a folder above it: everything there is known already
        self.own.add(real)
        try:
            with os.scandir(real) as listing:
                found = sorted(listing, key=lambda item: item.name)
        except FileNotFoundError:
            raise
        except OSError as error:
            self.hidden[prefix.rstrip("/")] = f"cannot be read: {error.strerror}"
            return
        for item in found:
            if not item.name.startswith("."):
                self._take(item, prefix=prefix, above=(*above, identity))

    def _take(
        self, item: os.DirEntry[str], *, prefix: str, above: tuple[tuple[int, int], ...]
    ) -> None:
        path = prefix + item.name
        is_file_name = item.name.lower().endswith(SUFFIXES)
        try:
            real = self.follow(item.path) if item.is_symlink() else item.path
            found = os.stat(real)
            if stat.S_ISDIR(found.st_mode):
                self.scan(real, prefix=f"{path}/", above=above)
                return
        except FileNotFoundError:
            # A file that is gone since the listing is gone; a link stays, and leads nowhere.
            if item.is_symlink() and is_file_name:
                self._fault(path, item.path, "is a link to a file that does not exist")
            return
        except OSError as error:
            if is_file_name:
                self._fault(path, item.path, f"cannot be read: {error.strerror}")
            return
        if not is_file_name:
            return
        if not stat.S_ISREG(found.st_mode):
            self._fault(path, item.path, "is not a regular file")
            return
        self.entries.append(
            Entry(
                path=path,
                absolute=item.path,
                signature=(
                    found.st_dev,
                    found.st_ino,
                    found.st_size,
                    found.st_mtime_ns,
                    found.st_ctime_ns,
                ),
                size=found.st_size,
                changed_at=max(found.st_mtime_ns, found.st_ctime_ns),
            )
        )

    def _fault(self, path: str, absolute: str, reason: str) -> None:
        self.entries.append(Entry(path=path, absolute=absolute, fault=reason))

    def follow(self, path: str) -> str:
        """Resolve a path, and have the folder of every link on the way watched, and of its end.

        Raises:
            OSError: a link cannot be read.
        """
        rest = [part for part in reversed(path.split("/")) if part]
        current = "/"
        links = 0
        while rest:
            part = rest.pop()
            if part == "..":
                current = os.path.dirname(current)
                continue
            current = os.path.join(current, part)
            if part == "." or not os.path.islink(current):
                current = os.path.normpath(current)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, "too many links")
            self._watch_name(current)
            target = os.readlink(current)
            rest += [part for part in reversed(target.split("/")) if part]
            current = "/" if target.startswith("/") else os.path.dirname(current)
        self._watch_name(current)
        return current

    def watch_above(self, path: str) -> None:
        """Watch the nearest folder above a path that does not exist, for what would lead to it."""
        while path != "/":
            above = os.path.dirname(path)
            if os.path.isdir(above):
                self._watch_name(path)
                return
            path = above

    def _watch_name(self, path: str) -> None:
        self.names.add(path)
        try:
            self._watch(os.path.dirname(path))
        except OSError:
            return  # what is not there cannot be watched; a fault tells of it

    def _watch(self, folder: str) -> tuple[int, int]:
        found = os.stat(folder)
        self.watched.add(Watched(folder, found.st_dev, found.st_ino))
        return found.st_dev, found.st_ino
