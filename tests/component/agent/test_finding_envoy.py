# SPDX-License-Identifier: Apache-2.0
"""Which Envoy is run, what it says, and what we say when there is none."""

import json
from pathlib import Path

import pytest

from pilothouse.adapters import process
from pilothouse.adapters.process import envoy as envoy_module


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_named_one_wins_then_the_variable_then_the_packaged_one(tmp_path: Path):
    mine, other = script(tmp_path / "mine", "true"), script(tmp_path / "other", "true")
    environ = {"PILOTHOUSE_ENVOY": str(other)}
    assert process.find_envoy(mine, environ=environ) == mine
    assert process.find_envoy(environ=environ) == other
    assert process.find_envoy(environ={}).parts[-2:] == ("_bin", "envoy")


def test_the_one_on_path_is_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(envoy_module, "_packaged", lambda: None)
    on_path = script(tmp_path / "envoy", "true")
    assert process.find_envoy(environ={"PATH": str(tmp_path)}) == on_path
    with pytest.raises(process.EnvoyNotFoundError, match=r"pilothouse\[envoy\].*--envoy-path"):
        process.find_envoy(environ={"PATH": ""})


def test_a_named_one_that_is_missing_is_an_error_and_never_replaced(tmp_path: Path):
    missing = tmp_path / "missing"
    with pytest.raises(process.EnvoyNotFoundError, match=r"--envoy-path: .*missing does not exist"):
        process.find_envoy(missing, environ={})
    with pytest.raises(process.EnvoyNotFoundError, match=r"PILOTHOUSE_ENVOY: .*does not exist"):
        process.find_envoy(environ={"PILOTHOUSE_ENVOY": str(missing)})
    missing.write_text("no program")
    with pytest.raises(process.EnvoyNotFoundError, match="is not an executable file"):
        process.find_envoy(missing, environ={})


@pytest.mark.parametrize("body", ["echo hello", "exit 3", "sleep 60"])
async def test_what_is_no_envoy_is_told_so(tmp_path: Path, body: str):
    with pytest.raises(process.EnvoyNotFoundError):
        await process.envoy_version(script(tmp_path / "envoy", body), within=0.5)


async def test_a_validation_that_hangs_is_ended(tmp_path: Path):
    with pytest.raises(process.BootstrapInvalidError, match=r"within 0\.2 s"):
        await process.validate(tmp_path, envoy=script(tmp_path / "envoy", "sleep 60"), within=0.2)


@pytest.mark.envoy
async def test_the_real_one_tells_its_version():
    version = await process.envoy_version(process.find_envoy())
    assert [part.isdigit() for part in version.split(".")] == [True] * 3


@pytest.mark.envoy
async def test_a_bad_bootstrap_is_refused_in_envoys_own_words(tmp_path: Path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text("{}")
    bad.write_text(json.dumps({"admin": {"colour": "red"}}))
    await process.validate(good, envoy=process.find_envoy())
    with pytest.raises(process.BootstrapInvalidError, match="no such field") as caught:
        await process.validate(bad, envoy=process.find_envoy())
    assert "colour" in str(caught.value)
    assert not str(caught.value).startswith("[")
