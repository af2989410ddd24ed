# SPDX-License-Identifier: Apache-2.0
"""Ingresses to our kinds: one MeshGateway for all, and RouteRules for each host of each Ingress.

What decides a request, in this order:

1. The host: exact, then the longest wildcard, then none. A wildcard covers exactly one label. A
   host that is known and has no path for a request answers 404, or by a default backend of its own.
2. The path: the longest one; of equal length Exact before Prefix. Of two Ingresses with the same
   host and path the older counts, then the first by namespace and name.
3. The default backend of an Ingress with rules takes what is left at its own hosts; that of an
   Ingress without rules takes what is left of everything.

A path whose backend is missing keeps its place and answers 503: it must not fall to a shorter path
that leads to somebody else. A host with TLS is redirected to HTTPS, also while its certificate is
missing. Nothing depends on the order of the input, and an Ingress that is wrong harms no other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from pilothouse.api.config.v1alpha1 import mesh_gateway_pb2
from pilothouse.config import codec, objects
from pilothouse.kubernetes import (
    ingress_annotations,
    ingress_backends,
    ingress_classes,
    ingress_objects,
    ingress_reports,
    ingress_rules,
)
from pilothouse.model import keys, secrets, services

GATEWAY_LABELS: keys.Labels = (("pilothouse.dev/gateway", "ingress"),)
"""Labels of the proxies that serve Ingresses, unless the settings say otherwise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator decides for all Ingresses."""

    classes: ingress_classes.Rules = ingress_classes.DEFAULT_RULES
    selector: keys.Labels = GATEWAY_LABELS
    """Labels of the gateway proxies, which run in the root namespace."""
    http_port: int = 8080
    """Port that the proxies listen on for plain HTTP."""
    https_port: int = 8443
    """Port that the proxies listen on for HTTPS."""
    redirect_port: int = 443
    """Port of HTTPS as clients see it."""
    allowed_namespaces: tuple[str, ...] = ("*",)
    """Namespaces whose rules may attach to the gateway, those of authored RouteRules included."""
    default_certificate: secrets.SecretKey | None = None
    """Served to clients whose SNI no certificate fits."""
    source: str = "ingress"
    """``Config.source`` of everything derived."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IngressInput:
    """Everything that the outcome depends on; the order of what is in it means nothing."""

    ingresses: tuple[ingress_objects.Ingress, ...] = ()
    classes: tuple[ingress_objects.IngressClass, ...] = ()
    services: Mapping[keys.ServiceKey, services.Service] = dataclasses.field(default_factory=dict)
    secrets: frozenset[secrets.SecretKey] = frozenset()
    """The usable TLS secrets."""
    settings: Settings = Settings()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """What a source of manifests knows; equal ones are equal values."""

    ingresses: tuple[ingress_objects.Ingress, ...] = ()
    """Of every class, by key."""
    classes: tuple[ingress_objects.IngressClass, ...] = ()
    """By name."""
    services: Mapping[keys.ServiceKey, services.Service] = dataclasses.field(default_factory=dict)
    """In key order."""
    secrets: frozenset[secrets.SecretKey] = frozenset()
    """The usable TLS secrets."""
    synced: bool = False
    """False until the source has been read whole once; then True for ever."""

    def with_settings(self, settings: Settings) -> IngressInput:
        """What `convert` takes."""
        return IngressInput(
            ingresses=self.ingresses,
            classes=self.classes,
            services=self.services,
            secrets=self.secrets,
            settings=settings,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IngressOutput:
    """What Ingresses become."""

    configs: tuple[objects.Config, ...]
    """A MeshGateway and RouteRules, by key; nothing while neither class nor Ingress is ours."""
    conditions: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]
    """For each Ingress that is ours, in key order: ``Accepted``, ``ResolvedRefs``, and warnings."""


