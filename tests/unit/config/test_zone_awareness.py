# SPDX-License-Identifier: Apache-2.0
"""Zone awareness: how it is said."""

import pytest

from pilothouse.config import validation
from pilothouse.routing import policies, upstreams
from tests.support import configs, meshes

WHERE = "spec.locality.zoneAware"


def spec(says: str) -> str:
    return f"{{service: a, locality: {{zoneAware: {{{says}}}}}}}"


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("", []),
        ("percent: 0, minEndpoints: 1, failBelowMinHealthy: true, failover: {}", []),
        ("percent: 100, failover: {regions: [{from: eu, to: us}]}", []),
        (
            "percent: 101, minEndpoints: 0, failover: {regions: [{from: eu, to: eu}]}",
            [
                f"{WHERE}.percent: must be from 0 to 100, is 101",
                f"{WHERE}.minEndpoints: must be at least 1, is 0",
                f"{WHERE}.failover.regions[0].to: must be another region than from",
            ],
        ),
        ("failover: {labels: [a, b=c]}", []),
        (
            "failover: {labels: [a, a], regions: [{from: eu, to: us}]}",
            [
                f"{WHERE}.failover.labels: must not be set together with regions",
                f"{WHERE}.failover.labels[1]: the label a is taken by {WHERE}.failover.labels[0]",
            ],
        ),
    ],
)
def test_what_is_wrong(says: str, expected: list[str]):
    """Numbers out of range, and labels, which do not go with zones."""
    config = configs.with_spec("DestinationPolicy", spec(says))
    assert [str(one) for one in validation.validate(config)] == expected


@pytest.mark.parametrize("policy", ["RING_HASH", "MAGLEV"])
def test_keys_and_zones_do_not_go_together(policy: str):
    """A key has its endpoint, wherever that is."""
    hashing = f"loadBalancer: {{policy: {policy}, hashBy: [{{sourceIp: true}}]}}"
    config = configs.with_spec(
        "DestinationPolicy", f"{{service: a, {hashing}, locality: {{zoneAware: {{}}}}}}"
    )
    assert [str(one) for one in validation.validate(config)] == [
        f"{WHERE}: must not be set when loadBalancer.policy is RING_HASH or MAGLEV"
    ]


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("", upstreams.ZoneAwareness(percent=100, min_endpoints=6)),
        (
            (
                "percent: 0, minEndpoints: 2, failBelowMinHealthy: true,"
                " failover: {regions: [{from: eu, to: us}]}"
            ),
            upstreams.ZoneAwareness(
                percent=0,
                min_endpoints=2,
                fail_below_min_healthy=True,
                failover=upstreams.Failover(regions=(("eu", "us"),)),
            ),
        ),
    ],
)
def test_how_it_is_read(says: str, expected: upstreams.ZoneAwareness):
    """What is unset has its documented default."""
    (config,) = meshes.policy("p", spec(says)).values()
    assert policies.policy(config).sections["locality"] == expected
