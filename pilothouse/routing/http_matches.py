# SPDX-License-Identifier: Apache-2.0
"""Reads the matches of HTTP routes, and gives each its place in the order of all routes.

What has no test of its own in a plan becomes one of a header: cookies, the scheme and the host.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from pilothouse.api.config.v1alpha1 import matches_pb2
from pilothouse.routing import header_tests, parsed, plan

_PATH_RANK: Final[dict[plan.PathKind, int]] = {
    "exact": 0,
    "prefix": 1,
    "string_prefix": 1,
    "template": 1,
    "regex": 2,
    "any": 3,
    "connect": 3,
}
_WILDCARDS: Final = re.compile(r"\{[^{}]*\}|\*+")
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 2
"""The end of a range after which there is still one more number, as half-open ranges need."""


def match(
    message: matches_pb2.HttpMatch,
    position: int = 0,
    clients: parsed.Clients = parsed.EVERYBODY,
    *,
    grpc: bool = False,
) -> parsed.Match:
    """Read one match, which stands at some position and is for some clients, or for gRPC only."""
    kind, path = _path(message.path)
    headers = [header(each) for each in message.headers]
    headers += [_cookie(cookie) for cookie in message.cookies]
    if message.scheme:
        headers.append(plan.HeaderMatch(name=":scheme", kind="exact", value=message.scheme))
    if message.HasField("authority"):
        headers.append(_authority(message.authority))
    planned = plan.RouteMatch(
        path_kind=kind,
        path=path,
        ignore_case=message.path.ignore_case and kind in ("exact", "prefix", "string_prefix"),
        method=message.method,
        headers=tuple(sorted(set(headers), key=dataclasses.astuple)),
        query=tuple(
            sorted(
                {_query(parameter) for parameter in message.query_parameters},
                key=dataclasses.astuple,
            )
        ),
    )
    return parsed.Match(
        match=planned,
        precedence=_precedence(planned, message.path, grpc=grpc),
        port=message.port if message.HasField("port") else None,
        position=position,
        clients=clients,
    )


def _precedence(
    match: plan.RouteMatch, path: matches_pb2.PathMatch, *, grpc: bool
) -> tuple[int, ...]:
    written = getattr(path, path.WhichOneof("test") or "exact")
    if match.path_kind == "template":
        written = _WILDCARDS.sub("", written)
    return (
        _PATH_RANK[match.path_kind],
        -len(written) if match.path_kind != "any" else 0,
        # Of one length: by whole elements before by characters, in one case before in both.
        1 if match.path_kind == "string_prefix" else 0,
        1 if match.ignore_case else 0,
        0 if grpc else 1,
        0 if match.method else 1,
        -len(match.headers),
        -len(match.query),
    )


def _path(path: matches_pb2.PathMatch) -> tuple[plan.PathKind, str]:
    match path.WhichOneof("test"):
        case "exact":
            return "exact", path.exact
        case "prefix":
            # By whole elements: a trailing slash says nothing, and `/` is a prefix of everything.
            prefix = path.prefix.rstrip("/")
            return ("prefix", prefix) if prefix else ("any", "")
        case "string_prefix" if path.string_prefix != "/":
            return "string_prefix", path.string_prefix
        case "template":
            return "template", path.template
        case "regex":
            return "regex", path.regex
        case _:
            return "any", ""


def header(header: matches_pb2.HeaderMatch) -> plan.HeaderMatch:
    """Read the test of one header."""
    name = header.name.lower()
    kind: header_tests.StringKind = "exact"
    match header.WhichOneof("test"):
        case "present":
            return plan.HeaderMatch(name=name, kind="present" if header.present else "absent")
        case "regex":
            return plan.HeaderMatch(
                name=name, kind="regex", value=header.regex, invert=header.invert
            )
        case "range":
            return plan.HeaderMatch(
                name=name,
                kind="range",
                low=header.range.min if header.range.HasField("min") else _LOWEST,
                high=header.range.max if header.range.HasField("max") else _HIGHEST,
                invert=header.invert,
            )
        case "prefix" | "suffix" | "contains" as part:
            kind = part
        case _:
            pass
    return plan.HeaderMatch(
        name=name,
        kind=kind,
        value=getattr(header, kind),
        ignore_case=header.ignore_case,
        invert=header.invert,
    )


def _query(parameter: matches_pb2.QueryParameterMatch) -> plan.QueryMatch:
    name = parameter.name
    match parameter.WhichOneof("test"):
        case "prefix":
            return plan.QueryMatch(name=name, kind="prefix", value=parameter.prefix)
        case "regex":
            return plan.QueryMatch(name=name, kind="regex", value=parameter.regex)
        case "present":
            return plan.QueryMatch(name=name, kind="present" if parameter.present else "absent")
        case _:
            return plan.QueryMatch(name=name, kind="exact", value=parameter.exact)


def _cookie(cookie: matches_pb2.CookieMatch) -> plan.HeaderMatch:
    """A test of the header that has all cookies: `a=1; b=2` (RFC 6265, section 4.2.1)."""
    match cookie.WhichOneof("test"):
        case "prefix":
            value = re.escape(cookie.prefix) + "[^;]*"
        case "present":
            value = "[^;]*"
        case _:
            value = re.escape(cookie.exact) + " *"
    return plan.HeaderMatch(
        name="cookie",
        kind="regex",
        value=f"(?:.*; *)?{re.escape(cookie.name)}={value}(?:;.*)?",
        invert=cookie.WhichOneof("test") == "present" and not cookie.present,
    )


def _authority(host: matches_pb2.HostMatch) -> plan.HeaderMatch:
    """A test of the host without its port, in either case."""
    match host.WhichOneof("test"):
        case "prefix":
            value = re.escape(host.prefix) + ".*"
        case "suffix":
            value = ".*" + re.escape(host.suffix)
        case "regex":
            value = f"(?:{host.regex})"
        case _:
            value = re.escape(host.exact)
    return plan.HeaderMatch(name=":authority", kind="regex", value=f"(?i:{value})(?::[0-9]+)?")
