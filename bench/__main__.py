# SPDX-License-Identifier: Apache-2.0
"""``python -m bench``: run the benchmarks and print their numbers as a table and as JSON."""

import argparse
import asyncio
import json
import os
import sys

from bench import endpoint_fanout


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--services", type=int, default=1000, help="services in the mesh")
    parser.add_argument(
        "--streams", type=int, nargs="*", default=[100, 1000], help="numbers of delta streams"
    )
    parser.add_argument("--rounds", type=int, default=20, help="endpoint changes for each number")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    chosen = parser.parse_args()
    rows = []
    for streams in chosen.streams:
        shape = endpoint_fanout.Shape(
            services=chosen.services, streams=streams, rounds=chosen.rounds
        )
        rows.append(asyncio.run(endpoint_fanout.run(shape, say=_progress)))
    result = {"cores": os.cpu_count(), "rows": rows}
    if not chosen.json:
        sys.stdout.write(endpoint_fanout.table(rows) + "\n\n")
    sys.stdout.write(json.dumps(result, indent=2, sort_keys=True) + "\n")


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
