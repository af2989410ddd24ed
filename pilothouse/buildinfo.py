# SPDX-License-Identifier: Apache-2.0
"""Which Pilothouse this is: its version, and the git commit that it was built from.

Asks the installed package and, in a work tree, git: not for pure packages.
"""

import importlib
import importlib.metadata
import subprocess
from pathlib import Path

UNKNOWN = "unknown"


def version() -> str:
    """The version of the installed distribution."""
    return importlib.metadata.version("pilothouse")


def commit() -> str:
    """The commit that the build wrote down; in a work tree git's; "unknown" when nobody knows."""
    try:
        written: str = importlib.import_module("pilothouse._commit").COMMIT
    except ModuleNotFoundError:
        return commit_of(Path(__file__).resolve().parent.parent)
    return written


def commit_of(root: Path) -> str:
    """The commit of the work tree at `root`, marked when it is changed; the build asks this too."""
    # Only a .git of its own counts: an unpacked sdist may lie inside somebody else's work tree.
    if not (root / ".git").exists():
        return UNKNOWN
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return found.stdout.strip()
