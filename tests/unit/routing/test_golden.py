# SPDX-License-Identifier: Apache-2.0
"""Whole plans beside what they come from; `make golden` rewrites them for a person to review."""

import dataclasses
import enum
import pathlib
from typing import Any

import pytest
import yaml

from pilothouse.config import codec, documents, schema
from pilothouse.kubernetes import services as manifests
from pilothouse.model import keys, proxy
from pilothouse.routing import plan, planner, state
from tests.support import calls, golden


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


def load(case: pathlib.Path) -> planner.Mesh:
    """The mesh of a case's manifests and config objects."""
    found, problems = documents.load(
        (case / "input.yaml").read_text(encoding="utf-8"), location="input.yaml"
    )
    registry, mistakes = manifests.registry_state(found)
    assert (problems, mistakes) == ((), ())
    configs = {}
    for document in found:
        if document.manifest["apiVersion"] == schema.API_VERSION:
            config, wrong = codec.from_manifest(document, source="test")
            assert config is not None, wrong
            configs[config.key] = config
    return planner.Planner().update(
        state.MeshState(
            services=registry.services,
            endpoints=registry.endpoints,
            workloads=registry.workloads,
            configs=dict(sorted(configs.items())),
        )
    )


@pytest.mark.golden
@pytest.mark.parametrize("case", golden.cases("routing"), ids=lambda case: case.name)
def test_golden(case: pathlib.Path):
    """The plan of every proxy of the case, and the conditions of its objects."""
    mesh = load(case)
    proxies = yaml.safe_load((case / "proxies.yaml").read_text(encoding="utf-8"))
    for name, node in proxies.items():
        of = proxy.Proxy(id=proxy.NodeId.parse(node), labels=keys.labels(app=name))
        golden.check(case, f"plan.{name}.yaml", dump(shown(mesh.plan(of))))
    conditions = {str(key): [shown(one) for one in found] for key, found in mesh.conditions.items()}
    golden.check(case, "conditions.yaml", dump(conditions))


def dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=100)
