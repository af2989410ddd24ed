# SPDX-License-Identifier: Apache-2.0
"""Which requests a route takes, in a plan's words."""

from __future__ import annotations

import dataclasses
from typing import Literal

from pilothouse.routing import header_tests

PathKind = Literal["any", "exact", "prefix", "string_prefix", "template", "regex", "connect"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueryMatch:
    """A test of one parameter of the query, as it is written there."""

    name: str
    kind: Literal["exact", "prefix", "regex", "present", "absent"]
    value: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RouteMatch:
    """All conditions that are set must hold."""

    path_kind: PathKind = "any"
    """``prefix`` is by whole path elements; its value has no trailing slash and is not ``/`` (that
    is ``any``). ``string_prefix`` is by characters. ``template`` is of literal elements, ``*``,
    ``{name}``, and last ``**`` or ``{name=**}``. ``connect`` takes CONNECT requests, which have no
    path and which nothing else takes; they become connections."""
    path: str = ""
    ignore_case: bool = False
    """Of the path; not for templates and expressions."""
    method: str = ""
    headers: tuple[header_tests.HeaderMatch, ...] = ()
    query: tuple[QueryMatch, ...] = ()
