# SPDX-License-Identifier: Apache-2.0
"""The config objects of a folder, as a config store."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pilothouse.adapters.files import content, folder, views
from pilothouse.config import codec, documents, objects
from pilothouse.model import keys


class _Counted(NamedTuple):
    """How often a spec has changed."""

    generation: int
    digest: bytes


class FileConfigStore(views.View[objects.Config, objects.StoreState]):
    """Implements `pilothouse.config.objects.ConfigStore`.

    The generation of an object is what its file says, or else counted here: 1 at first, one more
    whenever its spec changes. It goes on counting when an object is taken away and comes back,
    because that is how some editors save a file. The state's problems are those of the whole
    folder.
    """

    def __init__(self, source: folder.Folder, name: str = "files") -> None:
        super().__init__(name, objects.StoreState())
        self._counted: dict[keys.ObjectKey, _Counted] = {}
        source.attach(self)

    def wants(self, found: content.Object) -> bool:
        """Everything that is meant for Pilothouse, unknown kinds included: they are problems."""
        return found.kubernetes is None

    def _read(
        self, document: documents.RawDocument
    ) -> tuple[objects.Config | None, tuple[objects.Problem, ...]]:
        config, problems = codec.from_manifest(document, source=self.name, generation=0)
        if config is None or config.meta.generation:
            return config, problems
        before = self._counted.get(config.key, _Counted(0, b""))
        now = before
        if before.digest != config.digest:
            now = _Counted(before.generation + 1, config.digest)
        self._counted[config.key] = now
        meta = dataclasses.replace(config.meta, generation=now.generation)
        return dataclasses.replace(config, meta=meta), problems

    def _build(
        self,
        values: Mapping[keys.ObjectKey, objects.Config],
        changed: Collection[keys.ObjectKey],
    ) -> objects.StoreState:
        return objects.StoreState(configs=values, synced=True)

    def tell(self, pending: views.Pending, problems: tuple[objects.Problem, ...]) -> views.Pending:
        """Show the problems of the whole folder: this is where users look for them."""
        state = dataclasses.replace(pending.state, problems=problems)
        return dataclasses.replace(pending, state=state)
