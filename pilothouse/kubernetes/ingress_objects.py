# SPDX-License-Identifier: Apache-2.0
"""Ingress and IngressClass manifests, each read on its own; the rules are the API server's.

An Ingress that breaks one of them is refused whole, as the API server would, with every violation
named. It costs no other Ingress anything.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from pilothouse.config import documents, objects, syntax
from pilothouse.kubernetes import fields, manifests
from pilothouse.model import keys

DEFAULT_CLASS_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"
CLASS_ANNOTATION = "kubernetes.io/ingress.class"

PathType = Literal["Exact", "Prefix", "ImplementationSpecific"]
_PATH_TYPES: dict[str, PathType] = {
    "Exact": "Exact",
    "Prefix": "Prefix",
    "ImplementationSpecific": "ImplementationSpecific",
}
# What the API server refuses in a path that is Exact or Prefix: requests are matched as cleaned.
_NEVER_IN_PATH = ("//", "/./", "/../", "%2f", "%2F")
_NEVER_AT_END = ("/.", "/..")
_MAX_CONTROLLER = 250


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBackend:
    """A port of a Service in the Ingress's own namespace, by name or by number."""

    name: str
    port: int | str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResourceBackend:
    """Some other object; nothing here can serve it."""

    kind: str
    name: str


Backend = ServiceBackend | ResourceBackend


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A path of a rule."""

    field: str
    """Where it stands: ``spec.rules[0].http.paths[1]``."""
    type: PathType
    path: str
    """Empty only for ImplementationSpecific: every path."""
    backend: Backend


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The paths of one host."""

    field: str
    """Where it stands: ``spec.rules[0]``."""
    host: str
    """Empty for every host; may begin with ``*.`` for exactly one label."""
    paths: tuple[Path, ...]
    """Empty when the rule names a host and nothing else."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Hosts that are served over TLS, and the secret with their certificate."""

    field: str
    """Where it stands: ``spec.tls[0]``."""
    hosts: tuple[str, ...]
    """Empty for all hosts of the Ingress."""
    secret: str
    """Empty for the default certificate."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ingress:
    """An Ingress."""

    head: fields.Head
    class_name: str
    """``spec.ingressClassName``; empty when unset."""
    default_backend: Backend | None
    rules: tuple[Rule, ...]
    tls: tuple[Tls, ...]

    @property
    def key(self) -> keys.ObjectKey:
        """Kind, namespace, name."""
        return self.head.key

    @property
    def seniority(self) -> tuple[int, str, str]:
        """Sorts the older first, then by namespace and name: who wins what only one can have."""
        return (self.head.created, self.key.namespace, self.key.name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IngressClass:
    """An IngressClass."""

    head: fields.Head
    controller: str
    is_default: bool

    @property
    def name(self) -> str:
        """What ``spec.ingressClassName`` calls it."""
        return self.head.key.name


Parsed = Ingress | IngressClass
KINDS = frozenset({"Ingress", "IngressClass"})


def read(
    document: documents.RawDocument,
) -> tuple[Parsed | None, tuple[objects.Problem, ...]]:
    """Read an Ingress or IngressClass.

    Returns:
        The object, and no problem; or None, and a problem for each violation. (None, ()) for every
        other object.
    """
    kind = manifests.known_kind(document)
    if kind not in KINDS:
        return None, ()
    root = fields.Field(document.manifest)
    parsed: Parsed = _ingress(root) if kind == "Ingress" else _class(root)
    if root.violations:
        return None, fields.problems(document, root, manifests.key_of(document))
    return parsed, ()


def _class(root: fields.Field) -> IngressClass:
    head = fields.head(root, namespaced=False)
    controller = root["spec"]["controller"]
    name = controller.required()
    if len(name) > _MAX_CONTROLLER:
        controller.refuse(f"must have at most {_MAX_CONTROLLER} characters")
    return IngressClass(
        head=head,
        controller=name,
        is_default=head.annotation(DEFAULT_CLASS_ANNOTATION) == "true",
    )


def _ingress(root: fields.Field) -> Ingress:
    head = fields.head(root)
    spec = root["spec"]
    rules = tuple(_rule(item) for item in spec["rules"].each())
    default = _backend(spec["defaultBackend"]) if spec["defaultBackend"].present else None
    if default is None and not rules and not spec["defaultBackend"].present:
        spec.refuse("one of rules and defaultBackend is required")
    return Ingress(
        head=head,
        class_name=spec["ingressClassName"].text(),
        default_backend=default,
        rules=rules,
        tls=tuple(_tls(item) for item in spec["tls"].each()),
    )


def _rule(item: fields.Field) -> Rule:
    host = item["host"]
    http = item["http"]
    name = host.text()
    if name:
        _check_host(host, name)
    paths = tuple(path for each in http["paths"].each() if (path := _path(each)) is not None)
    if http.present and not http["paths"].value:
        http["paths"].refuse("at least one is required")
    return Rule(field=item.path, host=name, paths=paths)


def _check_host(field: fields.Field, name: str) -> None:
    base = name.removeprefix("*.")
    if syntax.is_ip_address(name):
        field.refuse(f"must be a DNS name, not the IP address {name!r}")
    elif syntax.subdomain(base):
        field.refuse(f"must be a lower-case DNS name without port, or *. and one, is {name!r}")


def _path(item: fields.Field) -> Path | None:
    path, path_type = item["path"], item["pathType"]
    kind = _PATH_TYPES.get(path_type.required())
    if kind is None:
        if path_type.text():
            path_type.refuse(f"must be {', '.join(_PATH_TYPES)}, is {path_type.text()!r}")
        return None
    text = path.text()
    _check_path(path, text, kind)
    backend = _backend(item["backend"])
    if backend is None:
        return None
    return Path(field=item.path, type=kind, path=text, backend=backend)


def _check_path(field: fields.Field, text: str, kind: PathType) -> None:
    if kind == "ImplementationSpecific":
        if text and not text.startswith("/"):
            field.refuse(f"must begin with /, is {text!r}")
        return
    if not text.startswith("/"):
        field.refuse(f"must begin with /, is {text!r}")
    found = [each for each in _NEVER_IN_PATH if each in text]
    found += [each for each in _NEVER_AT_END if text.endswith(each)]
    if found:
        field.refuse(f"must not have {found[0]!r}, is {text!r}")


def _backend(item: fields.Field) -> Backend | None:
    """The backend; None, noted, when there is not exactly one."""
    service, resource = item["service"], item["resource"]
    if service.present == resource.present:
        item.refuse("exactly one of service and resource is required")
        return None
    if resource.present:
        return ResourceBackend(kind=resource["kind"].required(), name=resource["name"].required())
    name = service["name"].required()
    if name and (wrong := syntax.label(name)):
        service["name"].refuse(wrong)
    port = service["port"]
    if port["name"].present == port["number"].present:
        port.refuse("exactly one of name and number is required")
        return None
    number = port["number"].number(low=1, high=65535)
    return ServiceBackend(name=name, port=number or port["name"].text())


def _tls(item: fields.Field) -> Tls:
    secret = item["secretName"]
    hosts = []
    for field in item["hosts"].each():
        host = field.required()
        if host:
            _check_host(field, host)
            hosts.append(host)
    name = secret.text()
    if name and (wrong := syntax.subdomain(name)):
        secret.refuse(wrong)
    return Tls(field=item.path, hosts=tuple(hosts), secret=name)
