# SPDX-License-Identifier: Apache-2.0
"""The program of a worker; `pilothouse-discovery` starts it."""

import sys

from pilothouse_discovery.workers import program

if __name__ == "__main__":
    sys.exit(program.main(sys.argv[1:]))