def convert(state: IngressInput) -> IngressOutput:
    """Derive configuration from all Ingresses that are ours."""
    settings = state.settings
    classes = ingress_classes.sort_out(state.classes, settings.classes)
    ours = sorted(
        (
            each
            for each in state.ingresses
            if ingress_classes.is_ours(each, classes, settings.classes)
        ),
        key=lambda each: each.seniority,
    )
    if not ours and not classes.ours:
        return IngressOutput(configs=(), conditions={})
    reports = {each.key: ingress_reports.Report() for each in ours}
    certificates = _certificates(ours, state, reports)
    site = _Site(
        settings=settings,
        services=state.services,
        tls_hosts=_tls_hosts(ours),
        wildcards=_wildcards(ours),
        has_https=bool(certificates),
    )
    configs: list[objects.Config] = [_gateway(certificates, ours, classes, settings)]
    claims = ingress_reports.Claims()
    for ingress in ours:
        report = reports[ingress.key]
        if wrong := ingress_classes.disagreement(ingress, settings.classes):
            report.ignored(wrong)
        configs += _rules(ingress, site, report, claims)
    return IngressOutput(
        configs=tuple(sorted(configs, key=lambda config: config.key)),
        conditions={key: report.conditions() for key, report in sorted(reports.items())},
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """What an Ingress meets."""

    settings: Settings
    services: Mapping[keys.ServiceKey, services.Service]
    tls_hosts: frozenset[str]
    wildcards: tuple[str, ...]
    """Wildcard hosts that some Ingress has, sorted."""
    has_https: bool

    def is_tls(self, host: str) -> bool:
        """Tell whether a host is served with TLS; a wildcard among the hosts covers one label."""
        parent = host.partition(".")[2]
        return host in self.tls_hosts or (bool(parent) and f"*.{parent}" in self.tls_hosts)


def _tls_hosts(ours: list[ingress_objects.Ingress]) -> frozenset[str]:
    return frozenset(
        host for ingress in ours for tls in ingress.tls for host in tls.hosts or _hosts(ingress)
    )


def _hosts(ingress: ingress_objects.Ingress) -> tuple[str, ...]:
    """The hosts of an Ingress in its order, each once; every host if it has no rules."""
    return tuple(dict.fromkeys(rule.host for rule in ingress.rules)) or ("",)


def _wildcards(ours: list[ingress_objects.Ingress]) -> tuple[str, ...]:
    hosts = {host for ingress in ours for host in _hosts(ingress)}
    return tuple(sorted(host for host in hosts if host.startswith("*.")))


def _certificates(
    ours: list[ingress_objects.Ingress],
    state: IngressInput,
    reports: Mapping[keys.ObjectKey, ingress_reports.Report],
) -> dict[secrets.SecretKey, list[keys.ObjectKey]]:
    """The certificates to serve, the default first, then by age; each with who asks for it."""
    found: dict[secrets.SecretKey, list[keys.ObjectKey]] = {}
    default = state.settings.default_certificate
    if default in state.secrets and default is not None:
        found[default] = []
    for ingress in ours:
        for tls in ingress.tls:
            key = secrets.SecretKey(ingress.key.namespace, tls.secret)
            if not tls.secret and default is None:
                reports[ingress.key].unresolved(
                    "CertificateNotFound", f"{tls.field}: no secretName, and no default certificate"
                )
            elif tls.secret and key not in state.secrets:
                reports[ingress.key].unresolved(
                    "CertificateNotFound", f"{tls.field}: no usable TLS secret {key}"
                )
            elif tls.secret:
                found.setdefault(key, []).append(ingress.key)
    return found


def _gateway(
    certificates: Mapping[secrets.SecretKey, list[keys.ObjectKey]],
    ours: list[ingress_objects.Ingress],
    classes: ingress_classes.Classes,
    settings: Settings,
) -> objects.Config:
    """The gateway; it comes from the Ingresses with certificates, else from our classes."""
    spec = mesh_gateway_pb2.MeshGatewaySpec(
        selector=dict(settings.selector), allowed_namespaces=settings.allowed_namespaces
    )
    spec.listeners.add(
        name=ingress_rules.HTTP,
        port=settings.http_port,
        protocol=mesh_gateway_pb2.Listener.PROTOCOL_HTTP,
    )
    if certificates:
        listener = spec.listeners.add(
            name=ingress_rules.HTTPS,
            port=settings.https_port,
            protocol=mesh_gateway_pb2.Listener.PROTOCOL_HTTPS,
        )
        for key in certificates:
            listener.tls.certificates.add(secret=key.name, namespace=key.namespace)
    origins = {key for askers in certificates.values() for key in askers}
    if not origins:
        origins = {keys.ObjectKey("IngressClass", "", name) for name in classes.ours}
    if not origins:
        origins = {ours[0].key}
    return codec.make(
        ingress_rules.GATEWAY, spec, source=settings.source, origins=tuple(sorted(origins))
    )


def _rules(
    ingress: ingress_objects.Ingress,
    site: _Site,
    report: ingress_reports.Report,
    claims: ingress_reports.Claims,
) -> Iterator[objects.Config]:
    """The rules of one Ingress."""
    wishes = ingress_annotations.read(ingress)
    report.wishes(wishes)
    if wishes.canary:
        return
    source = ingress_rules.Source(
        key=ingress.key,
        created=ingress.head.created,
        generation=ingress.head.generation,
        source=site.settings.source,
    )
    backends = ingress_backends.Resolver(ingress, wishes, site.services, report)
    default = backends.default()
    for host in _hosts(ingress):
        for placed, is_default in ((backends.paths(host), False), (default, True)):
            if not placed:
                continue
            place = ingress_rules.Place(host=host, default=is_default)
            claims.take(ingress.key, place, placed, report)
            routes = tuple(each.route for each in placed)
            yield from _at(place, routes, source=source, wishes=wishes, site=site)


def _at(
    place: ingress_rules.Place,
    routes: tuple[ingress_rules.Route, ...],
    *,
    source: ingress_rules.Source,
    wishes: ingress_annotations.Wishes,
    site: _Site,
) -> Iterator[objects.Config]:
    """The rules of one host: at both listeners, or redirected from the one to the other."""
    redirects = wishes.force_ssl_redirect or (wishes.ssl_redirect and site.is_tls(place.host))
    # Names below a wildcard that it does not cover find its virtual host all the same, because the
    # proxy's own wildcards cover them. There they need the rules of every host.
    below = ("", *site.wildcards) if not place.host else ("",)
    for wildcard in below:
        here = dataclasses.replace(place, below=wildcard)
        if not redirects:
            yield ingress_rules.build(source, here, routes, None)
            continue
        plain = dataclasses.replace(here, listener=ingress_rules.HTTP)
        yield ingress_rules.build(source, plain, routes, site.settings.redirect_port)
        if site.has_https:
            secure = dataclasses.replace(here, listener=ingress_rules.HTTPS)
            yield ingress_rules.build(source, secure, routes, None)
