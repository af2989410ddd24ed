# SPDX-License-Identifier: Apache-2.0
"""What `--version` prints: the package, its commit, and the Envoy that would run."""

import asyncio
import os

from pilothouse import buildinfo
from pilothouse.adapters import process


def text() -> str:
    """Two lines; an Envoy that is missing is part of the answer, not an error."""
    own = f"pilothouse-agent {buildinfo.version()} (commit {buildinfo.commit()})"
    try:
        path = process.find_envoy(os.environ.get("PILOTHOUSE_ENVOY_PATH") or None)
        envoy = f"envoy {asyncio.run(process.envoy_version(path))} ({path})"
    except process.EnvoyNotFoundError as error:
        envoy = f"envoy: {error}"
    return f"{own}\n{envoy}"
