# SPDX-License-Identifier: Apache-2.0
"""Which virtual host and route of an Envoy configuration a request takes, as Envoy documents it.

Sources: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/route/v3/route_components.proto
and the comments of the messages it names. What these tests never meet is refused, not guessed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from pilothouse.api.envoy.config.route.v3 import route_components_pb2, route_pb2
from pilothouse.api.envoy.extensions.path.match.uri_template.v3 import uri_template_match_pb2
from pilothouse.api.envoy.type.matcher.v3 import string_pb2
from tests.support import reference_values as values

_SEGMENT = r"[a-zA-Z0-9\-._~%!$&'()+,;:@=]+"
_SEGMENTS = r"[a-zA-Z0-9\-._~%!$&'()+,;:@=/]*"


@dataclasses.dataclass(frozen=True)
class Seen:
    """A request as routes see it."""

    authority: str
    path: str
    """With the query."""
    method: str
    scheme: str
    headers: values.Headers

    def header(self, name: str) -> list[str]:
        """All values of a header."""
        pseudo = {
            ":authority": self.authority,
            ":path": self.path,
            ":method": self.method,
            ":scheme": self.scheme,
        }
        if name in pseudo:
            return [pseudo[name]]
        return [value for key, value in self.headers if key == name.lower()]


def virtual_host(
    configuration: route_pb2.RouteConfiguration, authority: str
) -> route_components_pb2.VirtualHost | None:
    """Exact domains first, then suffixes (longest first), then prefixes, then ``*``."""
    host = authority.lower()
    if configuration.ignore_port_in_host_matching:
        host = re.sub(r":\d+$", "", host)
    owners: dict[str, route_components_pb2.VirtualHost] = {}
    for one in configuration.virtual_hosts:
        for domain in one.domains:
            if domain.lower() in owners:
                raise ValueError(f"{domain} is in two virtual hosts")
            owners[domain.lower()] = one
    fitting = [domain for domain in owners if _fits(domain, host)]
    best = max(fitting, key=_specific, default=None)
    return None if best is None else owners[best]


def _fits(domain: str, host: str) -> bool:
    if domain in ("*", host):
        return True
    if domain.startswith("*"):
        return host.endswith(domain[1:]) and len(host) >= len(domain)
    return domain.endswith("*") and host.startswith(domain[:-1]) and len(host) >= len(domain)


def _specific(domain: str) -> tuple[int, int]:
    if domain == "*":
        return (0, 0)
    if domain.endswith("*"):
        return (1, len(domain))
    return (2 if domain.startswith("*") else 3, len(domain))


def route(host: route_components_pb2.VirtualHost, seen: Seen) -> route_components_pb2.Route | None:
    """The first route that matches."""
    return next((one for one in host.routes if _takes(one.match, seen)), None)


_KNOWN = {
    *("prefix", "path", "safe_regex", "path_separated_prefix", "path_match_policy"),
    *("connect_matcher", "case_sensitive", "headers", "query_parameters", "runtime_fraction"),
}


def _takes(match: route_components_pb2.RouteMatch, seen: Seen) -> bool:
    unknown = {field.name for field, _ in match.ListFields()} - _KNOWN
    if unknown:
        raise ValueError(f"a match has {unknown}")
    if match.HasField("runtime_fraction"):
        fraction = match.runtime_fraction.default_value
        if fraction.numerator != 100 * 100 ** int(fraction.denominator):
            raise ValueError("a route that takes a part of its requests")
    return (
        _path(match, seen.path.partition("?")[0], seen.method)
        and all(header(one, seen) for one in match.headers)
        and all(_parameter(one, seen) for one in match.query_parameters)
    )


def _path(match: route_components_pb2.RouteMatch, path: str, method: str) -> bool:
    sensitive = not match.HasField("case_sensitive") or match.case_sensitive.value
    fold: Callable[[str], str] = str if sensitive else str.lower
    match match.WhichOneof("path_specifier"):
        case "prefix":
            return fold(path).startswith(fold(match.prefix))
        case "path":
            return fold(path) == fold(match.path)
        case "path_separated_prefix":
            wanted = fold(match.path_separated_prefix)
            return fold(path) == wanted or fold(path).startswith(wanted + "/")
        case "safe_regex":
            return re.fullmatch(match.safe_regex.regex, path) is not None
        case "connect_matcher":
            return method == "CONNECT"
        case "path_match_policy":
            return re.fullmatch(template_expression(template_of(match)), path) is not None
        case other:
            raise ValueError(f"a path of kind {other}")


def template_of(match: route_components_pb2.RouteMatch) -> str:
    """The template of a match."""
    config = uri_template_match_pb2.UriTemplateMatchConfig()
    if not match.path_match_policy.typed_config.Unpack(config):
        raise ValueError(match.path_match_policy.typed_config.type_url)
    return config.path_template


def template_expression(template: str) -> str:
    """An expression that matches what a template does, with its names as groups.

    See https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/path/match/uri_template/v3/
    uri_template_match.proto.
    """

    def wildcard(found: re.Match[str]) -> str:
        text = found.group(0)
        taken = _SEGMENTS if "**" in text else _SEGMENT
        name = found.group(1)
        return f"(?P<{name}>{taken})" if name else taken

    pattern = re.compile(r"\{(\w+)(?:=\*\*?)?\}|\*\*?")
    parts, last = [], 0
    for found in pattern.finditer(template):
        parts += [re.escape(template[last : found.start()]), wildcard(found)]
        last = found.end()
    return "".join((*parts, re.escape(template[last:])))


def header(matcher: route_components_pb2.HeaderMatcher, seen: Seen) -> bool:
    """Whether the test of a header holds.

    Each value is looked at alone (`envoy.reloadable_features.match_headers_individually`).
    """
    found = seen.header(matcher.name)
    if matcher.WhichOneof("header_match_specifier") == "present_match":
        return (bool(found) is matcher.present_match) is not matcher.invert_match
    if not found:
        if not matcher.treat_missing_header_as_empty:
            return False  # "an inverted match, too, does not match a header that is absent"
        found = [""]
    return any(_value(matcher, value) for value in found) is not matcher.invert_match


def _value(matcher: route_components_pb2.HeaderMatcher, value: str) -> bool:
    match matcher.WhichOneof("header_match_specifier"):
        case "string_match":
            return string(matcher.string_match, value)
        case "range_match":
            number = re.fullmatch(r"[+-]?\d+", value)
            limits = matcher.range_match
            return number is not None and limits.start <= int(value) < limits.end
        case other:
            raise ValueError(f"a header match of kind {other}")


def _parameter(matcher: route_components_pb2.QueryParameterMatcher, seen: Seen) -> bool:
    pairs = [part.partition("=")[::2] for part in seen.path.partition("?")[2].split("&")]
    value = next((value for name, value in pairs if name == matcher.name), None)
    match matcher.WhichOneof("query_parameter_match_specifier"):
        case "present_match":
            return (value is not None) is matcher.present_match
        case "string_match":
            return value is not None and string(matcher.string_match, value)
        case other:
            raise ValueError(f"a parameter match of kind {other}")


def string(matcher: string_pb2.StringMatcher, value: str) -> bool:
    """Whether the test of a text holds."""
    fold: Callable[[str], str] = str.lower if matcher.ignore_case else str
    match matcher.WhichOneof("match_pattern"):
        case "exact":
            return fold(value) == fold(matcher.exact)
        case "prefix":
            return fold(value).startswith(fold(matcher.prefix))
        case "suffix":
            return fold(value).endswith(fold(matcher.suffix))
        case "contains":
            return fold(matcher.contains) in fold(value)
        case "safe_regex":
            return re.fullmatch(matcher.safe_regex.regex, value) is not None
        case other:
            raise ValueError(f"a text match of kind {other}")
