# SPDX-License-Identifier: Apache-2.0
"""Makes `pilothouse/api/{envoy,google,udpa,validate,xds}` from the descriptors inside xds-protos.

Why not depend on xds-protos: it overwrites files of opentelemetry-proto and of other packages, and
breaks the OTLP exporter of whoever installs us (docs/adr/0001). So it is a build requirement only,
and its modules are moved below `pilothouse.api`, where they clash with nothing.
"""

import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tools import protoc

ROOT = Path(__file__).resolve().parent.parent
API = ROOT / "pilothouse" / "api"
TREES = ("envoy", "google", "udpa", "validate", "xds")
# What is generated, by the start of its path. Of Google's files only those that no distribution
# brings (Envoy's RBAC needs them): the rest comes from googleapis-common-protos and protobuf.
MOVED = ("envoy", "google/api/expr", "udpa", "validate", "xds")
ROOTS = Path(__file__).with_name("envoy_roots.txt")
STAMP = API / "envoy" / ".stamp"
_GENERATOR = ("envoy_modules.py", "extract_descriptors.py", "protoc.py", "envoy_roots.txt")


def ensure() -> bool:
    """Make the modules unless they are there and up to date; True when there was work to do."""
    if up_to_date():
        return False
    # Made aside and moved into place, so that nobody ever imports half a tree.
    with tempfile.TemporaryDirectory(prefix=".gen-", dir=API) as scratch:
        made = Path(scratch) / "new"
        generate(made)
        for tree in TREES:
            if (API / tree).exists():
                (API / tree).rename(Path(scratch) / tree)
            (made / tree).rename(API / tree)
    return True


def up_to_date() -> bool:
    """Whether every tree is there, whole, and made by this very generator."""
    if not STAMP.exists() or not all((API / tree).is_dir() for tree in TREES):
        return False
    return STAMP.read_text() == _stamp(API)


def generate(out: Path) -> None:
    """Write all four trees below `out`, which must not exist."""
    out.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        descriptors = Path(scratch) / "descriptors.bin"
        _extract(descriptors, Path(scratch))
        protoc.run(
            [
                f"--descriptor_set_in={descriptors}",
                f"--python_out={out}",
                f"--mypy_out=quiet:{out}",
                *_files(descriptors),
            ]
        )
    protoc.finish(out, moved=[path.replace("/", ".") for path in MOVED])
    (out / "envoy" / STAMP.name).write_text(_stamp(out))


def roots() -> list[str]:
    """The proto files that are wanted for their own sake."""
    lines = ROOTS.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pinned(name: str) -> str:
    """The exact version that the build requirements give for a distribution."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requires: list[str] = project["build-system"]["requires"]
    return next(r.removeprefix(f"{name}==") for r in requires if r.startswith(f"{name}=="))


def _extract(descriptors: Path, scratch: Path) -> None:
    source = _xds_protos(scratch)
    script = Path(__file__).with_name("extract_descriptors.py")
    subprocess.run(
        [sys.executable, str(script), str(source), str(descriptors), *roots()], check=True
    )


def _xds_protos(scratch: Path) -> Path:
    """Where to load xds-protos from: the build's own environment, or a wheel fetched aside."""
    version = pinned("xds-protos")
    try:
        installed = importlib.metadata.distribution("xds-protos")
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        if installed.version == version:
            return Path(str(installed.locate_file("")))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch)]
    subprocess.run([*pip, f"xds-protos=={version}"], check=True)
    return next(scratch.glob("xds_protos-*.whl"))  # Python imports from a wheel as it is


def _files(descriptors: Path) -> list[str]:
    from google.protobuf import descriptor_pb2  # noqa: PLC0415 - only when there is work

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes()).file
    return sorted(f.name for f in files if f.name.startswith(tuple(f"{path}/" for path in MOVED)))


def _stamp(api: Path) -> str:
    """What the modules depend on, and how many files they are."""
    digest = hashlib.sha256()
    for name in _GENERATOR:
        digest.update(Path(__file__).with_name(name).read_bytes())
    versions = " ".join(
        f"{name}={pinned(name)}" for name in ("xds-protos", "grpcio-tools", "mypy-protobuf")
    )
    count = sum(1 for tree in TREES for _ in (api / tree).rglob("*.py*") if _.suffix != ".pyc")
    return f"{versions} generator={digest.hexdigest()} files={count}\n"


def remove() -> None:
    """Delete what `ensure` made."""
    for tree in TREES:
        shutil.rmtree(API / tree, ignore_errors=True)
