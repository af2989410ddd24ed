# SPDX-License-Identifier: Apache-2.0
"""Rules for single values. Each function gives None, or what is wrong, to follow the field's path.

Names are those of RFC 1123 as Kubernetes has them, labels those of Kubernetes, header names and
methods the tokens of RFC 9110.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_HOST_LABEL = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_COOKIE_VALUE = re.compile(r"[!#-+\--:<-\[\]-~]*")
_MAX_NAME = 253
MAX_PORT = 65_535
_PSEUDO_HEADERS = (":authority", ":method", ":path", ":scheme")

Rule = Callable[[str], str | None]


def label(value: str) -> str | None:
    """A DNS label: the name of a namespace, a service, a listener."""
    if _LABEL.fullmatch(value):
        return None
    return (
        "must be a DNS label (lower-case letters, digits and -, at most 63 characters, a letter"
        f" or digit first and last), is {value!r}"
    )


def subdomain(value: str) -> str | None:
    """A DNS subdomain: the name of an object."""
    if len(value) <= _MAX_NAME and _SUBDOMAIN.fullmatch(value):
        return None
    return (
        "must be a DNS subdomain (labels of lower-case letters, digits and - with dots between"
        f" them, at most {_MAX_NAME} characters), is {value!r}"
    )


def label_key(value: str) -> str | None:
    """The key of a label: a name, with or without a ``PREFIX/``."""
    prefix, slash, name = value.rpartition("/")
    if slash and (wrong := subdomain(prefix)):
        return f"the part before / {wrong}"
    if _QUALIFIED.fullmatch(name):
        return None
    return (
        "must be a label's key (letters, digits, -, _ and ., at most 63 characters, a letter or"
        f" digit first and last), is {name!r}"
    )


def label_value(value: str) -> str | None:
    """The value of a label; may be empty."""
    if not value or _QUALIFIED.fullmatch(value):
        return None
    return (
        "must be a label's value (letters, digits, -, _ and ., at most 63 characters, a letter or"
        f" digit first and last), is {value!r}"
    )


def is_ip_address(value: str) -> bool:
    """Tell whether a text is an IPv4 or IPv6 address, without brackets and without a zone."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return "%" not in value


def ip_address(value: str) -> str | None:
    """An IPv4 or IPv6 address."""
    return None if is_ip_address(value) else f"must be an IP address, is {value!r}"


def network(value: str) -> str | None:
    """An IPv4 or IPv6 address, or a network of such: ``10.1.0.0/16``."""
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return _bad_network(value)
    # Python also takes a mask in place of the length, and a scope of the address.
    _, slash, length = value.partition("/")
    if (slash and not length.isdecimal()) or "%" in value:
        return f"must be an IP address or a network such as 10.1.0.0/16, is {value!r}"
    return None


def _bad_network(value: str) -> str:
    try:
        meant = ipaddress.ip_network(value, strict=False)
    except ValueError:
        return f"must be an IP address or a network such as 10.1.0.0/16, is {value!r}"
    return f"must be a network, as {meant} is; is the address {value!r} in one"


def host(value: str) -> str | None:
    """A DNS name of one host, in any case, without a port."""
    if is_ip_address(value.strip("[]")):
        return f"must be a host name, is the IP address {value!r}"
    name, colon, port = value.rpartition(":")
    if colon and port.isdigit() and not _bad_name(name):
        return f"must be a host name without a port, is {value!r}"
    return _bad_name(value)


def _bad_name(value: str) -> str | None:
    if len(value) <= _MAX_NAME and all(_HOST_LABEL.fullmatch(part) for part in value.split(".")):
        return None
    return f"must be a host name such as shop.example.com, is {value!r}"


def host_pattern(value: str) -> str | None:
    """A DNS name, or ``*.`` before one, or ``*``."""
    if value == "*":
        return None
    name = value.removeprefix("*.")
    if "*" in name:
        return f"may have a * only as its whole first label, as in *.example.com, is {value!r}"
    return host(name)


def address(value: str) -> str | None:
    """A host name or an IP address."""
    return None if is_ip_address(value) else host(value)


def redirect_host(value: str) -> str | None:
    """A host name or an IP address as it stands in a URL: IPv6 in brackets."""
    if value.startswith("[") and value.endswith("]") and is_ip_address(value[1:-1]):
        return None
    if ":" not in value and is_ip_address(value):
        return None
    return host(value)


def authority(value: str) -> str | None:
    """A host as it stands in a URL, with or without a port."""
    name, colon, number = value.rpartition(":")
    if colon and number.isdecimal() and number.isascii() and not value.endswith("]"):
        return redirect_host(name) or port(int(number))
    return redirect_host(value)


def path(value: str) -> str | None:
    """A path without a query."""
    if not value.startswith("/"):
        return f"must begin with /, is {value!r}"
    if "?" in value or "#" in value:
        return f"must be a path without query and fragment, is {value!r}"
    return text(value)


