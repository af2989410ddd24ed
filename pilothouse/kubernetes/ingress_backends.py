# SPDX-License-Identifier: Apache-2.0
"""Where the paths of an Ingress lead: its backends, looked up among the Services of its namespace.

A backend that is missing keeps its path; requests for it are answered, and go nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from pilothouse.config import paths, regexes
from pilothouse.kubernetes import (
    ingress_annotations,
    ingress_objects,
    ingress_reports,
    ingress_rules,
)
from pilothouse.model import keys, services

_EVERYTHING = "/"
_NOWHERE = ingress_rules.NOWHERE


class Resolver:
    """Looks up the backends of one Ingress."""

    def __init__(
        self,
        ingress: ingress_objects.Ingress,
        wishes: ingress_annotations.Wishes,
        known: Mapping[keys.ServiceKey, services.Service],
        report: ingress_reports.Report,
    ) -> None:
        self._ingress = ingress
        self._wishes = wishes
        self._known = known
        self._report = report

    def paths(self, host: str) -> tuple[ingress_reports.Placed, ...]:
        """The routes of a host, in the order of the Ingress."""
        found = []
        for rule in self._ingress.rules:
            for path in rule.paths if rule.host == host else ():
                match = self._match(path)
                if match is not None:
                    target = self._target(path.backend, path.field)
                    route = ingress_rules.Route(kind=match[0], path=match[1], target=target)
                    found.append(ingress_reports.Placed(path.field, route))
        return tuple(found)

    def default(self) -> tuple[ingress_reports.Placed, ...]:
        """The route of the default backend; nothing when there is none."""
        backend = self._ingress.default_backend
        if backend is None:
            return ()
        field = "spec.defaultBackend"
        route = ingress_rules.Route(
            kind="prefix", path=_EVERYTHING, target=self._target(backend, field)
        )
        return (ingress_reports.Placed(field, route),)

    def _match(self, path: ingress_objects.Path) -> tuple[ingress_rules.PathKind, str] | None:
        """What a path matches; None, reported, where that is nothing."""
        match path.type:
            case "ImplementationSpecific" if self._wishes.use_regex and path.path:
                # As ingress-nginx has it: in any case, and from the beginning of the path only.
                expression = f"(?i){path.path}.*"
                return self._unless(path, regexes.problem(expression), "regex", expression)
            case "Exact":
                return self._unless(path, paths.whole(path.path), "exact", path.path)
            case _:
                wanted = path.path or _EVERYTHING
                return self._unless(path, paths.whole(wanted), "prefix", wanted)

    def _unless(
        self,
        path: ingress_objects.Path,
        wrong: str | None,
        kind: ingress_rules.PathKind,
        wanted: str,
    ) -> tuple[ingress_rules.PathKind, str] | None:
        """The match, or None and a report of what is wrong with it."""
        if wrong:
            self._report.unresolved("InvalidPath", f"{path.field}.path: {wrong}")
            return None
        return kind, wanted

    def _target(self, backend: ingress_objects.Backend, field: str) -> ingress_rules.Target:
        match backend:
            case ingress_objects.ResourceBackend():
                self._report.unresolved(
                    "UnsupportedBackend",
                    f"{field}: a {backend.kind} cannot be served, only a Service can",
                )
                return _NOWHERE
            case ingress_objects.ServiceBackend() if self._wishes.refused:
                return _NOWHERE
            case ingress_objects.ServiceBackend():
                return self._service(backend, field)

    def _service(self, backend: ingress_objects.ServiceBackend, field: str) -> ingress_rules.Target:
        key = keys.ServiceKey(self._ingress.key.namespace, backend.name)
        service = self._known.get(key)
        number = backend.port if isinstance(backend.port, int) else None
        if service is None:
            self._report.unresolved("BackendNotFound", f"{field}: service {key} does not exist")
            # Named all the same, so that routing says so too and knows as soon as it is there; but
            # not without a number: any port would do then.
            known = number is not None
            return ingress_rules.Target(service=backend.name, port=number) if known else _NOWHERE
        if service.external_name is not None:
            # It could lead to anything that the gateway can reach, loopback included.
            self._report.unresolved(
                "UnsupportedBackend", f"{field}: service {key} is of type ExternalName"
            )
            return _NOWHERE
        port = _port(service, backend.port)
        if port is None:
            self._report.unresolved(
                "PortNotFound", f"{field}: service {key} has no TCP port {backend.port}"
            )
            if number is None:
                return _NOWHERE
        return ingress_rules.Target(service=backend.name, port=port or number)


def _port(service: services.Service, wanted: int | str) -> int | None:
    """The number of a port of a Service, by number or by name."""
    for port in service.ports:
        if port.protocol is not services.AppProtocol.UDP and wanted in (port.number, port.name):
            return port.number
    return None
