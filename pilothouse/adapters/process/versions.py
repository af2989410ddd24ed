# SPDX-License-Identifier: Apache-2.0
"""What every program's `--version` prints: the package, its commit, and the Envoy that it finds."""

import asyncio
import os

from pilothouse import buildinfo
from pilothouse.adapters.process import envoy


def version_text(program: str) -> str:
    """Two lines; an Envoy that is missing is part of the answer, not an error."""
    own = f"{program} {buildinfo.version()} (commit {buildinfo.commit()})"
    try:
        path = envoy.find_envoy(os.environ.get("PILOTHOUSE_ENVOY_PATH") or None)
        found = f"envoy {asyncio.run(envoy.envoy_version(path))} ({path})"
    except envoy.EnvoyNotFoundError as error:
        found = f"envoy: {error}"
    return f"{own}\n{found}"
