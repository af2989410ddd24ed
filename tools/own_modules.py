# SPDX-License-Identifier: Apache-2.0
"""Makes the modules of our own protos: `protos/pilothouse/api/**` -> `pilothouse/api/**`.

These are checked in, so that a reader finds them and a reviewer sees what a change does.
"""

import shutil
import tempfile
from pathlib import Path

from tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
API = ROOT / "pilothouse" / "api"


def trees() -> list[str]:
    """The folders of `pilothouse/api` that are ours: config, registry, status."""
    return sorted(path.name for path in (PROTOS / "pilothouse" / "api").iterdir() if path.is_dir())


def update() -> None:
    """Bring the checked-in modules up to date."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "new"
        generate(made)
        for tree in trees():
            for stale in [*(API / tree).rglob("*_pb2*.py"), *(API / tree).rglob("*_pb2*.pyi")]:
                if not (made / stale.relative_to(API)).exists():
                    stale.unlink()
            shutil.copytree(made / tree, API / tree, dirs_exist_ok=True)


def generate(out: Path) -> None:
    """Write the modules below `out`, which must not exist."""
    files = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        outputs = ("python_out", "grpc_python_out", "mypy_out", "mypy_grpc_out")
        flags = [f"--{output}={_quiet(output)}{scratch}" for output in outputs]
        protoc.run([f"-I{PROTOS}", *flags, *files])
        made = Path(scratch) / "pilothouse" / "api"
        protoc.finish(made)
        shutil.copytree(made, out)


def _quiet(output: str) -> str:
    return "quiet:" if output.startswith("mypy") else ""
