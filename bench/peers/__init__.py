# SPDX-License-Identifier: Apache-2.0
"""Servers to compare with: each as a command that `processes.peer` can start."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

_SOURCE = pathlib.Path(__file__).parent / "go-control-plane"
BUILD_SECONDS = 900

Command = tuple[str, ...]


def bare() -> Command:
    """The same bytes from `grpc.aio` with nothing around it."""
    return (sys.executable, "-m", "bench.peers.bare")


def go_control_plane(scratch: pathlib.Path, *, say: Callable[[str], None]) -> Command | None:
    """go-control-plane's linear caches, built into a folder; None where Go is missing or fails.

    The first build on a machine fetches and compiles its modules, which takes minutes; later ones
    take Go's cache.
    """
    go = shutil.which("go")
    if go is None:
        say("go-control-plane is left out: there is no Go here")
        return None
    binary = scratch / "go-control-plane"
    say("building the go-control-plane peer")
    built = subprocess.run(
        (go, "build", "-mod=readonly", "-o", str(binary), "."),
        cwd=_SOURCE,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if built.returncode:
        say(f"go-control-plane is left out: it cannot be built here:\n{built.stderr[-1000:]}")
        return None
    return (str(binary),)
