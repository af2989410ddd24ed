# SPDX-License-Identifier: Apache-2.0
"""What an Ingress asks for in annotations: ours, and those of ingress-nginx that people bring.

An annotation that restricts who may come in, and that is not understood, must not be passed over:
the Ingress is refused then, and its paths answer 503. All others that have no effect are told of.
"""

from __future__ import annotations

import dataclasses

from pilothouse.kubernetes import ingress_objects

OURS = "pilothouse.dev/"
NGINX = "nginx.ingress.kubernetes.io/"

_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})
_OFF = _FALSE | {"", "off"}

_PROTECTIVE = frozenset(
    {
        "allowlist-source-range",
        "auth-secret",
        "auth-snippet",
        "auth-tls-secret",
        "auth-tls-verify-client",
        "auth-type",
        "auth-url",
        "configuration-snippet",
        "denylist-source-range",
        "enable-modsecurity",
        "enable-owasp-core-rules",
        "modsecurity-snippet",
        "satisfy",
        "server-snippet",
        "ssl-passthrough",
        "whitelist-source-range",
    }
)
_REDIRECT = "ssl-redirect"
_FORCE = "force-ssl-redirect"
_REGEX = "use-regex"
_CANARY = "canary"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The annotations of an Ingress, understood."""

    ssl_redirect: bool = True
    """Send plain HTTP requests for hosts with TLS to HTTPS."""
    force_ssl_redirect: bool = False
    """Send them there without TLS of our own too: somebody before us has it."""
    use_regex: bool = False
    """Paths of type ImplementationSpecific are regular expressions."""
    refused: tuple[str, ...] = ()
    """Annotations that protect something, and that are not understood; sorted."""
    canary: bool = False
    """It is the canary of another Ingress."""
    ignored: tuple[str, ...] = ()
    """Annotations without effect, and why where that is not plain; sorted."""


def read(ingress: ingress_objects.Ingress) -> Wishes:
    """Read the annotations of an Ingress; our own win over those of ingress-nginx."""
    found = dict(ingress.head.annotations)
    wrong: list[str] = []

    def flag(name: str, *, default: bool) -> bool:
        for prefix in (OURS, NGINX):
            value = found.get(prefix + name)
            if value is None:
                continue
            if value in _TRUE | _FALSE:
                return value in _TRUE
            wrong.append(f"{prefix}{name}: must be true or false, is {value!r}")
        return default

    understood = {prefix + name for prefix in (OURS, NGINX) for name in (_REDIRECT, _FORCE, _REGEX)}
    refused = []
    for name, value in found.items():
        short = name.removeprefix(NGINX)
        if short == name and not name.startswith(OURS):
            continue
        if short in _PROTECTIVE:
            if value.strip() not in _OFF:
                refused.append(name)
        elif name not in understood and short != _CANARY:
            wrong.append(name)
    return Wishes(
        ssl_redirect=flag(_REDIRECT, default=True),
        force_ssl_redirect=flag(_FORCE, default=False),
        use_regex=flag(_REGEX, default=False),
        canary=found.get(NGINX + _CANARY, "") in _TRUE,
        refused=tuple(sorted(refused)),
        ignored=tuple(sorted(wrong)),
    )
