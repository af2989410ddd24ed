# SPDX-License-Identifier: Apache-2.0
"""Child processes: finding Envoy, asking it, and keeping one alive no longer than its parent."""

from pilothouse.adapters.process.envoy import (
    BootstrapInvalidError,
    EnvoyNotFoundError,
    envoy_version,
    find_envoy,
    validate,
)
from pilothouse.adapters.process.supervisor import Supervisor, exit_hint
from pilothouse.adapters.process.versions import version_text

__all__ = [
    "BootstrapInvalidError",
    "EnvoyNotFoundError",
    "Supervisor",
    "envoy_version",
    "exit_hint",
    "find_envoy",
    "validate",
    "version_text",
]
