# SPDX-License-Identifier: Apache-2.0
"""The `pilothouse-discovery` program."""

import sys

from pilothouse_discovery import app


def main() -> None:
    """Run discovery, and end with its exit code."""
    sys.exit(app.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
