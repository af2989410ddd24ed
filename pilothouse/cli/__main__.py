# SPDX-License-Identifier: Apache-2.0
"""``pilothouse``: the user's command."""

from pilothouse.cli.app import main

if __name__ == "__main__":
    main()
