# SPDX-License-Identifier: Apache-2.0
"""``python -m bench``: run benchmarks, and print their numbers as tables and as JSON."""

import argparse
import dataclasses
import datetime as dt
import json
import os
import pathlib
import signal
import sys

import uvloop

from bench import (
    churn,
    cold_build,
    endpoint_fanout,
    endpoint_unwatched,
    gateway_route,
    generation,
    idle_proxies,
    istio_generation,
    machine,
    plots,
    reconnect,
    results,
    route_change,
    worker_fanout,
)

_ALL = (
    *(endpoint_fanout.BENCHMARK, worker_fanout.BENCHMARK, endpoint_unwatched.BENCHMARK),
    gateway_route.BENCHMARK,
    *(reconnect.BENCHMARK, route_change.BENCHMARK, cold_build.BENCHMARK),
    *(idle_proxies.BENCHMARK, generation.BENCHMARK, istio_generation.BENCHMARK, churn.BENCHMARK),
)
BENCHMARKS = {each.name: each for each in _ALL}
DOCUMENT = pathlib.Path(__file__).parent.parent / "docs" / "performance.md"


def main() -> None:
    """Run what was asked for."""
    # So that servers are stopped and folders removed however it ends.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    chosen = _arguments()
    found: dict[str, list[results.Row]] = {}
    before = os.getloadavg()[0]
    for name in chosen.names or BENCHMARKS:
        found[name] = uvloop.run(BENCHMARKS[name].run(chosen, _progress))
    about = {
        **machine.describe(),
        "load average": f"{before:.1f} before, {os.getloadavg()[0]:.1f} after",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }
    result = {
        "machine": about,
        "benchmarks": {
            name: [dataclasses.asdict(row) for row in rows] for name, rows in found.items()
        },
    }
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(result, indent=2) + "\n")
    facts = "\n".join(f"- {key}: {value}" for key, value in about.items())
    sections = "\n".join(
        results.section(
            BENCHMARKS[name],
            rows,
            plots.write(BENCHMARKS[name], rows, _progress) if chosen.write_docs else (),
        )
        for name, rows in found.items()
    )
    sys.stdout.write(f"{facts}\n\n{sections}")
    if chosen.write_docs:
        results.write_between_markers(DOCUMENT, f"{facts}\n\n{sections}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        choices=[*BENCHMARKS, []],
        help=f"which to run: {', '.join(BENCHMARKS)} (default: all)",
    )
    parser.add_argument(
        "--services", type=int, nargs="+", default=[100, 1000], help="services in the mesh"
    )
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[100, 1000], help="clients that are connected"
    )
    parser.add_argument("--rounds", type=int, default=20, help="changes for each row")
    parser.add_argument(
        "--large", type=int, nargs="+", default=[1000, 10000], help="services of a cold start"
    )
    parser.add_argument(
        "--rules", type=int, nargs="+", default=[100, 3000], help="rules of a gateway"
    )
    parser.add_argument(
        "--larger", action="store_true", help="also 5,000 streams and 10,000 services: minutes more"
    )
    parser.add_argument("--connects", type=int, default=10_000, help="connects and disconnects")
    parser.add_argument("--no-peers", action="store_true", help="leave other servers out")
    parser.add_argument("--json", type=pathlib.Path, help="file to write all numbers to")
    parser.add_argument(
        "--write-docs", action="store_true", help=f"put tables and plots into {DOCUMENT.name}"
    )
    return parser.parse_args()


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
