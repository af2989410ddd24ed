# SPDX-License-Identifier: Apache-2.0
"""What is wrong with an object, in terms of the field that its author wrote."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Violation:
    """One rule that one field breaks."""

    field: str
    """As in YAML: ``spec.http[0].destinations[1].weight``; empty for the object as a whole."""
    message: str

    def __str__(self) -> str:
        """``FIELD: MESSAGE``."""
        return f"{self.field}: {self.message}" if self.field else self.message


def suggestion(word: str, choices: Collection[str]) -> str:
    """``; did you mean `x`?`` for the choice that looks most like a word; empty when none does."""
    by_shape = {_shape(choice): choice for choice in choices}
    close = difflib.get_close_matches(_shape(word), by_shape, n=1, cutoff=0.7)
    return f"; did you mean `{by_shape[close[0]]}`?" if close else ""


def _shape(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()
