# SPDX-License-Identifier: Apache-2.0
"""What the files of a folder hold: read when they changed, kept as they were when they broke."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Mapping

from pilothouse.adapters.files import tree
from pilothouse.config import codec, documents, objects
from pilothouse.kubernetes import manifests
from pilothouse.model import keys

MAX_BYTES = 64 * 1024 * 1024
"""Largest file that is read."""
_SETTLED = 50_000_000  # nanoseconds; well above the resolution of a file's times
_WRITING = 200_000_000  # nanoseconds that a file may be empty while it is being written


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """A document of a kind that Pilothouse reads."""

    document: documents.RawDocument
    key: keys.ObjectKey | None
    """None when it has no name that could be read: good for a problem and nothing else."""
    kubernetes: str | None
    """The kind, if it is one of Kubernetes'; None if it is meant to be one of our own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as last read, with what it holds as far as that is good."""

    path: str
    signature: tuple[int, ...] = ()
    settled: bool = True
    """False while it may change again without a change of its signature: to be read once more."""
    digest: bytes = b""
    found: tuple[Object, ...] = ()
    """In the order of the file; then those kept from before, while a document cannot be parsed."""
    ignored: int = 0
    """Documents of kinds that Pilothouse does not read."""
    problems: tuple[objects.Problem, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Everything a folder holds."""

    present: bool = False
    """False until the folder has been read once; then True for ever."""
    files: Mapping[str, File] = dataclasses.field(default_factory=dict)
    """By path below the folder, sorted."""
    problems: tuple[objects.Problem, ...] = ()
    """Of the folder itself and of its subfolders; those of files are theirs."""

    @property
    def settled(self) -> bool:
        """False when it should be looked at again soon."""
        return all(file.settled for file in self.files.values())


def refresh(before: Content, found: tree.Tree, *, root: str, stop: threading.Event) -> Content:
    """Read the files that changed.

    Args:
        before: What was known.
        found: What is there now.
        root: The folder, as its user names it; for the locations of problems.
        stop: When set, files are not read any more.

    Returns:
        What is known now. When the folder is gone or cannot be read, what was known stays; so does
        what was known of a subfolder or file that cannot be read.
    """
    if found.fault:
        kept = "; what it held last stays in force" if before.present else ""
        problem = objects.Problem(location=root, message=f"the folder {found.fault}{kept}")
        return dataclasses.replace(before, problems=(problem,))
    files: dict[str, File] = {}
    for entry in found.entries:
        if stop.is_set():
            break
        file = _file(entry, before.files.get(entry.path), root=root)
        if file is not None:
            files[entry.path] = file
    for folder, _ in found.hidden:
        for path, file in before.files.items():
            if path.startswith(f"{folder}/"):
                files.setdefault(path, file)
    return Content(
        present=True,
        files=dict(sorted(files.items())),
        problems=tuple(
            objects.Problem(location=_location(root, folder), message=fault)
            for folder, fault in found.hidden
        ),
    )


def _location(root: str, path: str) -> str:
    return os.path.join(root, path)  # noqa: PTH118  keeps what the user wrote, ./ included


def _file(entry: tree.Entry, before: File | None, *, root: str) -> File | None:
    """What a file holds now; None if it is gone since it was listed."""
    if before and before.settled and before.signature == entry.signature and not entry.fault:
        return before
    known = before or File(path=entry.path)
    location = _location(root, entry.path)
    if entry.fault:
        return _broken(known, entry, location, entry.fault)
    if entry.size > MAX_BYTES:
        return _broken(known, entry, location, f"is larger than {MAX_BYTES} bytes")
    now = time.time_ns()
    try:
        data = pathlib.Path(entry.absolute).read_bytes()
    except FileNotFoundError:
        # As if it had not been listed; a link stays, and the next look says where it leads.
        return dataclasses.replace(known, settled=False) if _is_link(entry) else None
    except OSError as error:
        return _broken(known, entry, location, f"cannot be read: {error.strerror}")
    age = abs(now - entry.changed_at)
    if not data and known.found and age < _WRITING:
        return dataclasses.replace(known, settled=False)  # cut, and not written yet
    digest = hashlib.sha256(data).digest()
    if digest == known.digest:
        return dataclasses.replace(known, signature=entry.signature, settled=age > _SETTLED)
    read = _parse(known, data, location)
    return dataclasses.replace(
        read, signature=entry.signature, settled=age > _SETTLED, digest=digest
    )


def _is_link(entry: tree.Entry) -> bool:
    return pathlib.Path(entry.absolute).is_symlink()


def _broken(known: File, entry: tree.Entry, location: str, reason: str) -> File:
    return dataclasses.replace(
        known,
        signature=entry.signature,
        settled=True,
        digest=b"",  # so that it is read anew once it can be
        problems=(objects.Problem(location=location, message=reason),),
    )


def _parse(known: File, data: bytes, location: str) -> File:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 at byte {error.start}"
        problem = objects.Problem(location=location, message=message)
        return dataclasses.replace(known, problems=(problem,))
    parsed, problems = documents.load(text, location=location)
    found = tuple([one for document in parsed if (one := _object(document)) is not None])
    kept = tuple(_kept(known, found)) if problems else ()
    return File(
        path=known.path,
        found=found + kept,
        ignored=len(parsed) - len(found),
        problems=problems,
    )


def _object(document: documents.RawDocument) -> Object | None:
    kubernetes = manifests.known_kind(document)
    if kubernetes is None and not codec.is_ours(document):
        return None
    return Object(document=document, key=manifests.key_of(document), kubernetes=kubernetes)


def _kept(known: File, found: tuple[Object, ...]) -> Iterator[Object]:
    """What a broken document may have been: objects that were there before and are missed now."""
    there = {each.key for each in found}
    for each in known.found:
        if each.key is not None and each.key not in there:
            yield each
