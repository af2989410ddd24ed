# SPDX-License-Identifier: Apache-2.0
"""The agent as a program, with a script in Envoy's place: what it says when it cannot run."""

from pathlib import Path

from tests.support.agent import agent


def envoy(path: Path, validate: str) -> str:
    """A script that has a version, and that answers a validation with `validate`."""
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo " version: abc/1.40.0/Clean/RELEASE/X"; exit; fi\n'
        f"{validate}\n"
    )
    path.chmod(0o755)
    return str(path)


async def test_a_bootstrap_that_envoy_refuses_is_told_in_envoys_words(tmp_path: Path):
    path = envoy(tmp_path / "envoy", "echo 'no such field: colour' >&2; exit 1")
    async with agent(tmp_path, "--envoy-path", path) as running:
        assert await running.exit() == 1
        assert (await running.logged("cannot run"))["reason"] == "no such field: colour"
        assert not running.log("envoy started")


async def test_an_envoy_that_is_none_is_told(tmp_path: Path):
    async with agent(tmp_path, env={"PILOTHOUSE_ENVOY": "/bin/true"}) as running:
        assert await running.exit() == 1
        assert "does not look like Envoy" in (await running.logged("cannot run"))["reason"]


async def test_wrong_use_is_told_for_people(tmp_path: Path):
    async with agent(tmp_path, "--labels", "nonsense") as running:
        assert await running.exit() == 2
        assert running.log_path.read_text() == (
            "pilothouse-agent: --labels (or PILOTHOUSE_LABELS): 'nonsense' is not KEY=VALUE\n"
        )
