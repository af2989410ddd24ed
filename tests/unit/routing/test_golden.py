# SPDX-License-Identifier: Apache-2.0
"""Whole plans beside what they come from; `make golden` rewrites them for a person to review."""

import dataclasses
import enum
import pathlib
from typing import Any

import pytest
import yaml

from pilothouse.model import keys, proxy
from pilothouse.routing import plan
from tests.support import calls, golden, meshes


def shown(value: Any) -> Any:
    """A value for people: what is as by default is left out, keys are written as they are named."""
    match value:
        case plan.ClusterKey():
            return calls.label(value)
        case plan.Address():
            return f"{value.host}:{value.port}"
        case enum.Enum():
            return value.value
        case tuple() if hasattr(value, "_fields"):
            return str(value)
        case tuple():
            return [shown(one) for one in value]
    if not dataclasses.is_dataclass(value):
        return value
    found = {
        field.name: shown(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    }
    named = isinstance(value, (plan.Forward, plan.Redirect, plan.DirectResponse))
    return {type(value).__name__: found} if named else found


@pytest.mark.golden
@pytest.mark.parametrize("case", golden.cases("routing"), ids=lambda case: case.name)
def test_golden(case: pathlib.Path):
    """The plan of every proxy of the case, and the conditions of its objects."""
    mesh = meshes.from_manifests((case / "input.yaml").read_text(encoding="utf-8"))
    proxies = yaml.safe_load((case / "proxies.yaml").read_text(encoding="utf-8"))
    for name, node in proxies.items():
        of = proxy.Proxy(id=proxy.NodeId.parse(node), labels=keys.labels(app=name))
        golden.check(case, f"plan.{name}.yaml", dump(shown(mesh.plan(of))))
    conditions = {str(key): [shown(one) for one in found] for key, found in mesh.conditions.items()}
    golden.check(case, "conditions.yaml", dump(conditions))


def dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=100)
