# SPDX-License-Identifier: Apache-2.0
"""What is read of files that go while they are being looked at."""

from __future__ import annotations

import pathlib
import threading

import pytest

from pilothouse.adapters.files import content, tree
from tests.support import folders


def look(folder: pathlib.Path, known: content.Content, *gone: pathlib.Path) -> content.Content:
    """List the folder, take some files away, and read it."""
    listed = tree.walk(str(folder))
    for path in gone:
        path.unlink()
    return content.refresh(known, listed, root=str(folder), stop=threading.Event())


@pytest.mark.parametrize("known", [True, False])
def test_a_file_that_goes_before_it_is_read_is_gone(tmp_path: pathlib.Path, *, known: bool):
    """As if it had gone before it was listed: no problem, and the others are read."""
    going, staying = tmp_path / "a.yaml", tmp_path / "b.yaml"
    staying.write_text(folders.rule("details"))
    before = content.Content()
    if known:
        going.write_text(folders.rule())
        before = look(tmp_path, before)
        assert len(before.files) == 2
    going.write_text(folders.rule(timeout="2s"))

    after = look(tmp_path, before, going)

    assert [*after.files] == ["b.yaml"]
    assert after.problems == ()
    assert all(file.problems == () for file in after.files.values())


def test_a_link_whose_file_goes_before_it_is_read_is_looked_at_again(tmp_path: pathlib.Path):
    """It keeps what it held, without a problem, and the next look says where it leads."""
    folder, there = tmp_path / "mesh", tmp_path / "there.yaml"
    folder.mkdir()
    there.write_text(folders.rule())
    (folder / "a.yaml").symlink_to(there)
    before = look(folder, content.Content())
    there.write_text(folders.rule(timeout="2s"))

    (file,) = (meanwhile := look(folder, before, there)).files.values()

    assert file.found == before.files["a.yaml"].found
    assert file.problems == ()
    assert not meanwhile.settled
    (file,) = look(folder, meanwhile).files.values()
    assert "does not exist" in file.problems[0].message
