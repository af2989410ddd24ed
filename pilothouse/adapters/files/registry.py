# SPDX-License-Identifier: Apache-2.0
"""The Services, EndpointSlices and Pods of a folder, as a service registry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from pilothouse.adapters.files import content, folder, views
from pilothouse.config import documents, objects
from pilothouse.kubernetes import records
from pilothouse.kubernetes import services as kubernetes
from pilothouse.model import keys, services


class FileRegistry(views.View[records.Record, services.RegistryState]):
    """Implements `pilothouse.model.services.ServiceRegistry`.

    Only the namespaces in which something changed are put together anew.
    """

    def __init__(self, source: folder.Folder, name: str = "files") -> None:
        super().__init__(name, services.RegistryState())
        self._namespaces: dict[str, services.RegistryState] = {}
        source.attach(self)

    def wants(self, found: content.Object) -> bool:
        """Service, EndpointSlice and Pod."""
        return found.kubernetes in records.KINDS

    def _read(
        self, document: documents.RawDocument
    ) -> tuple[records.Record | None, tuple[objects.Problem, ...]]:
        return records.read(document)

    def _build(
        self,
        values: Mapping[keys.ObjectKey, records.Record],
        changed: Collection[keys.ObjectKey],
    ) -> services.RegistryState:
        found: dict[str, list[records.Record]] = defaultdict(list)
        touched = {key.namespace for key in changed}
        for key, record in values.items():
            if key.namespace in touched:
                found[key.namespace].append(record)
        for namespace in touched:
            self._namespaces.pop(namespace, None)
        for namespace, group in found.items():
            self._namespaces[namespace] = kubernetes.join(group)
        return kubernetes.merge(self._namespaces)
