# SPDX-License-Identifier: Apache-2.0
"""Which document speaks for which object, kept up to date file by file.

Of several documents that name one object the first counts, by path and place in the file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from pilothouse.adapters.files import content
from pilothouse.config import objects
from pilothouse.model import keys


class _Claim(NamedTuple):
    """A document that names an object. Compared by path and place only: no two have the same."""

    path: str
    place: int
    found: content.Object


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What is different from the time before."""

    changed: Mapping[keys.ObjectKey, content.Object | None] = dataclasses.field(
        default_factory=dict
    )
    """Objects that another document speaks for than before; None for those that are gone."""
    nameless: tuple[content.Object, ...] = ()
    """Every document without a name there is, by path and place: good for problems only."""


class Claims:
    """The claims of all files."""

    def __init__(self) -> None:
        """Begin with none."""
        self._files: Mapping[str, content.File] = {}
        self._claims: dict[keys.ObjectKey, tuple[_Claim, ...]] = {}
        self._nameless: dict[str, tuple[content.Object, ...]] = {}
        self._disputed: set[keys.ObjectKey] = set()

    def update(self, files: Mapping[str, content.File]) -> News:
        """Take in all files as they are now; those that hold the same objects cost nothing."""
        before, self._files = self._files, files
        touched: dict[keys.ObjectKey, content.Object | None] = {}
        for path in before.keys() | files.keys():
            old, new = before.get(path), files.get(path)
            was, found = old.found if old else (), new.found if new else ()
            if found is not was:
                self._replace(path, was, found, touched)
        changed = {
            key: speaker
            for key, heard in sorted(touched.items())
            if (speaker := self._speaker(key)) is not heard
        }
        nameless = tuple(one for _, group in sorted(self._nameless.items()) for one in group)
        return News(changed=changed, nameless=nameless)

    def problems(self) -> tuple[objects.Problem, ...]:
        """One for each document that names an object which a document before it has named."""
        return tuple(
            objects.Problem(
                location=claim.found.document.location,
                message=f"is in {claim.found.document.location} and in "
                f"{first.found.document.location}, which counts",
                key=key,
            )
            for key in sorted(self._disputed)
            for first, *others in (self._claims[key],)
            for claim in others
        )

    def _speaker(self, key: keys.ObjectKey) -> content.Object | None:
        claims = self._claims.get(key)
        return claims[0].found if claims else None

    def _replace(
        self,
        path: str,
        was: tuple[content.Object, ...],
        found: tuple[content.Object, ...],
        touched: dict[keys.ObjectKey, content.Object | None],
    ) -> None:
        """Exchange the claims of one file; note who spoke for each of its objects before."""
        claims: dict[keys.ObjectKey, list[_Claim]] = {one.key: [] for one in was if one.key}
        for place, one in enumerate(found):
            if one.key is not None:
                claims.setdefault(one.key, []).append(_Claim(path, place, one))
        for key, own in claims.items():
            touched.setdefault(key, self._speaker(key))
            others = [claim for claim in self._claims.pop(key, ()) if claim.path != path]
            merged = sorted((*others, *own), key=lambda claim: claim[:2])
            self._disputed.discard(key)
            if merged:
                self._claims[key] = tuple(merged)
            if len(merged) > 1:
                self._disputed.add(key)
        self._nameless.pop(path, None)
        nameless = tuple(one for one in found if one.key is None)
        if nameless:
            self._nameless[path] = nameless
