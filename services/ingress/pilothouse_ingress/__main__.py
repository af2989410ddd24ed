# SPDX-License-Identifier: Apache-2.0
"""The `pilothouse-ingress` program."""

import sys

from pilothouse_ingress import app


def main() -> None:
    """Run ingress, and end with its exit code."""
    sys.exit(app.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
