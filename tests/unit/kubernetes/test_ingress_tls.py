# SPDX-License-Identifier: Apache-2.0
"""Certificates and redirects of Ingresses."""

import pytest

from pilothouse.kubernetes import ingress
from pilothouse.model import secrets
from tests.support import requests
from tests.support.ingresses import (
    SIMPLE,
    TLS,
    condition,
    convert,
    gateway,
    key,
    listeners,
    make,
    message,
    path,
    rule,
)

NGINX = "nginx.ingress.kubernetes.io/"


def test_a_host_with_tls_is_redirected_and_served():
    """308 on the plain listener, the backend on the other; other hosts are served on both."""
    output = convert(make("x", SIMPLE, rule("plain.com", path("/", "b")), tls=TLS), usable=["cert"])
    assert listeners(output) == {"http": [], "https": [("default", "cert")]}
    assert requests.answer(output.configs, "example.com", "/") == "redirect https 308"
    assert requests.answer(output.configs, "example.com", "/", listener="https") == "default/a:80"
    for listener in ("http", "https"):
        assert requests.answer(output.configs, "plain.com", "/", listener=listener) == (
            "default/b:80"
        )
    assert gateway(output).meta.origins == (key("x"),)


def test_the_redirect_goes_to_the_port_that_clients_see():
    """On a laptop HTTPS may not be at 443."""
    settings = ingress.Settings(redirect_port=8443)
    output = convert(make("x", SIMPLE, tls=TLS), usable=["cert"], settings=settings)
    assert requests.answer(output.configs, "example.com", "/") == "redirect https:8443 308"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (f"{NGINX}ssl-redirect: 'false'", "default/a:80"),
        (f"{NGINX}ssl-redirect: 'true'", "redirect https 308"),
        (f"{NGINX}ssl-redirect: 'perhaps'", "redirect https 308"),
        ("pilothouse.dev/ssl-redirect: 'false'", "default/a:80"),
        (
            f"pilothouse.dev/ssl-redirect: 'true', {NGINX}ssl-redirect: 'false'",
            "redirect https 308",
        ),
    ],
)
def test_the_redirect_can_be_switched_off(annotations, expected):
    """By ingress-nginx's annotation, or by ours, which wins; a wrong value leaves it on."""
    manifest = make("x", SIMPLE, tls=TLS, metadata=f", annotations: {{{annotations}}}")
    output = convert(manifest, usable=["cert"])
    assert requests.answer(output.configs, "example.com", "/") == expected
    assert requests.answer(output.configs, "example.com", "/", listener="https") == "default/a:80"
    if "perhaps" in annotations:
        assert "must be true or false" in message(output, "x", "Ignored")


def test_the_redirect_can_be_forced():
    """Without a tls entry, for those who have TLS elsewhere."""
    annotation = ", annotations: {nginx.ingress.kubernetes.io/force-ssl-redirect: 'true'}"
    output = convert(make("x", SIMPLE, metadata=annotation))
    assert requests.answer(output.configs, "example.com", "/") == "redirect https 308"


def test_a_missing_secret_is_told_and_nothing_is_served_in_the_clear():
    """Without any certificate there is no HTTPS listener; the redirect stays."""
    output = convert(make("x", SIMPLE, tls=TLS), make("y", rule("y.com", path("/", "b"))))
    assert listeners(output) == {"http": []}
    assert requests.answer(output.configs, "example.com", "/") == "redirect https 308"
    assert requests.answer(output.configs, "y.com", "/") == "default/b:80"
    found = condition(output, "x", "ResolvedRefs")
    assert found.reason == "CertificateNotFound"
    assert found.message == "spec.tls[0]: no usable TLS secret default/cert"
    assert condition(output, "y", "ResolvedRefs").status


def test_the_default_certificate_comes_first():
    """It answers for hosts whose own secret is missing, and for an entry without a secret."""
    default = secrets.SecretKey("default", "fallback")
    settings = ingress.Settings(default_certificate=default)
    output = convert(
        make("x", SIMPLE, tls="{hosts: [example.com]}, {hosts: [b.com], secretName: cert}"),
        usable=["cert", "fallback"],
        settings=settings,
    )
    assert listeners(output)["https"] == [("default", "fallback"), ("default", "cert")]
    assert condition(output, "x", "ResolvedRefs").status
    without = convert(make("x", SIMPLE, tls="{hosts: [example.com]}"))
    assert message(without, "x", "ResolvedRefs") == (
        "spec.tls[0]: no secretName, and no default certificate"
    )


def test_certificates_go_by_age():
    """The oldest Ingress that names a secret decides its place; each secret is there once."""
    output = convert(
        make("x", SIMPLE, tls="{secretName: young}, {secretName: both}"),
        make(
            "y",
            SIMPLE,
            tls="{secretName: both}, {secretName: old}",
            metadata=", creationTimestamp: '2026-01-01T00:00:00Z'",
        ),
        usable=["young", "both", "old"],
    )
    # No creation time is older than any.
    assert [name for _, name in listeners(output)["https"]] == ["young", "both", "old"]


@pytest.mark.parametrize(
    ("tls_hosts", "host", "expected"),
    [
        ("[]", "a.foo.com", True),
        ("[a.foo.com]", "a.foo.com", True),
        ("['*.foo.com']", "a.foo.com", True),
        ("['*.foo.com']", "b.a.foo.com", False),
        ("['*.foo.com']", "foo.com", False),
        ("[other.com]", "a.foo.com", False),
    ],
)
def test_which_hosts_have_tls(tls_hosts, host, expected):
    """Those that are named, or covered by a wildcard of one label, or all when none is named."""
    output = convert(
        make("x", rule(host, path("/", "a")), tls=f"{{hosts: {tls_hosts}, secretName: cert}}"),
        usable=["cert"],
    )
    redirected = requests.answer(output.configs, host, "/").startswith("redirect")
    assert redirected is expected
