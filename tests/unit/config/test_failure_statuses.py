# SPDX-License-Identifier: Apache-2.0
"""The answers that outlier detection takes for failures."""

import pytest

from pilothouse.config import validation
from pilothouse.routing import policies
from tests.support import configs, meshes

WHERE = "spec.outlierDetection.failureStatuses"


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ("[{first: 100, last: 599}]", []),
        (
            "[{}, {first: 600}, {first: 500, last: 499}]",
            [
                f"{WHERE}[0].first: is required: a number from 100 to 599",
                f"{WHERE}[1].first: must be from 100 to 599, is 600",
                f"{WHERE}[2].last: must be from 500 to 599, is 499",
            ],
        ),
        (
            f"[{', '.join(['{first: 500}'] * 101)}]",
            [f"{WHERE}: must have at most 100 entries, has 101"],
        ),
    ],
)
def test_what_is_wrong_with_them(statuses: str, expected: list[str]):
    """Ranges of statuses, not too many."""
    spec = f"{{service: a, outlierDetection: {{failureStatuses: {statuses}}}}}"
    config = configs.with_spec("DestinationPolicy", spec)
    assert [str(one) for one in validation.validate(config)] == expected


def test_how_they_are_read():
    """Sorted, each once; an unset end is the beginning."""
    (config,) = meshes.policy(
        "p",
        "{service: a, outlierDetection: {failureStatuses: [{first: 500, last: 502}, {first: 429},"
        " {first: 429, last: 429}]}}",
    ).values()
    read = policies.policy(config).sections["outlier_detection"]
    assert read.failure_statuses == ((429, 429), (500, 502))
