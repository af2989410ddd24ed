# SPDX-License-Identifier: Apache-2.0
"""`make gen` and `make gen-check`: `python -m tools.generate [--check]`."""

import argparse
import filecmp
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools import envoy_modules, own_modules, reference_pages


def main() -> int:
    """Generate everything, or say what generating would change; 1 when something would."""
    parser = argparse.ArgumentParser(description="Generate pilothouse/api and reference pages.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail on a difference")
    if not parser.parse_args().check:
        made = "made" if envoy_modules.ensure() else "up to date"
        own_modules.update()
        reference_pages.update()
        print(f"pilothouse/api: Envoy's modules {made}, our own written; reference pages written")
        return 0
    pages = reference_pages.stale()
    for name in pages:
        print(
            f"docs/reference/objects/{name}: differs from what `make gen` writes", file=sys.stderr
        )
    stale = [
        *_stale(own_modules.generate, own_modules.trees()),
        *_stale(envoy_modules.generate, envoy_modules.TREES),
    ]
    for name in stale:
        print(f"pilothouse/api/{name}: differs from what `make gen` writes", file=sys.stderr)
    return 1 if stale or pages else 0


def _stale(generate: Callable[[Path], None], trees: list[str] | tuple[str, ...]) -> list[str]:
    """The files below `pilothouse/api` that are not what `generate` would write now."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "new"
        generate(made)
        names = {
            str(path.relative_to(base))
            for base in (made, envoy_modules.API)
            for tree in trees
            for path in (base / tree).rglob("*")
            if path.suffix in {".py", ".pyi"}
        }
        _match, mismatch, missing = filecmp.cmpfiles(
            made, envoy_modules.API, sorted(names), shallow=False
        )
    return sorted([*mismatch, *missing])


if __name__ == "__main__":
    sys.exit(main())
