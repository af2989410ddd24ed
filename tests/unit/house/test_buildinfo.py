# SPDX-License-Identifier: Apache-2.0
"""A package knows its commit, and says so when nobody does."""

import subprocess
import sys
import types

from pilothouse import buildinfo


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t.example"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_written_commit_wins(monkeypatch):
    written = types.ModuleType("pilothouse._commit")
    written.COMMIT = "abc"
    monkeypatch.setitem(sys.modules, "pilothouse._commit", written)
    assert buildinfo.commit() == "abc"


def test_folder_without_git_is_unknown_even_inside_a_work_tree(tmp_path):
    git(tmp_path, "init")
    inside = tmp_path / "unpacked"
    inside.mkdir()
    assert buildinfo.commit_of(inside) == buildinfo.UNKNOWN


def test_work_tree_tells_its_commit_and_that_it_is_changed(tmp_path):
    (tmp_path / "file").write_text("one")
    git(tmp_path, "init")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first", "--no-verify")
    clean = buildinfo.commit_of(tmp_path)
    assert len(clean) == 40
    (tmp_path / "file").write_text("two")
    assert buildinfo.commit_of(tmp_path) == f"{clean}-dirty"


def test_git_without_a_commit_is_unknown(tmp_path):
    git(tmp_path, "init")
    assert buildinfo.commit_of(tmp_path) == buildinfo.UNKNOWN
