# SPDX-License-Identifier: Apache-2.0
"""Failover by labels: how it is said."""

import pytest

from pilothouse.config import validation
from pilothouse.routing import policies, upstreams
from tests.support import configs, meshes

WHERE = "spec.locality.failover.labels"
ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("failover", "expected"),
    [
        (f"labels: [{ZONE}, track, cell=2, empty=]", []),
        (
            "labels: ['', 'a b', a=b=c, track, track=x], regions: [{from: eu, to: us}]",
            [
                f"{WHERE}: must not be set together with regions",
                f"{WHERE}[0]: is required",
                f"{WHERE}[1]: must be a label's key",
                f"{WHERE}[2]: must be a label's value",
                f"{WHERE}[4]: the label track is taken by {WHERE}[3]",
            ],
        ),
        (
            f"labels: [{', '.join(f'l{number}' for number in range(11))}]",
            [f"{WHERE}: must have at most 10 entries, has 11"],
        ),
    ],
)
def test_what_is_wrong(failover: str, expected: list[str]):
    """Names, or names and values; places count by them alone."""
    spec = f"{{service: a, locality: {{failover: {{{failover}}}}}}}"
    config = configs.with_spec("DestinationPolicy", spec)
    found = [str(one) for one in validation.validate(config)]
    assert len(found) == len(expected), found
    for one, begin in zip(found, expected, strict=True):
        assert one.startswith(begin)


def test_how_it_is_read():
    """In the order of the policy; a value may be empty."""
    (config,) = meshes.policy(
        "p", f"{{service: a, locality: {{failover: {{labels: [{ZONE}, track, cell=2, e=]}}}}}}"
    ).values()
    labels = ((ZONE, None), ("track", None), ("cell", "2"), ("e", ""))
    assert policies.policy(config).sections["locality"] == upstreams.Failover(labels=labels)
