# SPDX-License-Identifier: Apache-2.0
"""Whether a match of a RouteRule takes a request, and its place among others.

Written from the comments of route_rule.proto and from the order that docs/reference/
routing-support.md publishes, for the reference matcher. It shares no code with what it judges.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from tests.support import reference_values as values

_PREFLIGHT = "access-control-request-method"


@dataclasses.dataclass(frozen=True)
class Arrived:
    """A request where rules look at it: paths are resolved, and the host has no trailing dot."""

    request: values.Request
    port: int
    """The port that it is for."""

    @property
    def path(self) -> str:
        """Without the query."""
        return values.resolved_path(self.request.path).partition("?")[0]

    @property
    def query(self) -> list[tuple[str, str]]:
        """Parameters as they are written."""
        pairs = self.request.path.partition("?")[2].split("&")
        return [(name, value) for name, _, value in (pair.partition("=") for pair in pairs)]

    @property
    def authority(self) -> str:
        """With the port that the client wrote, if any."""
        return values.without_trailing_dot(self.request.authority)

    @property
    def host(self) -> str:
        """Without port, in lower case."""
        return re.sub(r":\d+$", "", self.authority).lower()

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.headers(name)), None)

    def headers(self, name: str) -> list[str]:
        """All values of a header."""
        name = name.lower()
        pseudo = {
            ":authority": self.authority,
            ":method": self.request.method,
            ":path": values.resolved_path(self.request.path),
            ":scheme": self.request.scheme,
        }
        if name in pseudo:
            return [pseudo[name]]
        return [value for key, value in self.request.headers if key == name]

    @property
    def cookies(self) -> list[tuple[str, str]]:
        """Names and values (RFC 6265, section 4.2.1)."""
        parts = [part for header in self.headers("cookie") for part in header.split(";")]
        pairs = (part.strip().partition("=") for part in parts)
        return [(name, value) for name, equals, value in pairs if equals]

    @property
    def is_grpc(self) -> bool:
        """Whether it is a gRPC call: its content type says so."""
        kind = self.header("content-type") or ""
        return re.fullmatch(r"application/grpc([+;].*)?", kind) is not None

    @property
    def preflight_for(self) -> str | None:
        """The method that shall follow, when this is a CORS preflight."""
        if self.request.method == "OPTIONS" and self.header("origin") is not None:
            return self.header(_PREFLIGHT)
        return None


def http_takes(match: values.Manifest, arrived: Arrived, *, cors: bool) -> bool:
    """Whether a match of an HTTP route takes a request; with ``cors``, preflights find it too."""
    if not _is_for(match, arrived):
        return False
    method = match.get("method")
    if method in (None, arrived.request.method) and _headers_hold(match, arrived):
        return True
    # A preflight finds the route of what shall follow, though it is an OPTIONS without headers.
    follows = arrived.preflight_for
    asked = {"headers": [each for each in match.get("headers", ()) if each["name"].startswith(":")]}
    return (
        cors and follows is not None and method in (None, follows) and _headers_hold(asked, arrived)
    )


def _is_for(match: values.Manifest, arrived: Arrived) -> bool:
    """What holds for a preflight as for what shall follow."""
    return (
        ("path" not in match or _path(match["path"], arrived.path))
        and match.get("scheme") in (None, arrived.request.scheme)
        and ("authority" not in match or _host(match["authority"], arrived.host))
        and match.get("port") in (None, arrived.port)
        and all(_parameter(each, arrived) for each in match.get("queryParameters", ()))
    )


def _headers_hold(match: values.Manifest, arrived: Arrived) -> bool:
    return all(_header(each, arrived) for each in match.get("headers", ())) and all(
        _cookie(each, arrived) for each in match.get("cookies", ())
    )


def grpc_takes(match: values.Manifest, arrived: Arrived) -> bool:
    """Whether a match of a gRPC route takes a request."""
    _, service, method = f"{arrived.path}//".split("/")[:3]
    return (
        arrived.is_grpc
        and match.get("service") in (None, service)
        and match.get("method") in (None, method)
        and ("authority" not in match or _host(match["authority"], arrived.host))
        and match.get("port") in (None, arrived.port)
        and all(_header(each, arrived) for each in match.get("headers", ()))
    )


def _path(test: values.Manifest, path: str) -> bool:
    fold = test.get("ignoreCase", False)
    match test:
        case {"exact": wanted}:
            return _same(path, wanted, fold=fold)
        case {"prefix": wanted}:
            # By whole elements, and a trailing slash is ignored.
            elements = [part for part in wanted.split("/") if part]
            given = path[1:].split("/") if path != "/" else []
            return len(given) >= len(elements) and all(
                _same(there, one, fold=fold) for one, there in zip(elements, given, strict=False)
            )
        case {"regex": expression}:
            return re.fullmatch(expression, path) is not None
        case {"stringPrefix": wanted}:
            return _same(path[: len(wanted)], wanted, fold=fold)
        case {"template": template}:
            return _template(template[1:].split("/"), path[1:].split("/"))
    raise ValueError(test)


def _template(wanted: list[str], given: list[str]) -> bool:
    if wanted[-1] == "**" or wanted[-1].endswith("=**}"):
        before = len(wanted) - 1
        return len(given) > before and (not before or _template(wanted[:before], given[:before]))
    return len(wanted) == len(given) and all(
        bool(there) if one == "*" or one.startswith("{") else one == there
        for one, there in zip(wanted, given, strict=True)
    )


def _same(one: str, other: str, *, fold: bool) -> bool:
    return one.lower() == other.lower() if fold else one == other


def _header(test: values.Manifest, arrived: Arrived) -> bool:
    found = arrived.headers(test["name"])
    if "present" in test:
        return bool(found) is test["present"]
    if test.get("invert", False):
        # An absent header fails the test, unless an expression matches the empty text.
        absent = [""] if "regex" in test else []
        return not any(_text(test, value) for value in found or absent)
    return any(_text(test, value) for value in found)


def _text(test: values.Manifest, value: str) -> bool:
    fold = test.get("ignoreCase", False)
    match test:
        case {"exact": wanted}:
            return _same(value, wanted, fold=fold)
        case {"prefix": wanted}:
            return _same(value[: len(wanted)], wanted, fold=fold)
        case {"suffix": wanted}:
            return _same(value[-len(wanted) :], wanted, fold=fold)
        case {"contains": wanted}:
            return wanted.lower() in value.lower() if fold else wanted in value
        case {"regex": expression}:
            return re.fullmatch(expression, value) is not None
        case {"range": limits}:
            if not re.fullmatch(r"[+-]?\d+", value):
                return False
            return bool(limits.get("min", -(2**63)) <= int(value) <= limits.get("max", 2**63 - 2))
    raise ValueError(test)


def _parameter(test: values.Manifest, arrived: Arrived) -> bool:
    value = next((value for name, value in arrived.query if name == test["name"]), None)
    if "present" in test:
        return (value is not None) is test["present"]
    return value is not None and _text(test, value)


def _cookie(test: values.Manifest, arrived: Arrived) -> bool:
    found = [value for name, value in arrived.cookies if name == test["name"]]
    if "present" in test:
        return bool(found) is test["present"]
    return any(_text(test, value) for value in found)


def _host(test: values.Manifest, host: str) -> bool:
    match test:
        case {"exact": wanted}:
            return bool(host == wanted.lower())
        case {"prefix": wanted}:
            return host.startswith(wanted.lower())
        case {"suffix": wanted}:
            return host.endswith(wanted.lower())
        case {"regex": expression}:
            return re.fullmatch(expression, host, re.IGNORECASE) is not None
    raise ValueError(test)


def http_precedence(match: values.Manifest) -> tuple[Any, ...]:
    """The place of a match of an HTTP route; lower goes first."""
    return (
        *_path_precedence(match.get("path", {})),
        1,  # after gRPC routes with the same path
        0 if match.get("method") else 1,
        -len(_distinct(_header_tests(match))),
        -len(_distinct(match.get("queryParameters", ()))),
    )


def grpc_precedence(match: values.Manifest) -> tuple[Any, ...]:
    """The place of a match of a gRPC route among those of HTTP routes; lower goes first."""
    service, method = match.get("service"), match.get("method")
    path: values.Manifest = {}
    if service and method:
        path = {"exact": f"/{service}/{method}"}
    elif service:
        path = {"prefix": f"/{service}"}
    elif method:
        path = {"regex": f"/[^/]+/{method}"}
    return (*_path_precedence(path), 0, 1, -len(_distinct(_header_tests(match))), 0)


def _path_precedence(path: values.Manifest) -> tuple[int, ...]:
    """Exact, the longest prefix or template, the longest expression, any path."""
    fold = int(path.get("ignoreCase", False))
    match path:
        case {"exact": wanted}:
            return (0, -len(wanted), 0, fold)
        case {"prefix": wanted} if wanted.strip("/"):
            return (1, -len(wanted), 0, fold)
        case {"stringPrefix": wanted} if wanted != "/":
            return (1, -len(wanted), 1, fold)
        case {"template": template}:
            literal = re.sub(r"\{[^}]*\}|\*", "", template)
            return (1, -len(literal), 0, 0)
        case {"regex": expression}:
            return (2, -len(expression), 0, 0)
    return (3, 0, 0, 0)


def _header_tests(match: values.Manifest) -> Iterator[Any]:
    """Cookies, the scheme and the host count as headers."""
    for header in match.get("headers", ()):
        yield {**header, "name": header["name"].lower()}
    yield from ({"cookie": cookie} for cookie in match.get("cookies", ()))
    for name in ("scheme", "authority"):
        if name in match:
            yield {name: match[name]}


def _distinct(tests: Any) -> set[str]:
    return {repr(sorted(each.items())) for each in tests}
