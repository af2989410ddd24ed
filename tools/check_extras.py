# SPDX-License-Identifier: Apache-2.0
"""`make check-extras`: each service installs and starts alone, from the wheel and its extra.

What a machine lacks that runs only this service shows here and nowhere else: in a development
environment everything is installed anyhow.
"""

import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = {
    "discovery": ("pilothouse-discovery", "pilothouse_discovery"),
    "ingress": ("pilothouse-ingress", "pilothouse_ingress"),
    "egress": ("pilothouse-egress", "pilothouse_egress"),
    "agent": ("pilothouse-agent", "pilothouse_agent"),
    "cli": ("pilothouse", "pilothouse.cli"),
}
AT_ONCE = 2
# Imports every module of a package: none may need what the extra does not bring.
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
# xds-protos, or whatever else writes over opentelemetry-proto, breaks this import.
IMPORT_OTLP = "import opentelemetry.exporter.otlp.proto.grpc.trace_exporter"


def main() -> int:
    """Check all extras, or those named on the command line; 1 when one fails."""
    wanted = sys.argv[1:] or list(EXTRAS)
    with tempfile.TemporaryDirectory(prefix="pilothouse-extras-") as scratch:
        wheel = _build_wheel(Path(scratch))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            checks = [pool.submit(_check, extra, wheel, Path(scratch)) for extra in wanted]
            return max([check.result() for check in checks])


def _build_wheel(scratch: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(scratch), str(ROOT)], check=True)
    return next(scratch.glob("pilothouse-*.whl"))


def _check(extra: str, wheel: Path, scratch: Path) -> int:
    """Install one extra and run its program; what fails is printed whole."""
    began = time.monotonic()
    home = scratch / extra
    venv.create(home, with_pip=False)
    program, package = EXTRAS[extra]
    python = str(home / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    commands = [
        [*pip, "install", "--quiet", *constraints, f"{wheel}[{extra}]"],
        [*pip, "check"],
        [python, "-c", IMPORT_OTLP],
        [python, "-c", IMPORT_ALL, package],
        [str(home / "bin" / program), "--help"],
        [str(home / "bin" / program), "--version"],
    ]
    for command in commands:
        # From an empty folder, lest the work tree be imported.
        done = subprocess.run(
            command, cwd=home, env=_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            print(f"{extra}: FAILED {' '.join(command)}\n{done.stdout}{done.stderr}", flush=True)
            return 1
    print(f"{extra}: ok, {done.stdout.strip()} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


def _environment() -> dict[str, str]:
    """Ours, less what would reach into the developer's environment."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


if __name__ == "__main__":
    sys.exit(main())
