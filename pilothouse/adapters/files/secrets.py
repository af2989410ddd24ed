# SPDX-License-Identifier: Apache-2.0
"""The TLS secrets of a folder, as a secret source."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pilothouse.adapters.files import content, folder, views
from pilothouse.config import documents, objects
from pilothouse.kubernetes import secrets as kubernetes
from pilothouse.model import keys
from pilothouse.model import secrets as model

_Secrets = Mapping[model.SecretKey, model.TlsSecret]


class FileSecrets(views.View[model.TlsSecret, _Secrets | None]):
    """Implements `pilothouse.model.secrets.SecretSource`.

    A secret that is broken by a change keeps the last good pair: never a new certificate with an
    old key. ``current()`` is None until the folder has been read.
    """

    def __init__(self, source: folder.Folder, name: str = "files") -> None:
        super().__init__(name, None)
        source.attach(self)

    def secrets(self) -> _Secrets:
        """The present usable secrets, in key order; none before the folder has been read."""
        return self._state or {}

    def wants(self, found: content.Object) -> bool:
        """Every Secret; those that are not for TLS give neither value nor problem."""
        return found.kubernetes == "Secret"

    def _read(
        self, document: documents.RawDocument
    ) -> tuple[model.TlsSecret | None, tuple[objects.Problem, ...]]:
        return kubernetes.read(document)

    def _build(
        self,
        values: Mapping[keys.ObjectKey, model.TlsSecret],
        changed: Collection[keys.ObjectKey],
    ) -> _Secrets:
        return {secret.key: secret for secret in values.values()}
