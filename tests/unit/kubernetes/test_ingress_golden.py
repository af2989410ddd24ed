# SPDX-License-Identifier: Apache-2.0
"""Whole Ingresses beside everything that they become: tests/golden/ingress."""

import pytest

from pilothouse.config import codec, documents, validation
from pilothouse.kubernetes import ingress
from tests.support import golden, ingresses


@pytest.mark.golden
@pytest.mark.parametrize("case", golden.cases("ingress"), ids=lambda case: case.name)
def test_golden(case):
    """input.yaml becomes expected.yaml: config objects, then what each Ingress is told."""
    output = ingress.convert(ingresses.read((case / "input.yaml").read_text()))
    for config in output.configs:
        assert validation.validate(config) == (), config.key
    told = {
        str(key): [
            f"{each.type}={each.status} {each.reason} {each.message}".strip() for each in conditions
        ]
        for key, conditions in output.conditions.items()
    }
    text = [codec.dump(config) for config in output.configs]
    golden.check(case, "expected.yaml", "---\n".join([*text, documents.dump({"conditions": told})]))
