# SPDX-License-Identifier: Apache-2.0
"""Paths that a route is looked for by: those that a path can still be once it is normalised.

Proxies do that before they match, so a match with any other path would never apply. The Gateway API
refuses such paths in its `HTTPPathMatch` as well, and Kubernetes in an Ingress. Two differences:
escapes of slashes stay as they are, and a prefix by characters may end anywhere in an element.

Each function gives None, or what is wrong, to follow the field's path.
"""

from __future__ import annotations

import re

from pilothouse.config import syntax

_UNRESERVED = re.compile("%(2[DEde]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff]|7[Ee])")
"""Of letters, digits, ``-``, ``.``, ``_`` and ``~`` (RFC 3986, section 2.3)."""
_SLASHES = re.compile("/+")


def whole(value: str) -> str | None:
    """A path, or the first elements of one."""
    return syntax.path(value) or _as_matched(value, _resolved(_decoded(value)))


def part(value: str) -> str | None:
    """The first characters of a path; its last element may go on."""
    elements, slash, begun = _decoded(value).rpartition("/")
    return syntax.path(value) or _as_matched(value, _resolved(elements + slash) + begun)


def template(value: str) -> str | None:
    """A path of literal elements and wildcards."""
    return syntax.path_template(value) or _as_matched(value, _resolved(_decoded(value)))


def _as_matched(value: str, normal: str) -> str | None:
    if value == normal:
        return None
    return f"must be as it is when routes are matched, {normal!r}, is {value!r}"


def _decoded(path: str) -> str:
    """Without escapes that nothing needs (RFC 3986, section 6.2.2.2), and with slashes only."""
    return _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path.replace("\\", "/"))


def _resolved(path: str) -> str:
    """Dots resolved (RFC 3986, section 5.2.4), then slashes merged."""
    kept: list[str] = []
    elements = path.split("/")[1:]
    for element in elements:
        if element == "..":
            del kept[-1:]
        elif element != ".":
            kept.append(element)
    if elements[-1:] in (["."], [".."]):
        kept.append("")
    return _SLASHES.sub("/", "/" + "/".join(kept))
