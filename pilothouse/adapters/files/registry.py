# SPDX-License-Identifier: Apache-2.0
"""The Services, EndpointSlices and Pods of a folder, as a service registry."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pilothouse.adapters.files import content, folder, views
from pilothouse.config import documents, objects
from pilothouse.kubernetes import joining, records
from pilothouse.model import keys, services


class FileRegistry(views.View[records.Record, services.RegistryState]):
    """Implements `pilothouse.model.services.ServiceRegistry`.

    Only what a changed object reaches is put together anew.
    """

    def __init__(self, source: folder.Folder, name: str = "files") -> None:
        super().__init__(name, services.RegistryState())
        self._join = joining.Join()
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
        self._join.update({key: values.get(key) for key in changed})
        return self._join.state
