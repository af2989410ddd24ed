# SPDX-License-Identifier: Apache-2.0
"""Paths of matches. Expected: what the tests with real Envoys take for a path as it is matched."""

import itertools

import pytest

from pilothouse.config import paths
from tests.support import reference_values

PIECES = ("", "/", "//", "a", ".", "..", "...", "%61", "%2e", "%2F", "%20", "\\", "a.b")


@pytest.mark.parametrize("first", PIECES)
def test_a_path_is_right_when_a_request_can_have_it(first: str) -> None:
    """Whatever is put together: right is what normalising leaves as it is."""
    for rest in itertools.product(PIECES, repeat=3):
        path = f"/{first}{''.join(rest)}"
        assert (paths.whole(path) is None) == (reference_values.resolved_path(path) == path), path


@pytest.mark.parametrize("first", PIECES)
def test_a_part_of_a_path_is_right_when_a_path_may_begin_so(first: str) -> None:
    """A right path begins with right parts; a wrong part becomes right by nothing that follows."""
    for rest in itertools.product(PIECES, repeat=2):
        part = f"/{first}{''.join(rest)}"
        if part.endswith(("%6", "%2")):
            continue
        right = any(paths.whole(part + more) is None for more in ("", "x", "/x", ".x", "..x", "/"))
        assert (paths.part(part) is None) == right, part
