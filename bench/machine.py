# SPDX-License-Identifier: Apache-2.0
"""What the numbers were measured on. No names of hosts or people."""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
import subprocess
from importlib import metadata


def describe() -> dict[str, str]:
    """The machine and the versions that matter."""
    return {
        "cores": f"{os.cpu_count()} ({_cpu()})",
        "memory": f"{_memory_kb() / 1024 / 1024:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "grpcio": metadata.version("grpcio"),
        "protobuf": metadata.version("protobuf"),
        "Go": _go(),
    }


def _cpu() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_kb() -> int:
    return int(pathlib.Path("/proc/meminfo").read_text().split()[1])


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        return "none"
    found = subprocess.run((go, "version"), capture_output=True, text=True, check=True, timeout=30)
    return found.stdout.split()[2].removeprefix("go")
