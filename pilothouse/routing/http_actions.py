# SPDX-License-Identifier: Apache-2.0
"""Reads what the routes of a RouteRule do with their requests."""

from __future__ import annotations

import dataclasses

from pilothouse.api.config.v1alpha1 import http_actions_pb2, route_rule_pb2
from pilothouse.routing import http_matches, plan, readers, treatment


def answer(route: route_rule_pb2.HttpRoute) -> plan.Redirect | plan.DirectResponse | None:
    """What is answered instead of sending requests on; None when they are sent on."""
    if route.HasField("redirect"):
        return _redirect(route.redirect)
    if route.HasField("direct_response"):
        response = route.direct_response
        return plan.DirectResponse(
            status=response.status, body=response.body, data=response.body_bytes
        )
    return None


def _redirect(redirect: route_rule_pb2.HttpRedirect) -> plan.Redirect:
    return plan.Redirect(
        code=redirect.code if redirect.HasField("code") else 302,
        scheme=redirect.scheme or None,
        host=redirect.host or None,
        port=redirect.port if redirect.HasField("port") else None,
        path=redirect.path or None,
        prefix=redirect.prefix or None,
        strip_query=redirect.strip_query,
    )


def retry(retry: route_rule_pb2.HttpRetry) -> plan.Retry | None:
    """When a failed request is tried again; None for never."""
    attempts = retry.attempts if retry.HasField("attempts") else plan.Retry().attempts
    if attempts == 0:
        return None
    back_off = retry.back_off
    return plan.Retry(
        attempts=attempts,
        per_try_timeout_ms=readers.milliseconds(retry.per_try_timeout) or None,
        retry_on=_conditions(retry),
        status_codes=tuple(sorted(retry.status_codes)),
        response_headers=tuple(
            sorted(map(http_matches.header, retry.response_headers), key=dataclasses.astuple)
        ),
        back_off_ms=readers.milliseconds(back_off.base) or None,
        max_back_off_ms=readers.milliseconds(back_off.max) or None,
        per_try_idle_timeout_ms=readers.milliseconds(retry.per_try_idle_timeout) or None,
        previous_hosts=retry.previous_hosts,
        other_priorities=retry.other_priorities,
    )


def _conditions(retry: route_rule_pb2.HttpRetry) -> tuple[str, ...]:
    """Those that are named, and those that other fields imply."""
    named = tuple(retry.retry_on) or plan.Retry().retry_on
    implied = {
        "retriable-status-codes": bool(retry.status_codes),
        "retriable-headers": bool(retry.response_headers),
    }
    return (*named, *(name for name, there in implied.items() if there and name not in named))


def rewrite(route: route_rule_pb2.HttpRoute) -> treatment.Rewrite | None:
    """How requests change before they are sent on; None for not at all."""
    if not route.HasField("rewrite"):
        return None
    return treatment.Rewrite(
        path=_path(route.rewrite),
        host=route.rewrite.host,
        destination_host=route.rewrite.destination_host,
    )


def _path(rewrite: http_actions_pb2.HttpRewrite) -> treatment.PathRewrite | None:
    match rewrite.WhichOneof("path"):
        case "prefix":
            return treatment.PathRewrite(kind="prefix", value=rewrite.prefix)
        case "full":
            return treatment.PathRewrite(kind="full", value=rewrite.full)
        case "regex":
            regex = rewrite.regex
            return treatment.PathRewrite(
                kind="regex", value=regex.substitution, pattern=regex.pattern
            )
        case "template":
            return treatment.PathRewrite(kind="template", value=rewrite.template)
        case _:
            return None
