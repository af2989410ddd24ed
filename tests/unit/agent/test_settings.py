# SPDX-License-Identifier: Apache-2.0
"""The agent's settings: flags and variables alike, and mistakes told by the flag's name."""

import os

import pytest

from pilothouse.adapters import commandline
from pilothouse_agent import settings

REQUIRED = ("--ip", "127.10.0.3", "--name", "reviews-v1-0")


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("PILOTHOUSE_")]:
        monkeypatch.delenv(name)


def test_the_command_that_a_sidecar_is_started_with():
    text = (
        "--role sidecar --ip 127.10.0.3 --name reviews-v1-0 --namespace default --domain"
        " cluster.local --labels app=reviews,version=v1 --bind-address 127.10.0.3"
        " --application-address 127.10.1.3 --outbound-port 15001 --discovery-address"
        " 127.0.0.1:15010 --no-delta --admin-address 127.10.0.3:15000 --status-address"
        " 127.10.0.3:15020 --work-dir /tmp/w --envoy-path /usr/bin/envoy --concurrency 1"
        " --log-level warning"
    )
    read = settings.read(text.split())
    assert str(read.node_id) == "sidecar~127.10.0.3~reviews-v1-0.default~cluster.local"
    assert read.label_pairs == (("app", "reviews"), ("version", "v1"))
    assert read.cluster == "reviews.default"
    assert (read.delta, read.admin_address) == (False, "127.10.0.3:15000")


def test_a_variable_is_the_same_setting_and_the_flag_wins(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PILOTHOUSE_LABELS", "app=shop")
    monkeypatch.setenv("PILOTHOUSE_DELTA", "false")
    monkeypatch.setenv("PILOTHOUSE_NAMESPACE", "blue")
    read = settings.read([*REQUIRED, "--namespace", "green"])
    assert (read.label_pairs, read.delta, read.namespace) == ((("app", "shop"),), False, "green")


def test_what_is_required_is_asked_for_by_flag_and_variable():
    with pytest.raises(commandline.UsageError) as caught:
        settings.read([])
    assert str(caught.value).splitlines() == [
        "--ip is required (or PILOTHOUSE_IP)",
        "--name is required (or PILOTHOUSE_NAME)",
    ]


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--ip", "localhost"),
        ("--name", "a~b"),
        ("--namespace", ""),
        ("--labels", "app"),
        ("--bind-address", "here"),
        ("--outbound-port", "0"),
        ("--discovery-address", "15010"),
        ("--status-address", "unix:/run/s"),
        ("--admin-address", "127.0.0.1:0"),
        ("--concurrency", "0"),
        ("--stop-grace", "-1"),
        ("--log-level", "loud"),
        ("--restart", "always"),
    ],
)
def test_a_wrong_value_is_told_with_its_flag(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises((commandline.UsageError, SystemExit)) as caught:
        settings.read([*REQUIRED, flag, value])
    assert flag in str(caught.value) + capsys.readouterr().err


def test_an_unknown_flag_is_wrong_use(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        settings.read([*REQUIRED, "--bogus", "1"])
    assert caught.value.code == 2
    assert "--bogus" in capsys.readouterr().err


def test_help_explains_every_setting(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        settings.read(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for name, info in settings.Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert info.description, name
    assert "exit codes" in text


@pytest.mark.envoy
def test_version_names_package_commit_and_envoy(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        settings.read(["--version"])
    assert caught.value.code == 0
    own, envoy = capsys.readouterr().out.splitlines()
    assert own.startswith("pilothouse-agent ")
    assert "commit" in own
    assert envoy.startswith("envoy 1.")


def test_version_without_an_envoy_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PILOTHOUSE_ENVOY", "/nowhere/envoy")
    with pytest.raises(SystemExit):
        settings.read(["--version"])
    assert "/nowhere/envoy does not exist" in capsys.readouterr().out


def test_mapped_ports_are_said_several_times_or_with_commas():
    """They are read, sorted, and mistakes are told by the flag's name."""
    one, two, three = (f"127.0.0.1:{n}=a.b:{n}" for n in (1, 2, 3))
    read = settings.read([*REQUIRED, "--map", three, "--map", f"{one},{two}"])
    assert [str(port) for port in read.mapped] == [one, two, three]
    with pytest.raises(commandline.UsageError, match=r"--map .* must be ADDRESS"):
        settings.read([*REQUIRED, "--map", "here"])
