# SPDX-License-Identifier: Apache-2.0
"""The rules of the cookies that hashing load balancers set."""

import pytest

from pilothouse.config import validation
from pilothouse.routing import policies, upstreams
from tests.support import configs, meshes

WHERE = "spec.loadBalancer.hashBy[0].cookie"


def spec(cookie: str) -> str:
    return (
        f"{{service: a, loadBalancer: {{policy: RING_HASH, hashBy: [{{cookie: {{{cookie}}}}}]}}}}"
    )


@pytest.mark.parametrize(
    ("cookie", "expected"),
    [
        ("name: c, ttl: 0s, sameSite: STRICT, domain: a.example", []),
        ("name: c, ttl: 1h, sameSite: NONE, secure: true, partitioned: true", []),
        (
            "name: c, sameSite: LAX, secure: true, domain: 192.0.2.1",
            [
                f"{WHERE}.domain: must be a host name, is the IP address '192.0.2.1'",
                f"{WHERE}.domain: must not be set without ttl",
                f"{WHERE}.sameSite: must not be set without ttl",
                f"{WHERE}.secure: must not be set without ttl",
            ],
        ),
        (
            "name: c, ttl: 1s, sameSite: NONE, partitioned: true",
            [
                f"{WHERE}.secure: must be true with sameSite NONE",
                f"{WHERE}.secure: must be true with partitioned",
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_cookies_attributes(cookie: str, expected: list[str]):
    """They are those of a cookie that is set, and such as browsers keep (RFC 6265bis)."""
    config = configs.with_spec("DestinationPolicy", spec(cookie))
    assert [str(one) for one in validation.validate(config)] == expected


def test_how_attributes_are_read():
    """As `Set-Cookie` writes them."""
    (config,) = meshes.policy(
        "p", spec("name: c, ttl: 0s, sameSite: NONE, secure: true, domain: A.example")
    ).values()
    assert policies.policy(config).sections["load_balancer"].hash_by == (
        upstreams.HashKey(
            kind="cookie",
            name="c",
            ttl_s=0,
            attributes=(("Domain", "a.example"), ("SameSite", "None"), ("Secure", "")),
        ),
    )
