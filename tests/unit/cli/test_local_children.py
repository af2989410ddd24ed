# SPDX-License-Identifier: Apache-2.0
"""What the processes of a mesh inherit, and what is said of one that ends."""

import sys
from pathlib import Path

import pytest

from pilothouse.cli.local import children, commands, errors


def _command(code: str) -> commands.Command:
    return commands.Command(
        name="program",
        group=commands.Group.PROGRAM,
        arguments=(sys.executable, "-c", code),
        probe="",
    )


async def test_a_guarded_process_that_ends_is_told_with_its_code_and_last_words(tmp_path: Path):
    """Its log is named by what it says, not by where it is."""
    running = children.Children(tmp_path / "logs")
    running.guard([await running.spawn(_command("import sys; sys.exit('no luck today')"))])

    with pytest.raises(errors.MeshError, match=r"program ended with code 1; the end") as caught:
        await running.failure()
    assert str(caught.value).endswith("\n    no luck today")
    await running.stop()


async def test_processes_see_our_variables_but_not_our_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The mesh gives out addresses; a level of logging is for all of it."""
    monkeypatch.setenv("PILOTHOUSE_GRPC_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("PILOTHOUSE_LOG_LEVEL", "debug")
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT", raising=False)
    names = "PILOTHOUSE_GRPC_ADDRESS", "PILOTHOUSE_LOG_LEVEL", "GRPC_ENABLE_FORK_SUPPORT"
    running = children.Children(tmp_path / "logs")
    code = f"import os; print([os.environ.get(name) for name in {names}])"
    child = await running.spawn(_command(code))
    await child.supervisor.wait()

    assert child.log.read_text() == "[None, 'debug', 'false']\n"


async def test_what_is_stopped_on_purpose_is_no_failure(tmp_path: Path):
    """And it is gone when the call returns."""
    running = children.Children(tmp_path / "logs")
    child = await running.spawn(_command("import time; time.sleep(60)"))
    running.guard([child])
    await running.stop(["program"])

    assert child.supervisor.returncode == 143
    await running.stop()
