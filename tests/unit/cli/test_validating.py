# SPDX-License-Identifier: Apache-2.0
"""`pilothouse validate`: what it says, and its exit code."""

import json
import pathlib

import pytest
from typer import testing

from pilothouse.cli import app

RUNNER = testing.CliRunner()


def policy(name: str, spec: str, kind: str = "DestinationPolicy") -> str:
    return (
        f"apiVersion: pilothouse.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
        f"spec: {spec}\n"
    )


def validated(folder: pathlib.Path, *objects: str) -> tuple[int, list[tuple[str, str, str]]]:
    """The exit code; and severity, object and message of each finding."""
    for number, text in enumerate(objects):
        (folder / f"{number}.yaml").write_text(text)
    done = RUNNER.invoke(app.app, ["validate", "-f", str(folder), "-o", "json"])
    rows = json.loads(done.stdout)
    return done.exit_code, [(one["severity"], one["object"], one["message"]) for one in rows]


@pytest.mark.parametrize(("labels", "shown"), [("", ""), (", labels: {v: a}", " with labels v=a")])
def test_the_second_policy_for_one_service_and_label_set_is_refused(
    tmp_path: pathlib.Path, labels: str, shown: str
):
    """By the name of the first; whatever else it says."""
    code, rows = validated(
        tmp_path,
        policy("one", f"{{service: web{labels}}}"),
        policy("two", f"{{service: web{labels}, connectTimeout: 1s}}"),
    )
    taken = f"service default/web{shown} is taken by DestinationPolicy/default/one"
    assert (code, rows) == (1, [("error", "DestinationPolicy/default/two", taken)])


def test_policies_for_other_label_sets_are_welcome(tmp_path: pathlib.Path):
    """And so are those of other services."""
    specs = ("{service: web}", "{service: web, labels: {v: a}}", "{service: api}")
    objects = [policy(f"p{number}", spec) for number, spec in enumerate(specs)]
    assert validated(tmp_path, *objects) == (0, [])


def test_a_warning_does_not_fail(tmp_path: pathlib.Path):
    """What nobody asks does no harm."""
    code, rows = validated(tmp_path, policy("mine", "{}", kind="MeshConfig"))
    assert (code, [severity for severity, _, _ in rows]) == (0, ["warning"])


def test_matches_that_nothing_reaches_are_warned_of(tmp_path: pathlib.Path):
    """In one object and across objects, without a cluster."""
    twice = "{parents: [{service: web}], tcp: [{}, {matches: [{sourceCidrs: [10.0.0.0/8]}]}, {}]}"
    code, rows = validated(
        tmp_path,
        policy("one", twice, kind="RouteRule"),
        policy("two", "{parents: [{service: web}], http: [{}]}", kind="RouteRule"),
        policy("zwei", "{parents: [{service: web}], http: [{timeout: 1s}]}", kind="RouteRule"),
    )
    assert code == 0
    assert rows == [
        (
            "warning",
            "RouteRule/default/one",
            "spec.tcp[2].matches[0] is never reached: RouteRule/default/one takes all of it first",
        ),
        (
            "warning",
            "RouteRule/default/zwei",
            "spec.http[0].matches[0] is never reached: RouteRule/default/two takes all of it first",
        ),
    ]


def test_what_cannot_be_read_hides_nothing_else(tmp_path: pathlib.Path):
    """A file that is no text, a link that leads nowhere; folders are no files."""
    (tmp_path / "a.yaml").write_bytes(b"kind: \xe9")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "c.yaml").mkdir()
    code, rows = validated(tmp_path / "c.yaml", policy("p", "{}"))
    assert code == 1
    done = RUNNER.invoke(app.app, ["validate", "-f", str(tmp_path), "-o", "json"])
    told = {pathlib.Path(one["where"]).name: one["message"] for one in json.loads(done.stdout)}
    assert done.exit_code == 1
    assert told.pop("a.yaml") == "is not UTF-8 at byte 6"
    assert told.pop("b.yaml") == "cannot be read: No such file or directory"
    assert list(told.values()) == [message for _, _, message in rows]


def test_a_field_is_told_as_such(tmp_path: pathlib.Path):
    """Whether its value could not be read, or breaks a rule."""
    specs = ("{service: web, connectTimeout: 5}", "{service: web, connectTimeout: 0s}")
    for number, spec in enumerate(specs):
        (tmp_path / f"{number}.yaml").write_text(policy(f"p{number}", spec))
    done = RUNNER.invoke(app.app, ["validate", "-f", str(tmp_path), "-o", "json"])
    found = [one for one in json.loads(done.stdout) if one["field"]]
    assert [one["field"] for one in found] == ["spec.connectTimeout"] * 2
    assert [one["message"].split()[0] for one in found] == ["must", "must"]
