# SPDX-License-Identifier: Apache-2.0
"""What is done to requests and answers on their way, in a plan's words."""

from __future__ import annotations

import dataclasses
from typing import Literal

from pilothouse.routing import header_tests


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PathRewrite:
    """How the path changes; the query does not."""

    kind: Literal["prefix", "full", "regex", "template"]
    """``prefix`` takes the place of what the match's prefix took."""
    value: str
    """What is put in: for ``regex`` with ``\\1`` for groups, for ``template`` with ``{name}``."""
    pattern: str = ""
    """For ``regex`` only."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """How a request changes before it is sent on."""

    path: PathRewrite | None = None
    host: str = ""
    destination_host: bool = False
    """The host becomes the name that the endpoint was resolved from, where there is one."""


Pairs = tuple[tuple[str, str], ...]
"""Names in lower case and values, sorted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeaderChanges:
    """First some go, then values are replaced, then values are added."""

    remove: tuple[str, ...] = ()
    """Lower case, sorted."""
    set: Pairs = ()
    add: Pairs = ()


UNCHANGED = HeaderChanges()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Requests that are held back, and requests that are answered with an error."""

    delay_ms: int = 0
    delay_millionths: int = 0
    """The share of requests, of a million; 0 for none."""
    abort_http: int = 0
    """The status; 0 for none."""
    abort_grpc: int = 0
    """The number of a gRPC status; 0 for none."""
    abort_millionths: int = 0
    headers: tuple[header_tests.HeaderMatch, ...] = ()
    """Only requests for which all of these hold; sorted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A test of an origin; ``*`` as a whole is any."""

    kind: header_tests.StringKind
    value: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cors:
    """Which scripts of other origins may use the answers. Lists are in the order written."""

    origins: tuple[Origin, ...]
    methods: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    max_age_s: int | None = None
    """None leaves it to the browser."""
    credentials: bool = False
    forward_unmatched: bool = True
    """Preflights of other origins are sent on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A bucket of tokens, of which each request takes one."""

    requests: int
    """Tokens that come in each period."""
    per_ms: int
    burst: int
    """Tokens that the bucket holds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What a route does with its requests and answers, whatever becomes of them."""

    request_headers: HeaderChanges = UNCHANGED
    response_headers: HeaderChanges = UNCHANGED
    fault: Fault | None = None
    cors: Cors | None = None
    rate_limit: RateLimit | None = None
    max_request_bytes: int | None = None
    compress: bool = False
    """Answers, at gateways."""


NOTHING = Treatment()
