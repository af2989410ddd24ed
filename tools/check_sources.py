# SPDX-License-Identifier: Apache-2.0
"""`make lint`: each source file names its licence, and none grows past what a reader can hold."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LICENCE = "SPDX-License-Identifier: Apache-2.0"
MAX_LINES = 400
SUFFIXES = {".proto", ".py", ".pyi", ".sh", ".toml", ".yaml", ".yml"}
NAMES = {"Dockerfile", "Makefile", "run"}
# Nobody reads or edits these as source: generated modules, and the data of tests.
GENERATED = ("pilothouse/api/",)
DATA = ("tests/golden/",)


def main() -> int:
    """Print every complaint; 1 when there is one."""
    complaints = [complaint for path in sources() for complaint in check(path)]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def sources() -> list[Path]:
    """The source files that git knows, or would know after `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (Path(name) for name in sorted(set(listed.split("\0"))) if name)
    return [path for path in paths if _is_source(path) and (ROOT / path).is_file()]


def check(path: Path) -> Iterator[str]:
    """The complaints about one file, by its path from the root."""
    lines = (ROOT / path).read_text().splitlines()
    if lines and not any(LICENCE in line for line in lines[:3]):
        yield f"{path}:1: no '{LICENCE}' in the first three lines"
    if len(lines) > MAX_LINES and not path.as_posix().startswith(GENERATED):
        yield f"{path}:{MAX_LINES + 1}: {len(lines)} lines, more than {MAX_LINES}: split it"


def _is_source(path: Path) -> bool:
    if path.as_posix().startswith(DATA):
        return False
    return path.suffix in SUFFIXES or path.name in NAMES


if __name__ == "__main__":
    sys.exit(main())
