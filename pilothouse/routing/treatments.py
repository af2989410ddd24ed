# SPDX-License-Identifier: Apache-2.0
"""Reads what the routes of a RouteRule do with requests and answers, whatever becomes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pilothouse.api.config.v1alpha1 import http_actions_pb2, route_rule_pb2
from pilothouse.config import grpc_statuses
from pilothouse.routing import http_matches, readers
from pilothouse.routing import treatment as treated


def treatment(route: route_rule_pb2.HttpRoute) -> treated.Treatment:
    """All of it; for most routes that is the very object `NOTHING`."""
    found = treated.Treatment(
        request_headers=headers(route.request_headers),
        response_headers=headers(route.response_headers),
        fault=_fault(route.fault) if route.HasField("fault") else None,
        cors=_cors(route.cors) if route.HasField("cors") else None,
        compress=route.compress,
        rate_limit=_rate_limit(route.rate_limit) if route.HasField("rate_limit") else None,
        max_request_bytes=(
            route.max_request_bytes if route.HasField("max_request_bytes") else None
        ),
    )
    return treated.NOTHING if found == treated.NOTHING else found


def headers(changes: http_actions_pb2.HeaderChanges) -> treated.HeaderChanges:
    """Changes of headers; the very object `UNCHANGED` for an unset message."""
    if not (changes.remove or changes.set or changes.add):
        return treated.UNCHANGED
    return treated.HeaderChanges(
        remove=tuple(sorted(name.lower() for name in changes.remove)),
        set=_pairs(changes.set),
        add=_pairs(changes.add),
    )


def _pairs(values: Mapping[str, str]) -> treated.Pairs:
    return tuple(sorted((name.lower(), value) for name, value in values.items()))


def _fault(fault: route_rule_pb2.HttpFault) -> treated.Fault:
    delay, abort = fault.delay, fault.abort
    aborts, delays = fault.HasField("abort"), fault.HasField("delay")
    return treated.Fault(
        delay_ms=readers.milliseconds(delay.duration),
        delay_millionths=readers.millionths(delay) if delays else 0,
        abort_http=abort.http_status,
        abort_grpc=grpc_statuses.NUMBERS.get(abort.grpc_status, 0),
        abort_millionths=readers.millionths(abort) if aborts else 0,
        headers=tuple(sorted(map(http_matches.header, fault.headers), key=dataclasses.astuple)),
    )


def _cors(cors: http_actions_pb2.CorsPolicy) -> treated.Cors:
    return treated.Cors(
        origins=tuple(map(_origin, cors.allow_origins)),
        methods=tuple(cors.allow_methods),
        headers=tuple(cors.allow_headers),
        exposed=tuple(cors.expose_headers),
        max_age_s=cors.max_age.seconds if cors.HasField("max_age") else None,
        credentials=cors.allow_credentials,
        forward_unmatched=not cors.answer_unmatched_preflights,
    )


def _origin(origin: http_actions_pb2.OriginMatch) -> treated.Origin:
    match origin.WhichOneof("test"):
        case "prefix" | "suffix" | "regex" as kind:
            return treated.Origin(kind=kind, value=getattr(origin, kind))
        case _:
            return treated.Origin(kind="exact", value=origin.exact)


def _rate_limit(limit: http_actions_pb2.RateLimit) -> treated.RateLimit:
    return treated.RateLimit(
        requests=limit.requests,
        per_ms=readers.milliseconds(limit.per) if limit.HasField("per") else 1_000,
        burst=limit.burst if limit.HasField("burst") else limit.requests,
    )
