# SPDX-License-Identifier: Apache-2.0
"""The rules of a DestinationPolicy's sections: what is refused, and by which field."""

import pytest

from pilothouse.config import validation
from tests.support import configs


def broken(spec: str) -> list[str]:
    config = configs.with_spec("DestinationPolicy", f"{{service: a, {spec}}}")
    return [str(one) for one in validation.validate(config)]


@pytest.mark.parametrize(
    "spec",
    [
        "loadBalancer: {}",
        "loadBalancer: {minHealthyPercent: 0}",
        "loadBalancer: {minHealthyPercent: 100}",
        "outlierDetection: {}",
        "outlierDetection: {consecutive5xx: 0}",
        (
            "outlierDetection: {consecutive5xx: 1, consecutiveGatewayErrors: 2,"
            " consecutiveLocalOriginFailures: 3, interval: 1ms, baseEjectionTime: 1s,"
            " maxEjectionTime: 1s, maxEjectionPercent: 1}"
        ),
        "outlierDetection: {baseEjectionTime: 1h}",
    ],
)
def test_what_is_right_is_accepted(spec: str):
    """The ends of every range, and sections that say nothing."""
    assert broken(spec) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            "loadBalancer: {minHealthyPercent: 101}",
            ["spec.loadBalancer.minHealthyPercent: must be from 0 to 100, is 101"],
        ),
        (
            "outlierDetection: {interval: 0s, baseEjectionTime: 0s, maxEjectionTime: 0s}",
            [
                "spec.outlierDetection.interval: must be greater than 0s",
                "spec.outlierDetection.baseEjectionTime: must be greater than 0s",
                "spec.outlierDetection.maxEjectionTime: must be greater than 0s",
            ],
        ),
        (
            "outlierDetection: {baseEjectionTime: 2s, maxEjectionTime: 1s}",
            ["spec.outlierDetection.maxEjectionTime: must not be shorter than baseEjectionTime"],
        ),
        (
            "outlierDetection: {maxEjectionTime: 29s}",
            [
                (
                    "spec.outlierDetection.maxEjectionTime: must not be shorter than"
                    " baseEjectionTime, which is 30s when unset"
                )
            ],
        ),
        (
            "outlierDetection: {maxEjectionPercent: 0}",
            ["spec.outlierDetection.maxEjectionPercent: must be from 1 to 100, is 0"],
        ),
        (
            "outlierDetection: {maxEjectionPercent: 101}",
            ["spec.outlierDetection.maxEjectionPercent: must be from 1 to 100, is 101"],
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_field(spec: str, expected: list[str]):
    """All of it at once."""
    assert broken(spec) == expected
