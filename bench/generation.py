# SPDX-License-Identifier: Apache-2.0
"""What it takes to make one Envoy resource from the plan, uncached, bytes and hash included."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from bench import meshes, results
from pilothouse.config import documents
from pilothouse.envoy import clusters, endpoints, routes
from pilothouse.kubernetes import services as kubernetes
from pilothouse.model import proxy
from pilothouse.routing import plan, planner, state

NAME = "generation"
SERVICES, ENDPOINTS = 200, 50
REPEATS = 5

T = TypeVar("T")


async def run(_chosen: argparse.Namespace, say: results.Say) -> list[results.Row]:
    """In this process."""
    say(f"generation: {SERVICES} services with {ENDPOINTS} endpoints")
    planned = _plan()
    layers = planned.layers
    made = {
        "cluster": _each(clusters.resource, [one for each in layers for one in each.clusters]),
        "virtual host": _each(
            routes.chunk,
            [
                host
                for each in layers
                for configuration in each.route_configurations
                for host in configuration.virtual_hosts
            ],
        ),
        "endpoint": _each(endpoints.resource, [one for each in layers for one in each.endpoints])
        / ENDPOINTS,
    }
    return [
        results.Row(
            sizes={"what": what},
            measures={"us each": round(seconds * 1e6, 2)},
            command=results.command(NAME),
        )
        for what, seconds in made.items()
    ]


def _plan() -> plan.ProxyPlan:
    text = "---\n".join(
        part
        for number in range(SERVICES)
        for part in (
            meshes.service(number),
            meshes.endpoint_slice(number, meshes.addresses(number, ENDPOINTS)),
        )
    )
    found, _ = documents.load(text, location="bench")
    known, _ = kubernetes.registry_state(found)
    mesh = planner.Planner().update(
        state.MeshState(
            services=known.services,
            endpoints=known.endpoints,
            workloads=known.workloads,
            configs={},
            unsynced=frozenset(),
            domain="cluster.local",
        )
    )
    node = proxy.NodeId.parse("sidecar~10.9.0.1~bench.default~cluster.local")
    planned = mesh.plan(proxy.Proxy(id=node))
    assert isinstance(planned, plan.ProxyPlan)
    return planned


def _each(make: Callable[[T], object], values: Sequence[T]) -> float:
    """Seconds for one value, the best of some repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.thread_time()
        for value in values:
            make(value)
        best = min(best, time.thread_time() - began)
    return best / len(values)


BENCHMARK = results.Benchmark(
    name=NAME,
    title="Generation of resources, uncached",
    budget="at most 20 us a cluster, 20 us a virtual host, 2.5 us an endpoint",
    run=run,
)
