# SPDX-License-Identifier: Apache-2.0
"""What the ingress service reads of a folder: Ingresses and what they refer to."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pilothouse.adapters.files import content, folder, views
from pilothouse.config import documents, objects
from pilothouse.kubernetes import ingress, ingress_objects, manifests, records
from pilothouse.kubernetes import secrets as tls_secrets
from pilothouse.model import keys, secrets

_KINDS = ingress_objects.KINDS | {"Service", "Secret"}

_Value = ingress_objects.Parsed | records.ServiceRecord | secrets.SecretKey


class FileManifests(views.View[_Value, ingress.Manifests]):
    """The Ingresses, IngressClasses, Services and usable TLS secrets of a folder.

    Of secrets only the keys are kept. An object that turns bad stays as it was when it was good.
    """

    def __init__(self, source: folder.Folder, name: str = "files") -> None:
        super().__init__(name, ingress.Manifests())
        source.attach(self)

    def wants(self, found: content.Object) -> bool:
        """Ingress, IngressClass, Service and Secret."""
        return found.kubernetes in _KINDS

    def _read(
        self, document: documents.RawDocument
    ) -> tuple[_Value | None, tuple[objects.Problem, ...]]:
        match manifests.known_kind(document):
            case "Secret":
                secret, problems = tls_secrets.read(document)
                usable = secret is not None and bool(secret.certificate_chain)
                return (secret.key if secret and usable else None), problems
            case "Service":
                record, problems = records.read(document)
                return (record if isinstance(record, records.ServiceRecord) else None), problems
            case _:
                return ingress_objects.read(document)

    def _build(
        self, values: Mapping[keys.ObjectKey, _Value], changed: Collection[keys.ObjectKey]
    ) -> ingress.Manifests:
        known = [each for each in values.values() if isinstance(each, records.ServiceRecord)]
        return ingress.Manifests(
            ingresses=tuple(
                each for each in values.values() if isinstance(each, ingress_objects.Ingress)
            ),
            classes=tuple(
                each for each in values.values() if isinstance(each, ingress_objects.IngressClass)
            ),
            services={each.service.key: each.service for each in known},
            secrets=frozenset(
                each for each in values.values() if isinstance(each, secrets.SecretKey)
            ),
            synced=True,
        )
