# SPDX-License-Identifier: Apache-2.0
"""Certificates of gRPC applications: from a provider of their own, or not at all."""

import dataclasses

from pilothouse.envoy import client_tls
from pilothouse.routing import plan, providing, upstreams

KEY = plan.ClusterKey(direction=plan.Direction.OUTBOUND, port=80)
PLAIN = plan.Cluster(key=KEY)
TLS = upstreams.Tls(sni="app.test", ca_certificates="PEM", subject_alt_names=("app.test",))
SECURED = dataclasses.replace(
    PLAIN, key=dataclasses.replace(KEY, port=443), settings=upstreams.Settings(tls=TLS)
)


def test_only_what_speaks_tls_needs_a_provider():
    """The rest stays the same object, so that nothing is translated anew."""
    told = plan.Proxyless(clusters=(PLAIN, SECURED))
    plain, secured = providing.by("mesh", told).clusters
    assert plain is PLAIN
    assert secured.settings.tls == dataclasses.replace(TLS, provider="mesh")


def test_without_a_provider_or_without_tls_nothing_changes():
    """It is the very plan."""
    for provider, told in (
        ("", plan.Proxyless(clusters=(PLAIN, SECURED))),
        ("mesh", plan.Proxyless(clusters=(PLAIN,))),
    ):
        assert providing.by(provider, told) is told


def test_what_cannot_be_checked_is_not_possible():
    """Hashes and revocation lists, and anything without a provider."""
    provided = dataclasses.replace(TLS, provider="mesh")
    assert client_tls.possible(provided)
    assert not client_tls.possible(TLS)
    for beyond in (
        {"public_key_hashes": ("x",)},
        {"certificate_hashes": ("x",)},
        {"revocation_lists": "PEM"},
    ):
        assert not client_tls.possible(dataclasses.replace(provided, **beyond))
