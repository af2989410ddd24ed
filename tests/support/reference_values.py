# SPDX-License-Identifier: Apache-2.0
"""What the reference matcher and the walker of Envoy's configuration speak of, in plain values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

Manifest = Mapping[str, Any]
"""An object in the shape of its YAML."""

Headers = tuple[tuple[str, str], ...]
"""Names in lower case, and values, sorted by name; values of one name in their order."""

NOWHERE = "nowhere"
"""In the place of a target: what is answered 500."""

ANSWER: Headers = (("x-a", "application"), ("x-b", "application"))
"""The headers, of those that tests change, with which applications answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Client:
    """Where a request arrives: at the sidecar of an application, or at a port of a gateway."""

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    """Of its workload, or of a gateway proxy."""
    address: str = "10.0.9.9"
    port: int | None = None
    """Of a gateway; None for a sidecar."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A request as a client writes it."""

    authority: str
    """Host, with a port where the client writes one."""
    path: str = "/"
    """With the query."""
    method: str = "GET"
    scheme: str = "http"
    headers: Headers = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """What becomes of some of a route's requests."""

    target: str
    """``NAMESPACE/NAME:PORT[ KEY=VALUE...]``, with ``external `` before it, or `NOWHERE`."""
    endpoints: tuple[str, ...] | None = None
    """Where they go, HOST:PORT; with none they are answered 503. None where that is not known."""
    request_headers: Headers = ()
    """Those that the target gets."""
    response_headers: Headers = ()
    """Those that the client gets of what the application answers, which is `ANSWER`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retry:
    """When a request is tried again; times in milliseconds."""

    attempts: int
    retry_on: frozenset[str]
    status_codes: tuple[int, ...] = ()
    per_try_timeout: int = 0
    per_try_idle_timeout: int = 0
    previous_hosts: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """What a route does to requests on purpose; shares of all requests."""

    delay_ms: int = 0
    delayed: Fraction = Fraction(0)
    status: int = 0
    aborted: Fraction = Fraction(0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What becomes of a request."""

    route: str = ""
    """``RouteRule/NAMESPACE/NAME[/grpc]/POSITION[/ROUTE]`` or ``default``; empty for none."""
    status: int = 0
    """Of an answer without asking anybody; 0 when the request is sent on."""
    body: str | None = None
    """Of such an answer; None when nothing is said about it."""
    location: str = ""
    response_headers: Headers = ()
    """Of such an answer, those that tests change."""
    shares: Mapping[Share, Fraction] = dataclasses.field(default_factory=dict)
    mirrors: Mapping[str, Fraction] = dataclasses.field(default_factory=dict)
    """By target, the share of requests that are copied."""
    path: str = ""
    """As the target sees it, with the query."""
    host: str = ""
    """As the target sees it."""
    timeout_ms: int = 0
    retry: Retry | None = None
    fault: Fault = Fault()
    cors: bool = False
    max_request_bytes: int | None = None


def canonical_location(url: str) -> str:
    """A URL without the default port of its scheme."""
    found = re.fullmatch(r"(http|https)://([^/]*?)(:\d+)?(/.*)", url)
    if found is None:
        return url
    scheme, host, port, path = found.groups()
    default = {"http": ":80", "https": ":443"}[scheme]
    return f"{scheme}://{host}{'' if port in (None, default) else port}{path}"


def resolved_path(path: str) -> str:
    """A path and query as routes see them: the path is normalised, then repeated slashes are one.

    RFC 3986, section 6.2.2.2: escapes of what needs none are decoded; section 5.2.4: dots are
    resolved. A backslash is a slash. A query that is empty goes.
    """
    path, _, query = path.partition("?")
    path = _ESCAPES.sub(lambda found: chr(int(found.group(1), 16)), path.replace("\\", "/"))
    kept: list[str] = []
    elements = path.split("/")[1:]
    for element in elements:
        if element == "..":
            del kept[-1:]
        elif element != ".":
            kept.append(element)
    if elements[-1] in (".", ".."):
        kept.append("")
    merged = re.sub("/+", "/", "/" + "/".join(kept))
    return f"{merged}?{query}" if query else merged


_ESCAPES = re.compile("%(2[DdEe]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff]|7[Ee])")
"""Of letters, digits, ``-``, ``.``, ``_`` and ``~``."""


def without_trailing_dot(authority: str) -> str:
    """An authority whose host has no dot at its end."""
    return re.sub(r"\.(:\d+)?$", r"\1", authority)


def watched(headers: Iterable[Sequence[str]]) -> Headers:
    """Those that tests change."""
    pairs = [(name, value) for name, value in headers if name in dict(ANSWER)]
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def changed(before: Headers, *changes: Manifest) -> Headers:
    """Headers after changes, one after the other: what is removed goes before what comes."""
    found = list(before)
    for change in changes:
        gone = {name.lower() for name in (*change.get("remove", ()), *change.get("set", {}))}
        found = [pair for pair in found if pair[0] not in gone]
        for come in (change.get("set", {}), change.get("add", {})):
            found += [(name.lower(), value) for name, value in come.items()]
    return tuple(sorted(found, key=lambda pair: pair[0]))
