# SPDX-License-Identifier: Apache-2.0
"""Golden files: a case is a folder that holds its input beside what must come out of it.

`make golden` (pytest --rewrite-golden) writes what came out, for a person to review as a diff; CI
refuses that option.
"""

import difflib
import os
import pathlib

ROOT = pathlib.Path(__file__).parents[1] / "golden"
REWRITE = "PILOTHOUSE_REWRITE_GOLDEN"
"""Set by tests/conftest.py when pytest was told to rewrite."""


def cases(room: str) -> list[pathlib.Path]:
    """The case folders of tests/golden/ROOM, by name; LookupError when there are none."""
    found = sorted(path for path in (ROOT / room).iterdir() if path.is_dir())
    if not found:
        raise LookupError(f"no golden cases in {ROOT / room}")
    return found


def check(case_dir: pathlib.Path, name: str, text: str) -> None:
    """Compare `text` with the file `name` of a case, or rewrite the file when told to.

    An AssertionError shows the diff.
    """
    path = case_dir / name
    if os.environ.get(REWRITE):
        path.write_text(text, encoding="utf-8")
        return
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != expected:
        lines = difflib.unified_diff(
            expected.splitlines(keepends=True),
            text.splitlines(keepends=True),
            fromfile=str(path),
            tofile="what came out",
        )
        raise AssertionError("golden file differs; review, then `make golden`\n" + "".join(lines))
