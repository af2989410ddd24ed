# SPDX-License-Identifier: Apache-2.0
"""The build hook: makes Envoy's modules, and writes which commit a package was built from.

Hatchling runs it for the sdist, the wheel and an editable install. How the modules are made is
`tools/envoy_modules.py`'s business; `make gen` uses the very same.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class PilothouseBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's is generic
    """What hatchling calls before and after it packs the files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make what is not in git; `version` is "editable" for `pip install -e`."""
        sys.path.insert(0, str(ROOT))
        if self.target_name == "wheel":
            from tools import envoy_modules  # noqa: PLC0415 - found through the line above

            envoy_modules.ensure()
        # An editable install would go on telling the commit of the day it was made.
        if version != "editable":
            self._scratch = tempfile.TemporaryDirectory()
            path = Path(self._scratch.name) / "_commit.py"
            path.write_text(_commit_module())
            build_data["force_include"][str(path)] = "pilothouse/_commit.py"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Drop the written file again, now that it is packed."""
        del build_data, artifact_path
        if version != "editable":
            self._scratch.cleanup()


def _commit_module() -> str:
    """The text of `pilothouse/_commit.py`: git's word, else the sdist's, else "unknown"."""
    carried = ROOT / "pilothouse" / "_commit.py"
    # Only our own .git counts: an unpacked sdist may lie inside somebody else's work tree.
    if not (ROOT / ".git").exists() and carried.exists():
        return carried.read_text()
    return (
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""Written by the build: the git commit of this package."""\n\n'
        f'COMMIT = "{_git_commit()}"\n'
    )


def _git_commit() -> str:
    if not (ROOT / ".git").exists():
        return "unknown"
    describe = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        found = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
