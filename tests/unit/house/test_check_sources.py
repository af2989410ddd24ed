# SPDX-License-Identifier: Apache-2.0
"""The source check finds what it is there to find."""

import pytest

from tools import check_sources

LICENCE = f"# {check_sources.LICENCE}\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(check_sources, "ROOT", tmp_path)
    return tmp_path


def complaints(root, name, text):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return list(check_sources.check(check_sources.Path(name)))


@pytest.mark.parametrize("text", ["", LICENCE, "#!/bin/sh\n" + LICENCE + "x\n" * 398])
def test_good_file_passes(root, text):
    assert complaints(root, "good.py", text) == []


def test_missing_licence_is_found(root):
    assert len(complaints(root, "bad.py", "x = 1\n")) == 1


def test_licence_further_down_does_not_count(root):
    assert len(complaints(root, "bad.py", "\n\n\n" + LICENCE)) == 1


def test_401_lines_are_too_many(root):
    assert complaints(root, "long.py", LICENCE + "x\n" * 400) == [
        "long.py:401: 401 lines, more than 400: split it"
    ]


def test_generated_modules_may_be_long(root):
    assert complaints(root, "pilothouse/api/x_pb2.py", LICENCE + "x\n" * 400) == []
