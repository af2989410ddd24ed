# SPDX-License-Identifier: Apache-2.0
"""Reads what the routes of a RouteRule do with requests and answers, whatever becomes of them."""

from __future__ import annotations

from collections.abc import Mapping

from pilothouse.api.config.v1alpha1 import http_actions_pb2, route_rule_pb2
from pilothouse.routing import treatment as treated


def treatment(route: route_rule_pb2.HttpRoute) -> treated.Treatment:
    """All of it; for most routes that is the very object `NOTHING`."""
    found = treated.Treatment(
        request_headers=headers(route.request_headers),
        response_headers=headers(route.response_headers),
    )
    return treated.NOTHING if found == treated.NOTHING else found


def headers(changes: http_actions_pb2.HeaderChanges) -> treated.HeaderChanges:
    """Changes of headers; none at all for an unset message."""
    return treated.HeaderChanges(
        remove=tuple(sorted(name.lower() for name in changes.remove)),
        set=_pairs(changes.set),
        add=_pairs(changes.add),
    )


def _pairs(values: Mapping[str, str]) -> treated.Pairs:
    return tuple(sorted((name.lower(), value) for name, value in values.items()))