_TEMPLATE_LITERAL = re.compile(r"[A-Za-z0-9\-._~!$&'()+,;:@=%]+")
_TEMPLATE_VARIABLE = re.compile(r"\{([A-Za-z][A-Za-z0-9_]{0,15})(?:=(\*\*?))?\}")
_TEMPLATE_NAME = re.compile(r"\{([A-Za-z][A-Za-z0-9_]*)(?:=\*\*?)?\}")
_MAX_TEMPLATE = 256
_MAX_TEMPLATE_VARIABLES = 5


def path_template(value: str) -> str | None:
    """A path of literal elements and wildcards, in the order of which ``**`` comes last."""
    if not value.startswith("/"):
        return f"must begin with /, is {value!r}"
    if len(value) > _MAX_TEMPLATE:
        return f"must be at most {_MAX_TEMPLATE} characters, has {len(value)}"
    names: list[str] = []
    elements = value[1:].split("/")
    for element in elements:
        variable = _TEMPLATE_VARIABLE.fullmatch(element)
        if variable is not None:
            names.append(variable.group(1))
        elif element not in ("*", "**") and not _TEMPLATE_LITERAL.fullmatch(element):
            wildcards = "`*`, `**`, `{name}` and `{name=**}`"
            return f"may have {wildcards} and what stands in a path as elements, has {element!r}"
    if any(element == "**" or element.endswith("=**}") for element in elements[:-1]):
        return f"may have ** only as its last element, is {value!r}"
    if len(names) > _MAX_TEMPLATE_VARIABLES:
        return f"may have at most {_MAX_TEMPLATE_VARIABLES} names, has {len(names)}"
    if len(set(names)) < len(names):
        return f"must have each name once, is {value!r}"
    return None


def template_names(value: str) -> list[str]:
    """The names in a template, or in a path that is made from what they matched."""
    return [found.group(1) for found in _TEMPLATE_NAME.finditer(value)]


def template_rewrite(value: str) -> str | None:
    """A path in which ``{name}`` stands for what a wildcard matched."""
    if not value.startswith("/"):
        return f"must begin with /, is {value!r}"
    if len(value) > _MAX_TEMPLATE:
        return f"must be at most {_MAX_TEMPLATE} characters, has {len(value)}"
    literal = re.sub(r"\{[A-Za-z][A-Za-z0-9_]{0,15}\}", "", value)
    if not all(not part or _TEMPLATE_LITERAL.fullmatch(part) for part in literal.split("/")):
        return f"may have {{name}} and what stands in a path, is {value!r}"
    return None


def cookie_name(value: str) -> str | None:
    """The name of a cookie: RFC 6265, section 4.1.1."""
    return None if _TOKEN.fullmatch(value) else f"must be the name of a cookie, is {value!r}"


def cookie_value(value: str) -> str | None:
    """The value of a cookie, or its beginning: RFC 6265, section 4.1.1."""
    if _COOKIE_VALUE.fullmatch(value):
        return None
    return f"must be the value of a cookie, without space, comma, semicolon and \\, is {value!r}"


def path_and_query(value: str) -> str | None:
    """A path with or without a query, as it stands in a request."""
    if "#" in value:
        return f"must have no fragment, is {value!r}"
    return path(value.partition("?")[0]) or text(value)


def text(value: str) -> str | None:
    """What may stand in a header's value."""
    if _CONTROL.search(value):
        return f"must have no control characters, is {value!r}"
    return None


def method(value: str) -> str | None:
    """An HTTP method in capitals."""
    if _TOKEN.fullmatch(value) and value == value.upper():
        return None
    return f"must be an HTTP method in capitals such as GET, is {value!r}"


def header_name(value: str) -> str | None:
    """A header's name in any case, or one of the pseudo-headers of a request."""
    if _TOKEN.fullmatch(value) or value.lower() in _PSEUDO_HEADERS:
        return None
    if value.startswith(":"):
        return f"must be one of {', '.join(_PSEUDO_HEADERS)} when it begins with :, is {value!r}"
    return f"must be a header name, is {value!r}"


def port(value: int) -> str | None:
    """A port number."""
    return None if 1 <= value <= MAX_PORT else f"must be from 1 to {MAX_PORT}, is {value}"


def status(value: int) -> str | None:
    """The status of an answer."""
    return None if 200 <= value <= 599 else f"must be from 200 to 599, is {value}"


_GRPC_SERVICE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_GRPC_METHOD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def grpc_service(value: str) -> str | None:
    """The full name of a gRPC service."""
    if _GRPC_SERVICE.fullmatch(value):
        return None
    return f"must be the full name of a service such as shop.v1.Cart, is {value!r}"


def grpc_method(value: str) -> str | None:
    """The name of a gRPC method."""
    return None if _GRPC_METHOD.fullmatch(value) else f"must be a method's name, is {value!r}"
