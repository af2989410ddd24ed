# SPDX-License-Identifier: Apache-2.0
"""The `pilothouse-agent` program: runs the agent, as process 1 of a container under a reaper."""

import os
import sys

from pilothouse.adapters.process import reaper


def _agent() -> int:
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # our children exec at once
    from pilothouse_agent import app  # noqa: PLC0415 - after the fork, so the reaper stays small

    return app.main(sys.argv[1:])


def main() -> None:
    """Run it, and end with its exit code."""
    sys.exit(reaper.run_as_init(_agent))


if __name__ == "__main__":
    main()
