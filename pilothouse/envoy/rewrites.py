# SPDX-License-Identifier: Apache-2.0
"""Rewrites of paths and hosts, for requests that are sent on and for redirects.

Envoy replaces a prefix as text, and knows nothing of elements: ``/foo`` replaced by ``/`` would
make ``//bar`` of ``/foo/bar``, and ``/`` replaced by ``/new`` would make ``/newbar`` of ``/bar``.
"""

from __future__ import annotations

import re
from typing import Final, assert_never

from pilothouse.api.envoy.config.route.v3 import route_components_pb2
from pilothouse.api.envoy.extensions.path.rewrite.uri_template.v3 import uri_template_rewrite_pb2
from pilothouse.api.envoy.type.matcher.v3 import regex_pb2
from pilothouse.envoy import wire
from pilothouse.routing import plan, treatment

_TEMPLATE_REWRITER: Final = "envoy.path.rewrite.uri_template.uri_template_rewriter"
_WHOLE: Final = "^.*$"

Action = route_components_pb2.RouteAction | route_components_pb2.RedirectAction


def fill(
    made: route_components_pb2.RouteAction, rewrite: treatment.Rewrite, match: plan.RouteMatch
) -> None:
    """A rewrite of what is sent on."""
    if rewrite.path is not None:
        _fill_path(made, rewrite.path, match)
    if rewrite.host:
        made.host_rewrite_literal = rewrite.host
    elif rewrite.destination_host:
        made.auto_host_rewrite.value = True


def _fill_path(
    made: route_components_pb2.RouteAction,
    rewrite: treatment.PathRewrite,
    match: plan.RouteMatch,
) -> None:
    match rewrite.kind:
        case "prefix":
            fill_prefix(made, rewrite.value, match)
        case "full":
            _fill_regex(made.regex_rewrite, _WHOLE, rewrite.value.replace("\\", "\\\\"))
        case "regex":
            _fill_regex(made.regex_rewrite, rewrite.pattern, rewrite.value)
        case "template":
            template = uri_template_rewrite_pb2.UriTemplateRewriteConfig(
                path_template_rewrite=rewrite.value
            )
            made.path_rewrite_policy.name = _TEMPLATE_REWRITER
            made.path_rewrite_policy.typed_config.CopyFrom(wire.packed(template))
        case _:
            assert_never(rewrite.kind)


def fill_prefix(made: Action, value: str, match: plan.RouteMatch) -> None:
    """A value in the place of what the prefix of a match took."""
    elements = value.rstrip("/")
    match match.path_kind:
        case "any":
            made.prefix_rewrite = f"{elements}/"
        case "prefix" if elements:
            made.prefix_rewrite = elements
        case "prefix":
            case = "(?i)" if match.ignore_case else ""
            _fill_regex(made.regex_rewrite, f"{case}^{re.escape(match.path)}/*", "/")
        case _:
            made.prefix_rewrite = value


def _fill_regex(made: regex_pb2.RegexMatchAndSubstitute, pattern: str, value: str) -> None:
    made.pattern.regex = pattern
    made.substitution = value
