# SPDX-License-Identifier: Apache-2.0
"""One way of calling protoc, and the finish that every generated Python file gets."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

SPDX = "# SPDX-License-Identifier: Apache-2.0\n"
PACKAGE_DOC = '"""Generated from protobuf files by `make gen`: do not edit."""\n'


def run(arguments: Sequence[str]) -> None:
    """Run protoc with both mypy plugins; what it says goes to the terminal."""
    command = [sys.executable, "-m", "grpc_tools.protoc"]
    plugins = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
    command += [f"--plugin={plugin}={_plugin(plugin)}" for plugin in plugins]
    subprocess.run([*command, *arguments], check=True)


def _plugin(name: str) -> str:
    # Beside the interpreter first: the venv need not be active.
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    path = shutil.which(name, path=beside)
    if path is None:
        message = f"{name} not found: install mypy-protobuf, or run `make setup`"
        raise SystemExit(message)
    return path


def finish(folder: Path, *, moved: Iterable[str] = ()) -> None:
    """Add SPDX lines and packages, drop empty service modules, point imports at pilothouse.api.

    `moved` names the top-level packages that now live below `pilothouse.api`.
    """
    _drop_empty_services(folder)
    names = "|".join(moved)
    imports = re.compile(rf"^(\s*)(from|import) ({names})([. ])", re.MULTILINE) if names else None
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.pyi")]):
        text = path.read_text()
        if imports:
            text = imports.sub(r"\1\2 pilothouse.api.\3\4", text)
        path.write_text(SPDX + text)
    for directory in [p for p in folder.rglob("*") if p.is_dir()]:
        (directory / "__init__.py").write_text(SPDX + PACKAGE_DOC)


def _drop_empty_services(folder: Path) -> None:
    # protoc writes a service module for every file, with a service or without.
    for module in folder.rglob("*_pb2_grpc.py"):
        if "\nclass " not in module.read_text():
            module.unlink()
            module.with_suffix(".pyi").unlink(missing_ok=True)
