# SPDX-License-Identifier: Apache-2.0
"""Matches: which requests a route takes, in Envoy's words.

Messages are filled in place here: there are many, and copying nested ones takes half the time.
"""

from __future__ import annotations

from typing import Final, assert_never

from pilothouse.api.envoy.config.route.v3 import route_components_pb2
from pilothouse.api.envoy.extensions.path.match.uri_template.v3 import uri_template_match_pb2
from pilothouse.api.envoy.type.matcher.v3 import string_pb2
from pilothouse.envoy import wire
from pilothouse.routing import header_tests, plan

TEMPLATE_MATCHER: Final = "envoy.path.match.uri_template.uri_template_matcher"


def fill(made: route_components_pb2.RouteMatch, match: plan.RouteMatch) -> None:
    """All conditions of a match."""
    _fill_path(made, match)
    if match.ignore_case:
        made.case_sensitive.value = False
    if match.method:
        made.headers.add(name=":method").string_match.exact = match.method
    for header in match.headers:
        fill_header(made.headers.add(), header)
    for parameter in match.query:
        _fill_query(made.query_parameters.add(), parameter)


def _fill_path(made: route_components_pb2.RouteMatch, match: plan.RouteMatch) -> None:
    match match.path_kind:
        case "any":
            made.prefix = "/"
        case "exact":
            made.path = match.path
        case "prefix":
            made.path_separated_prefix = match.path
        case "string_prefix":
            made.prefix = match.path
        case "template":
            template = uri_template_match_pb2.UriTemplateMatchConfig(path_template=match.path)
            made.path_match_policy.name = TEMPLATE_MATCHER
            made.path_match_policy.typed_config.CopyFrom(wire.packed(template))
        case "regex":
            made.safe_regex.regex = match.path
        case "connect":
            made.connect_matcher.SetInParent()
        case _:
            assert_never(match.path_kind)


def fill_header(made: route_components_pb2.HeaderMatcher, header: plan.HeaderMatch) -> None:
    """A test of one header."""
    made.name = header.name
    match header.kind:
        case "present":
            made.present_match = True
        case "absent":
            made.present_match = False
        case "range":
            made.range_match.start = header.low
            made.range_match.end = header.high + 1  # Envoy's ranges are half-open
        case _:
            fill_string(made.string_match, header.kind, header.value)
            if header.ignore_case:
                made.string_match.ignore_case = True
    if header.invert:
        made.invert_match = True
        # Else Envoy says of a header that is absent that no test holds, not even an inverted one.
        made.treat_missing_header_as_empty = True


def _fill_query(
    made: route_components_pb2.QueryParameterMatcher, parameter: plan.QueryMatch
) -> None:
    made.name = parameter.name
    match parameter.kind:
        case "present":
            made.present_match = True
        case "absent":
            made.present_match = False
        case _:
            fill_string(made.string_match, parameter.kind, parameter.value)


def fill_string(made: string_pb2.StringMatcher, kind: header_tests.StringKind, value: str) -> None:
    """A test of a text."""
    match kind:
        case "exact":
            made.exact = value
        case "prefix":
            made.prefix = value
        case "suffix":
            made.suffix = value
        case "contains":
            made.contains = value
        case "regex":
            made.safe_regex.regex = value
        case _:
            assert_never(kind)
