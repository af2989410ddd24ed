# SPDX-License-Identifier: Apache-2.0
"""The golden helper compares, and writes only when told."""

import pytest

from tests.support import golden


def test_a_difference_is_shown(tmp_path, monkeypatch):
    """The error holds the diff between the file and what came out."""
    monkeypatch.delenv(golden.REWRITE, raising=False)
    (tmp_path / "expected.yaml").write_text("a: 1\n")
    golden.check(tmp_path, "expected.yaml", "a: 1\n")
    with pytest.raises(AssertionError, match=r"-a: 1\n\+a: 2"):
        golden.check(tmp_path, "expected.yaml", "a: 2\n")
    with pytest.raises(AssertionError, match=r"\+new"):
        golden.check(tmp_path, "missing.yaml", "new\n")


def test_rewriting_is_asked_for(tmp_path, monkeypatch):
    """With the switch on, the file becomes what came out."""
    monkeypatch.setenv(golden.REWRITE, "1")
    golden.check(tmp_path, "expected.yaml", "a: 2\n")
    assert (tmp_path / "expected.yaml").read_text() == "a: 2\n"
