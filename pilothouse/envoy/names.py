# SPDX-License-Identifier: Apache-2.0
"""The names of Envoy's resources: one grammar, which people, metrics and tools may rely on.

A cluster, and the endpoints of that cluster, are named by up to five parts with ``|`` between them;
empty parts at the end are left out::

    DIRECTION "|" PORT [ "|" LABELS [ "|" SERVICE [ "|" SCOPE ] ] ]

    DIRECTION  outbound or inbound
    PORT       the service's port; for inbound the application's; one of UDP ends with /udp
    LABELS     KEY=VALUE, sorted, with "," between them
    SERVICE    NAME.NAMESPACE of a service, external:NAME.NAMESPACE of an ExternalService
    SCOPE      from:NAMESPACE where the clients of that namespace have a cluster of their own

    outbound|9080||reviews.default               every endpoint of port 9080
    outbound|9080|version=v2|reviews.default     those that have the label
    outbound|443||external:github.default        an ExternalService
    outbound|9080||reviews.default|from:shop     as the clients in namespace shop see it
    outbound|53/udp||dns.default                 a port of UDP
    outbound|0                                   the address of the host that is asked for
    inbound|8080                                 the application beside the proxy
    inbound|0                                    the proxy and its replicas, for weighing zones

Whatever a part holds besides ASCII letters, digits and ``-_./`` is written as ``%XX``, its UTF-8
bytes in upper-case hex; so are a dot and a slash in a namespace. Different keys therefore have
different names, and a name can be read back. A name of more than ``MAX_LENGTH`` characters keeps
its beginning and ends with ``~`` and 32 hex digits, the front of the whole name's SHA-256: such a
name tells its cluster from others, but is not read back. Names are plain ASCII.

The certificate of the secret ``shop-tls`` in the namespace ``default`` is named
``secret|default/shop-tls``; what it says of the certificates of others,
``authority|default/shop-tls``.

Listeners and route configurations are named where they are planned, and arrive here as they are:
``http-proxy`` (a sidecar's HTTP proxy), ``inbound|PORT``, ``gateway|PORT``.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib import parse

from pilothouse.model import keys, secrets
from pilothouse.routing import plan

MAX_LENGTH: Final = 200
"""Longest name of a cluster, in characters."""

UNRESOLVED: Final = "unresolved"
"""The cluster that never exists: the share of a route whose reference cannot be resolved."""

_EXTERNAL: Final = "external:"
_UDP: Final = "/udp"
_SCOPE: Final = "from:"
_SECRET: Final = "secret|"  # noqa: S105  a prefix
_AUTHORITY: Final = "authority|"
_HASH_DIGITS: Final = (
    32  # 128 bits: labels are the user's, so collisions must be beyond an adversary's reach
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/-]*", re.ASCII)


def cluster(key: plan.ClusterKey) -> str:
    """The name of a cluster and of its endpoints."""
    port = f"{key.port}{_UDP}" if key.udp else str(key.port)
    parts = [key.direction, port, _labels(key.labels), _service(key), _scope(key)]
    while not parts[-1]:
        parts.pop()
    name = "|".join(parts)
    if len(name) <= MAX_LENGTH:
        return name
    digest = hashlib.sha256(name.encode("ascii")).hexdigest()[:_HASH_DIGITS]
    return f"{name[: MAX_LENGTH - _HASH_DIGITS - 1]}~{digest}"


def cluster_or_none(key: plan.ClusterKey | None) -> str:
    """The name of a cluster, or of the one that never exists."""
    return UNRESOLVED if key is None else cluster(key)


def parse_cluster(name: str) -> plan.ClusterKey:
    """Read the name of a cluster.

    Raises:
        ValueError: ``name`` is not what `cluster` gives for some key, or it was shortened.
    """
    if "~" in name:
        raise ValueError(f"cluster name {name!r} was shortened and cannot be read back")
    direction, _, rest = name.partition("|")
    port, labels, service, scope, *more = [*rest.split("|"), "", "", ""]
    try:
        key = plan.ClusterKey(
            direction=plan.Direction(direction),
            port=int(port.removesuffix(_UDP)),
            udp=port.endswith(_UDP),
            labels=_parse_labels(labels),
            service=_parse_service(service.removeprefix(_EXTERNAL)),
            external=service.startswith(_EXTERNAL),
            scope=_unescape(scope.removeprefix(_SCOPE)),
        )
    except ValueError as error:
        raise ValueError(f"{name!r} is not the name of a cluster: {error}") from error
    if any(more) or cluster(key) != name:  # a key has one name, and this is another spelling of it
        raise ValueError(f"{name!r} is not the name of a cluster")
    return key


def stat(name: str) -> str:
    """A name in metrics: without dots, since Envoy splits a metric's name at them."""
    return name.replace(".", "/")


def secret(key: secrets.SecretKey) -> str:
    """The name of a certificate, for SDS."""
    return f"{_SECRET}{_escape(key.namespace, dots=False)}/{_escape(key.name)}"


def authority(key: secrets.SecretKey) -> str:
    """The name of what signs the certificates of others, for SDS."""
    return f"{_AUTHORITY}{secret(key).removeprefix(_SECRET)}"


def usable(key: secrets.SecretKey | secrets.AuthorityKey) -> str:
    """The name of one of the things that a secret may hold."""
    return authority(key.secret) if isinstance(key, secrets.AuthorityKey) else secret(key)


def parse_secret(name: str) -> secrets.SecretKey:
    """Read the name of a certificate.

    Raises:
        ValueError: ``name`` is not what `secret` gives for some key.
    """
    namespace, _, rest = name.removeprefix(_SECRET).partition("/")
    key = secrets.SecretKey(namespace=_unescape(namespace), name=_unescape(rest))
    if secret(key) != name:
        raise ValueError(f"{name!r} is not the name of a secret")
    return key


def _escape(text: str, *, dots: bool = True) -> str:
    """Write punctuation as %XX; with ``dots`` False, dots and slashes too."""
    if not dots:
        return _escape(text).replace(".", "%2E").replace("/", "%2F")
    if _PLAIN.fullmatch(text):
        return text
    return parse.quote(text, safe="/").replace("~", "%7E")  # quote leaves ~ as it is


def _unescape(part: str) -> str:
    return parse.unquote(part, errors="strict")


def _labels(labels: keys.Labels) -> str:
    return ",".join(f"{_escape(key)}={_escape(value)}" for key, value in labels)


def _parse_labels(part: str) -> keys.Labels:
    pairs = [pair.partition("=") for pair in part.split(",")] if part else []
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(f"labels {part!r} are not KEY=VALUE")
    return tuple((_unescape(key), _unescape(value)) for key, _, value in pairs)


def _service(key: plan.ClusterKey) -> str:
    prefix = _EXTERNAL if key.external else ""
    if key.service is None:
        return prefix
    name = _escape(key.service.name)
    namespace = _escape(key.service.namespace, dots=False)
    return f"{prefix}{name}.{namespace}"


def _parse_service(part: str) -> keys.ServiceKey | None:
    if not part:
        return None
    name, dot, namespace = part.rpartition(".")
    if not dot:
        raise ValueError(f"service {part!r} is not NAME.NAMESPACE")
    return keys.ServiceKey(namespace=_unescape(namespace), name=_unescape(name))


def _scope(key: plan.ClusterKey) -> str:
    return f"{_SCOPE}{_escape(key.scope)}" if key.scope else ""
