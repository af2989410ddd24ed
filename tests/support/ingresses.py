# SPDX-License-Identifier: Apache-2.0
"""Ingress manifests in short form, and what they are converted to.

The class `mine` is ours, and the services of SERVICES are always there, on the ports 80 (http) and
81 (admin).
"""

import textwrap
from collections.abc import Collection
from typing import Any

from pilothouse.config import documents, objects, validation
from pilothouse.kubernetes import ingress, ingress_objects, manifests, records
from pilothouse.model import keys, secrets, services

SERVICES = ("a", "b", "c", "d", "foo", "exact", "prefix", "default")
DEFAULT = "ingressclass.kubernetes.io/is-default-class: 'true'"
TLS = "{hosts: [example.com], secretName: cert}"


def service(
    name: str, extra: str = "", ports: str = "[{name: http, port: 80}, {name: admin, port: 81}]"
) -> str:
    """A Service."""
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: {ports}{extra}}}
"""


def ingress_class(
    name: str,
    controller: str = "example.com/other",
    annotations: str = "",
    created: str = "",
) -> str:
    """An IngressClass; not ours unless the controller says so."""
    return f"""
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: {name}, annotations: {{{annotations}}}{created}}}
spec: {{controller: {controller}}}
"""


OURS = ingress_class("mine", "pilothouse.dev/ingress")


def aged(day: int) -> str:
    """More metadata: a creation time, the older the smaller."""
    return f", creationTimestamp: '2026-01-{day:02}T00:00:00Z'"


def backend(name: str, port: str = "{number: 80}") -> str:
    """A backend."""
    return f"{{service: {{name: {name}, port: {port}}}}}"


def path(value: str | None, name: str, kind: str = "Prefix", port: str = "{number: 80}") -> str:
    """A path that leads to a service; None leaves the path out."""
    where = f"path: '{value}', " if value is not None else ""
    return f"{{{where}pathType: {kind}, backend: {backend(name, port)}}}"


def rule(host: str, *paths: str) -> str:
    """The paths of a host; an empty host is left out."""
    host = f"host: '{host}', " if host else ""
    return f"{{{host}http: {{paths: [{', '.join(paths)}]}}}}"


def make(
    name: str,
    *rules: str,
    metadata: str = "",
    spec: str = "ingressClassName: mine",
    default: str = "",
    tls: str = "",
) -> str:
    """An Ingress."""
    lines = [spec] if spec else []
    if default:
        lines.append(f"defaultBackend: {default}")
    if rules:
        lines.append(f"rules: [{', '.join(rules)}]")
    if tls:
        lines.append(f"tls: [{tls}]")
    body = textwrap.indent("\n".join(lines), "  ")
    return f"""
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {name}{metadata}}}
spec:
{body}
"""


SIMPLE = rule("example.com", path("/", "a"))


def read(
    text: str,
    *,
    usable: Collection[str] = (),
    settings: ingress.Settings | None = None,
) -> ingress.IngressInput:
    """An input from sound manifests of Services, Ingresses, IngressClasses and Secrets.

    A Secret is usable whatever it holds; `usable` are the names of more in the namespace `default`.
    """
    found, problems = documents.load(text, location="ingress.yaml")
    assert problems == ()
    ingresses: list[ingress_objects.Ingress] = []
    classes: list[ingress_objects.IngressClass] = []
    known: dict[keys.ServiceKey, services.Service] = {}
    certificates = {secrets.SecretKey("default", name) for name in usable}
    for document in found:
        record, wrong = records.read(document)
        parsed, more = ingress_objects.read(document)
        assert (*wrong, *more) == ()
        if isinstance(record, records.ServiceRecord):
            known[record.service.key] = record.service
        elif isinstance(parsed, ingress_objects.Ingress):
            ingresses.append(parsed)
        elif parsed is not None:
            classes.append(parsed)
        elif document.kind == "Secret" and (secret := manifests.key_of(document)):
            certificates.add(secrets.SecretKey(secret.namespace, secret.name))
    return ingress.IngressInput(
        ingresses=tuple(ingresses),
        classes=tuple(classes),
        services=known,
        secrets=frozenset(certificates),
        settings=settings or ingress.Settings(),
    )


def convert(
    *texts: str, usable: Collection[str] = (), settings: ingress.Settings | None = None
) -> ingress.IngressOutput:
    """What manifests become beside our class and the services; everything derived is valid."""
    text = "---".join((OURS, *(service(name) for name in SERVICES), *texts))
    output = ingress.convert(read(text, usable=usable, settings=settings))
    for config in output.configs:
        assert validation.validate(config) == (), config.key
    return output


def key(name: str) -> keys.ObjectKey:
    """The key of an Ingress."""
    return keys.ObjectKey("Ingress", "default", name)


def condition(output: ingress.IngressOutput, name: str, kind: str) -> objects.Condition | None:
    """A condition of an Ingress."""
    return next((each for each in output.conditions[key(name)] if each.type == kind), None)


def message(output: ingress.IngressOutput, name: str, kind: str) -> str | None:
    """The message of a condition."""
    found = condition(output, name, kind)
    return found.message if found else None


def served(output: ingress.IngressOutput) -> list[str]:
    """The names of the Ingresses that are ours."""
    return [each.name for each in output.conditions]


def gateway(output: ingress.IngressOutput) -> objects.Config:
    """The one MeshGateway."""
    (found,) = [each for each in output.configs if each.key.kind == "MeshGateway"]
    return found


def listeners(output: ingress.IngressOutput) -> dict[str, list[tuple[str, str]]]:
    """The listeners of the gateway by name, with namespace and name of their certificates."""
    spec: Any = gateway(output).spec
    return {
        each.name: [(one.namespace, one.secret) for one in each.tls.certificates]
        for each in spec.listeners
    }
