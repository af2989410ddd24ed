# SPDX-License-Identifier: Apache-2.0
"""The agent's folder: private, one agent's only, and gone if it was a temporary one."""

from pathlib import Path

import pytest

from pilothouse_agent import work_folder
from pilothouse_agent.errors import AgentError


def test_a_temporary_one_is_removed():
    with work_folder.opened(None) as folder:
        (folder / "file").write_text("x")
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_configured_one_is_made_kept_and_locked(tmp_path: Path):
    path = tmp_path / "a" / "b"
    with (
        work_folder.opened(path) as folder,
        pytest.raises(AgentError, match="another agent"),
        work_folder.opened(path),
    ):
        pass
    assert folder.exists()
    with work_folder.opened(path):
        pass


def test_one_that_cannot_be_made_is_told_with_the_setting(tmp_path: Path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(AgentError, match="--work-dir"),
        work_folder.opened(tmp_path / "file" / "below"),
    ):
        pass


def test_a_path_too_long_for_a_socket_is_told_with_the_setting():
    with pytest.raises(AgentError, match="--work-dir"):
        work_folder.socket_in(Path("/" + "x" * 100), "xds.sock")


def test_a_file_is_replaced_whole_and_private(tmp_path: Path):
    path = tmp_path / "bootstrap.json"
    work_folder.write(path, "one")
    work_folder.write(path, "two")
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_inside_is_not_taken_for_one_of_the_folder():
    with pytest.raises(OSError, match="mine"), work_folder.opened(None):
        raise OSError("mine")
