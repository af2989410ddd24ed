# SPDX-License-Identifier: Apache-2.0
"""The build hook: makes Envoy's modules, and writes which commit a package was built from.

Hatchling runs it for the sdist, the wheel and an editable install. How the modules are made is
`tools/envoy_modules.py`'s business; `make gen` uses the very same.
"""

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
    from pilothouse import buildinfo  # noqa: PLC0415 - found through sys.path as set above

    carried = ROOT / "pilothouse" / "_commit.py"
    commit = buildinfo.commit_of(ROOT)
    if commit == buildinfo.UNKNOWN and carried.exists():
        return carried.read_text()
    return (
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""Written by the build: the git commit of this package."""\n\n'
        f'COMMIT = "{commit}"\n'
    )
