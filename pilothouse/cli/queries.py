# SPDX-License-Identifier: Apache-2.0
"""Questions to discovery: who is connected, and how far each object has travelled."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from pilothouse import buildinfo
from pilothouse.adapters import telemetry
from pilothouse.api.registry.v1alpha1 import registry_service_pb2, registry_service_pb2_grpc
from pilothouse.api.status.v1alpha1 import status_pb2, status_service_pb2, status_service_pb2_grpc

SECONDS = 10.0

Rows = list[dict[str, Any]]
Question = Callable[[grpc.aio.Channel], Awaitable[Rows]]


class NoAnswerError(Exception):
    """Discovery does not answer; the message says where it was asked, and why."""


async def ask(address: str, verb: str, question: Question) -> Rows:
    """Ask discovery at HOST:PORT on behalf of a verb.

    With OpenTelemetry's variables set the call is traced, below ``TRACEPARENT`` if there is one.

    Raises:
        NoAnswerError: it does not answer.
    """
    tracing = telemetry.tracer_provider("pilothouse", buildinfo.version())
    parent = os.environ.get("TRACEPARENT", "")
    try:
        with tracing.span(f"pilothouse {verb}", parent=parent):
            interceptors = telemetry.client_interceptors(tracing)
            async with grpc.aio.insecure_channel(address, interceptors=interceptors) as channel:
                return await question(channel)
    except grpc.aio.AioRpcError as error:
        raise NoAnswerError(
            f"discovery at {address} does not answer: {error.details()}; "
            "--discovery-address names another"
        ) from error
    finally:
        await tracing.shutdown()


async def proxies(channel: grpc.aio.Channel) -> Rows:
    """The connected clients, by node id."""
    stub = status_service_pb2_grpc.StatusServiceStub(channel)
    answer = await stub.ListProxies(status_service_pb2.ListProxiesRequest(), timeout=SECONDS)
    return [_proxy(one) for one in answer.proxies]


def _proxy(one: status_service_pb2.ProxyStatus) -> dict[str, Any]:
    refused = [kind.type_url for kind in one.types if kind.error]
    return {
        "node": one.node_id,
        "role": one.role,
        "state": "REFUSED" if refused else "SYNCED" if one.in_sync else "STALE",
        "types": {
            kind.type_url.rpartition(".")[2]: {
                "resources": kind.resources,
                "sent": kind.sent_version,
                "acked": kind.acked_version,
                "error": kind.error,
            }
            for kind in one.types
        },
    }


async def statuses(channel: grpc.aio.Channel, *, kind: str, namespace: str) -> Rows:
    """The status of every object of a kind and namespace; empty means all."""
    stub = status_service_pb2_grpc.StatusServiceStub(channel)
    request = status_service_pb2.ListObjectStatusesRequest(kind=kind, namespace=namespace)
    answer = await stub.ListObjectStatuses(request, timeout=SECONDS)
    return [_object(one) for one in answer.objects]


def _object(one: status_pb2.ObjectStatus) -> dict[str, Any]:
    status = one.status
    conditions = {condition.type: condition for condition in status.conditions}
    bad = [
        f"{c.type}: {c.message or c.reason}"
        for c in status.conditions
        if c.status != ("True" if c.type in ("Accepted", "ResolvedRefs", "Programmed") else "False")
    ]
    return {
        "kind": one.object.kind,
        "namespace": one.object.namespace,
        "name": one.object.name,
        "generation": status.observed_generation,
        "accepted": conditions["Accepted"].status if "Accepted" in conditions else "Unknown",
        "programmed": conditions["Programmed"].status if "Programmed" in conditions else "Unknown",
        "proxies": f"{status.proxies.acked}/{status.proxies.needed}",
        "needed": status.proxies.needed,
        "acked": status.proxies.acked,
        "refused": status.proxies.refused,
        "message": "; ".join(bad),
    }


async def services(channel: grpc.aio.Channel, *, namespace: str) -> Rows:
    """The services that discovery knows, with their endpoints."""
    stub = registry_service_pb2_grpc.RegistryServiceStub(channel)
    request = registry_service_pb2.ListServicesRequest(namespace=namespace)
    answer = await stub.ListServices(request, timeout=SECONDS)
    return [
        {
            "namespace": one.namespace,
            "name": one.name,
            "ports": ",".join(f"{port.number}/{port.protocol}" for port in one.ports),
            "ready": sum(1 for endpoint in one.endpoints if endpoint.ready),
            "endpoints": [
                {"address": f"{e.address}:{e.port}", "ready": e.ready, "labels": dict(e.labels)}
                for e in one.endpoints
            ],
        }
        for one in answer.services
    ]
