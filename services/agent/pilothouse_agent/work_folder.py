# SPDX-License-Identifier: Apache-2.0
"""The agent's folder: the bootstrap and the sockets, private to this user and to one agent."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pilothouse.envoy import bootstrap
from pilothouse_agent.errors import AgentError


@contextlib.contextmanager
def opened(configured: Path | None) -> Iterator[Path]:
    """The folder, locked; a temporary one, removed at the end, when none is configured."""
    with contextlib.ExitStack() as stack:
        # Around the opening only: an error of those who use the folder is not the folder's.
        try:
            folder = _temporary(stack) if configured is None else _configured(configured, stack)
        except OSError as error:
            where = configured or tempfile.gettempdir()
            raise AgentError(f"--work-dir: {where}: {error.strerror or error}") from error
        yield folder


def _temporary(stack: contextlib.ExitStack) -> Path:
    made = tempfile.TemporaryDirectory(prefix="pilothouse-agent-", ignore_cleanup_errors=True)
    return Path(stack.enter_context(made))


def _configured(path: Path, stack: contextlib.ExitStack) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AgentError(f"--work-dir: {path}: another agent works there") from error
    return path.absolute()


def socket_in(folder: Path, name: str) -> bootstrap.UnixSocket:
    """A socket in the folder; AgentError when the kernel would not take so long a path."""
    try:
        address = bootstrap.parse_address(f"unix:{folder / name}")
    except ValueError as error:
        raise AgentError(f"--work-dir: {error}") from error
    if not isinstance(address, bootstrap.UnixSocket):
        raise TypeError(address)
    return address


def write(path: Path, text: str) -> None:
    """Replace a file whole or not at all, readable by this user only."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
