# SPDX-License-Identifier: Apache-2.0
"""Whole configurations of one proxy, made from nothing, under the names of istio's benchmarks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

from bench import istio_cases, results
from pilothouse.config import codec, documents, objects, schema
from pilothouse.envoy import translate
from pilothouse.kubernetes import services as kubernetes
from pilothouse.model import keys, proxy
from pilothouse.routing import plan, planner, state
from pilothouse.xds import resources, types

NAME = "istio-generation"
REPEATS = 3
_COUNTED = (types.CLUSTER, types.ENDPOINT, types.LISTENER, types.ROUTE, types.EXTENSION)

T = TypeVar("T")


async def run(_chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """In this process."""
    rows = []
    for name, case in istio_cases.CASES.items():
        say(f"istio-generation: {name}")
        rows.append(_row(name, case))
    return rows


def _row(name: str, case: istio_cases.Case) -> results.Row:
    mesh_state = _state("---\n".join(case.manifests()))
    node = proxy.Proxy(id=proxy.NodeId.parse(case.node), labels=keys.labels(app="edge"))
    arranged, mesh = _best(lambda: planner.Planner().update(mesh_state))
    planning, planned = _best(lambda: planner.Planner().update(mesh_state).plan(node))
    assert isinstance(planned, plan.ProxyPlan)
    assert mesh.plan(node) == planned
    translating, snapshot = _best(lambda: translate.Translator().snapshot(planned, {}))
    return results.Row(
        sizes={"case": name},
        measures={
            "arrange ms": round(arranged * 1e3, 2),
            "arrange and plan ms": round(planning * 1e3, 2),
            "translate ms": round(translating * 1e3, 2),
            **_sizes(snapshot),
        },
        command=results.command(NAME),
    )


def _sizes(snapshot: resources.Snapshot) -> dict[str, results.Value]:
    found: dict[str, results.Value] = {}
    for one in _COUNTED:
        made = [
            resource
            for layer in snapshot.layers
            for resource in layer.resources(one.type_url).values()
        ]
        kilobytes = sum(len(resource.body) for resource in made) / 1024
        found[one.short] = f"{len(made)} ({kilobytes:.0f} KB)" if made else "-"
    return found


def _state(text: str) -> state.MeshState:
    found, problems = documents.load(text, location="bench")
    known, mistakes = kubernetes.registry_state(found)
    configs: dict[keys.ObjectKey, objects.Config] = {}
    wrong = [*problems, *mistakes]
    for document in found:
        if document.manifest["apiVersion"] == schema.API_VERSION:
            config, more = codec.from_manifest(document, source=NAME)
            wrong += more
            if config is not None:
                configs[config.key] = config
    if wrong:
        raise ValueError(f"a case has mistakes: {wrong[0]}")
    return state.MeshState(
        services=known.services,
        endpoints=known.endpoints,
        workloads=known.workloads,
        configs=dict(sorted(configs.items())),
    )


def _best(make: Callable[[], T]) -> tuple[float, T]:
    """Seconds of CPU, the best of some repeats, and what was made."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.thread_time()
        made = make()
        best = min(best, time.thread_time() - began)
    return best, made


BENCHMARK = results.Benchmark(
    name=NAME,
    title="The configuration of one proxy, from nothing, in the cases of istio's benchmarks",
    budget="none of their own; those of single resources are above",
    run=run,
)
