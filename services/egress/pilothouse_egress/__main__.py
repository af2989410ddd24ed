# SPDX-License-Identifier: Apache-2.0
"""The `pilothouse-egress` program."""

import sys

from pilothouse_egress import app


def main() -> None:
    """Run egress, and end with its exit code."""
    sys.exit(app.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
