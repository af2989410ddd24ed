# SPDX-License-Identifier: Apache-2.0
"""What `pilothouse demo` prints of what it saw, and with which code it exits."""

import json
from pathlib import Path

import pytest
from typer import testing

from pilothouse.cli import app, demo
from pilothouse.cli.local import errors

GOOD = demo.Finding(what="split", asked="v1 90%", seen="v1 90.5%", good=True)
WRONG = demo.Finding(what="testers", asked="v2 100%", seen="v1 100%", good=False)


def _report(*findings: demo.Finding, failures: tuple[str, ...] = ()) -> demo.Report:
    return demo.Report(
        findings=findings,
        write_to_last_ack_seconds=0.0123,
        proxies=7,
        requests=400,
        failures=failures,
    )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`pilothouse demo` with a mesh that has seen what the test says."""

    def run(outcome: demo.Report | Exception, *arguments: str):
        async def seen(_folder: Path, *, say: object) -> demo.Report:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(demo, "run", seen)
        command = ["demo", "-f", str(tmp_path), *arguments]
        return testing.CliRunner().invoke(app.app, command)

    return run


def test_all_as_asked_is_exit_code_0_and_a_table(run):
    result = run(_report(GOOD))

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:3] == [
        "CHECKED  ASKED   SEEN",
        "split    v1 90%  v1 90.5%  ok",
    ]
    assert "the last of 7 acknowledgements: 12 ms" in result.stdout


def test_one_wrong_finding_is_exit_code_1_and_says_which(run):
    result = run(_report(GOOD, WRONG))

    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if "WRONG" in line]
    assert line.startswith("testers")
    assert "error: the mesh did not do what was asked of it" in result.stderr


def test_one_failed_request_is_exit_code_1_too(run):
    result = run(_report(GOOD, failures=("GET /reviews: reset",)))

    assert result.exit_code == 1
    assert "failed: GET /reviews: reset" in result.stdout


@pytest.mark.parametrize(("findings", "code"), [((GOOD,), 0), ((GOOD, WRONG), 1)])
def test_as_json_it_is_one_object_with_every_finding(run, findings, code: int):
    result = run(_report(*findings), "-o", "json")
    read = json.loads(result.stdout)

    assert result.exit_code == code
    assert read["good"] is (code == 0)
    assert [one["what"] for one in read["findings"]] == [one.what for one in findings]
    assert read["findings"][0] == {
        "what": "split",
        "asked": "v1 90%",
        "seen": "v1 90.5%",
        "good": True,
    }


def test_a_mesh_that_does_not_start_is_exit_code_1_and_the_reason(run):
    result = run(errors.MeshError("discovery ended with code 1"))

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "error: discovery ended with code 1\n"


def test_without_the_sample_shop_it_says_what_to_do(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    result = testing.CliRunner().invoke(app.app, ["demo"])

    assert result.exit_code == 1
    assert f"there is no samples/shop in {tmp_path}" in result.stderr


def test_a_folder_that_the_demo_does_not_know_is_refused_before_anything_starts(tmp_path: Path):
    """It would not know what to change, nor what to expect."""
    result = testing.CliRunner().invoke(app.app, ["demo", "-f", str(tmp_path)])

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path}/routes.yaml: the demo needs")
