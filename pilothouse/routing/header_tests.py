# SPDX-License-Identifier: Apache-2.0
"""Tests of headers, as matches and faults have them."""

from __future__ import annotations

import dataclasses
from typing import Literal

StringKind = Literal["exact", "prefix", "suffix", "contains", "regex"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeaderMatch:
    """A test of one header."""

    name: str
    """Lower case."""
    kind: StringKind | Literal["range", "present", "absent"]
    value: str = ""
    low: int = 0
    """With ``high`` the inclusive ends of a range."""
    high: int = 0
    ignore_case: bool = False
    invert: bool = False
    """The test must fail; an absent header counts as empty then."""
