# SPDX-License-Identifier: Apache-2.0
"""Where a request to a gateway ends up, worked out from its RouteRules by what they document.

Slow and plain on purpose: it shares no code with what it judges.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pilothouse.config import objects

NOT_FOUND = "404"


def answer(
    configs: Iterable[objects.Config], host: str, path: str, *, listener: str = "http"
) -> str:
    """What happens to a request.

    Args:
        configs: RouteRules, and anything else.
        host: As in the Host header, perhaps with a port.
        path: Without query.
        listener: Name of the listener that it comes in by.

    Returns:
        ``NAMESPACE/SERVICE:PORT``, ``redirect SCHEME[:PORT] CODE``, or ``404``.
    """
    rules = [each for each in configs if each.key.kind == "RouteRule"]
    here = [each for each in rules if _attached(each, listener)]
    name = host.partition(":")[0].lower()
    domain = _domain({one for rule in here for one in _spec(rule).hosts}, name)
    found = [
        (order, rule, route)
        for rule in here
        if domain in _spec(rule).hosts
        for order, route in _matching(rule, host, path)
    ]
    if not found:
        return NOT_FOUND
    _, rule, route = min(found, key=lambda each: each[0])
    if route.HasField("redirect"):
        port = f":{route.redirect.port}" if route.redirect.HasField("port") else ""
        return f"redirect {route.redirect.scheme}{port} {route.redirect.code}"
    (destination,) = route.destinations
    namespace = destination.namespace or rule.key.namespace
    port = f":{destination.port}" if destination.HasField("port") else ""
    return f"{namespace}/{destination.service}{port}"


def _spec(rule: objects.Config) -> Any:
    return rule.spec


def _attached(rule: objects.Config, listener: str) -> bool:
    return any(parent.listener in ("", listener) for parent in _spec(rule).parents)


def _domain(domains: set[str], name: str) -> str | None:
    """Envoy's choice: exact, then the longest suffix, then everything."""
    if name in domains:
        return name
    suffixes = [one for one in domains if one.startswith("*.") and name.endswith(one[1:])]
    longest = max(suffixes, key=len, default=None)
    return longest or ("*" if "*" in domains else None)


def _matching(rule: objects.Config, host: str, path: str) -> Iterator[tuple[Any, Any]]:
    spec = _spec(rule)
    for position, route in enumerate(spec.http):
        for match in route.matches:
            rank = _path_rank(match.path, path)
            if rank is None or not all(_header(each, host) for each in match.headers):
                continue
            age = (rule.meta.created, rule.key.namespace, rule.key.name)
            yield (-spec.priority, rank, -len(match.headers), age, position), route


def _path_rank(test: Any, path: str) -> tuple[int, int] | None:
    match test.WhichOneof("test"):
        case "exact":
            return (0, 0) if path == test.exact else None
        case "prefix":
            wanted = [part for part in test.prefix.split("/") if part]
            given = path.rstrip("/").split("/")[1:] if path.rstrip("/") else []
            return (1, -len(test.prefix)) if given[: len(wanted)] == wanted else None
        case "regex":
            return (2, -len(test.regex)) if re.fullmatch(test.regex, path) else None
        case _:
            return 3, 0


def _header(test: Any, host: str) -> bool:
    assert test.name == ":authority"
    return re.fullmatch(test.regex, host) is not None
