# SPDX-License-Identifier: Apache-2.0
"""Checking files offline."""

from pilothouse.config import lint

POLICY = """\
apiVersion: pilothouse.dev/v1alpha1
kind: DestinationPolicy
metadata: {{name: {name}}}
spec: {spec}
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"


def test_right_objects_are_ok_and_other_kinds_are_left_alone():
    """A folder holds Kubernetes' manifests too."""
    text = POLICY.format(name="a", spec="{service: a}") + "---\n" + SERVICE
    report = lint.check([("f.yaml", text)])
    assert report.ok
    assert [key.name for key in report.configs] == ["a"]
    assert [document.kind for document in report.others] == ["Service"]
    assert (report.problems, report.violations) == ((), {})
    assert (report.conflicts, report.warnings) == ({}, {})


def test_everything_is_found_at_once_and_sorted():
    """Unreadable documents, unknown fields, broken rules, duplicates and conflicts."""
    texts = [
        ("b.yaml", POLICY.format(name="x", spec="{service: S}")),
        ("c.yaml", "a: [\n"),
        (
            "a.yaml",
            "---\n".join(
                [
                    POLICY.format(name="y", spec="{service: s}"),
                    POLICY.format(name="z", spec="{service: s}"),
                    POLICY.format(name="y", spec="{service: t}"),
                    POLICY.format(name="w", spec="{srvice: t}"),
                ]
            ),
        ),
    ]
    report = lint.check(texts)
    assert not report.ok
    assert [(one.location, one.message.split(":")[0]) for one in report.problems] == [
        ("a.yaml:3", "DestinationPolicy/default/y is already at a.yaml"),
        ("a.yaml:4", "spec.srvice"),
        ("c.yaml:1", "line 2"),
    ]
    assert [key.name for key in report.configs] == ["x", "y", "z"]
    assert {key.name: [one.field for one in found] for key, found in report.violations.items()} == {
        "x": ["spec.service"]
    }
    assert [key.name for key in report.conflicts] == ["z"]
    assert lint.check(reversed(texts)) == report


def test_a_conflict_alone_is_wrong():
    """The two would never be in force together, wherever they go."""
    text = "---\n".join(POLICY.format(name=name, spec="{service: s}") for name in "ab")
    report = lint.check([("f.yaml", text)])
    assert not report.ok
    assert [key.name for key in report.conflicts] == ["b"]
    assert report.warnings == {}


def test_an_object_that_nobody_asks_is_a_warning():
    """It does no harm."""
    text = (
        "apiVersion: pilothouse.dev/v1alpha1\nkind: MeshConfig\nmetadata: {name: mine}\nspec: {}\n"
    )
    report = lint.check([("f.yaml", text)])
    assert report.ok
    assert [key.name for key in report.warnings] == ["mine"]
