# SPDX-License-Identifier: Apache-2.0
"""Where requests go, and what happens when that is not there."""

import pytest

from tests.support import requests
from tests.support.ingresses import (
    SIMPLE,
    aged,
    backend,
    condition,
    convert,
    make,
    message,
    path,
    rule,
    service,
)


def test_ports_by_name_and_number_are_the_services():
    """A name is looked up in the Service of the Ingress's namespace."""
    output = convert(
        make(
            "x",
            rule(
                "example.com",
                path("/n", "a", port="{name: admin}"),
                path("/m", "a", port="{number: 80}"),
            ),
        )
    )
    assert requests.answer(output.configs, "example.com", "/n") == "default/a:81"
    assert requests.answer(output.configs, "example.com", "/m") == "default/a:80"
    assert condition(output, "x", "ResolvedRefs").status


@pytest.mark.parametrize(
    ("bad", "answer", "reason", "text"),
    [
        (
            path("/x", "gone"),
            "default/gone:80",
            "BackendNotFound",
            "spec.rules[0].http.paths[1]: service default/gone does not exist",
        ),
        (
            path("/x", "gone", port="{name: http}"),
            "pilothouse-system/unserved-backend",
            "BackendNotFound",
            "spec.rules[0].http.paths[1]: service default/gone does not exist",
        ),
        (
            path("/x", "a", port="{number: 99}"),
            "default/a:99",
            "PortNotFound",
            "spec.rules[0].http.paths[1]: service default/a has no TCP port 99",
        ),
        (
            path("/x", "a", port="{name: nope}"),
            "pilothouse-system/unserved-backend",
            "PortNotFound",
            "spec.rules[0].http.paths[1]: service default/a has no TCP port nope",
        ),
        (
            "{path: /x, pathType: Prefix, backend: {resource: {kind: Bucket, name: b}}}",
            "pilothouse-system/unserved-backend",
            "UnsupportedBackend",
            "spec.rules[0].http.paths[1]: a Bucket cannot be served, only a Service can",
        ),
        (
            path("/x", "outside"),
            "pilothouse-system/unserved-backend",
            "UnsupportedBackend",
            "spec.rules[0].http.paths[1]: service default/outside is of type ExternalName",
        ),
    ],
)
def test_a_missing_backend_keeps_its_path(bad, answer, reason, text):
    """Its requests do not fall to the shorter path; its siblings are undisturbed."""
    outside = service("outside", ", type: ExternalName, externalName: localhost")
    output = convert(outside, make("x", rule("example.com", path("/", "b"), bad)))
    assert requests.answer(output.configs, "example.com", "/x") == answer
    assert requests.answer(output.configs, "example.com", "/y") == "default/b:80"
    found = condition(output, "x", "ResolvedRefs")
    assert (found.status, found.reason, found.message) == (False, reason, text)
    assert condition(output, "x", "Accepted").status


def test_udp_ports_are_no_backends():
    """A port of the same number over UDP does not count."""
    output = convert(
        service("dns", ports="[{name: dns, port: 53, protocol: UDP}]"),
        make("x", rule("example.com", path("/", "dns", port="{number: 53}"))),
    )
    assert condition(output, "x", "ResolvedRefs").reason == "PortNotFound"


def test_a_default_backend_alone_takes_everything():
    """Whatever no rule took, on both listeners; of several, that of the oldest Ingress."""
    output = convert(
        make("y", default=backend("b"), metadata=", creationTimestamp: '2026-01-02T00:00:00Z'"),
        make("z", default=backend("c"), metadata=", creationTimestamp: '2026-01-01T00:00:00Z'"),
        make("x", SIMPLE),
    )
    for listener in ("http", "https"):
        assert requests.answer(output.configs, "any.where", "/p", listener=listener) == (
            "default/c:80"
        )
    assert requests.answer(output.configs, "example.com", "/p") == "default/a:80"
    assert message(output, "y", "Conflicted") == (
        "spec.defaultBackend: / of every host is taken by Ingress/default/z"
    )
    assert condition(output, "z", "Conflicted") is None


def test_a_default_backend_beside_rules_is_for_their_hosts():
    """It takes what no path of the host took, also no path of another Ingress, however old."""
    output = convert(
        make("x", rule("example.com", path("/x", "a")), default=backend("default")),
        make(
            "y",
            rule("example.com", path("/", "b")),
            rule("other.com", path("/y", "b")),
            metadata=", creationTimestamp: '2026-01-02T00:00:00Z'",
        ),
    )
    assert requests.answer(output.configs, "example.com", "/x") == "default/a:80"
    assert requests.answer(output.configs, "example.com", "/z") == "default/b:80"
    assert requests.answer(output.configs, "other.com", "/z") == "404"
    output = convert(make("x", rule("example.com", path("/x", "a")), default=backend("default")))
    assert requests.answer(output.configs, "example.com", "/z") == "default/default:80"
    assert requests.answer(output.configs, "other.com", "/z") == "404"


def annotated(**annotations):
    listed = ", ".join(
        f"nginx.ingress.kubernetes.io/{k.replace('_', '-')}: '{v}'" for k, v in annotations.items()
    )
    return f", annotations: {{{listed}}}"


@pytest.mark.parametrize(
    "annotations",
    [
        {"auth_url": "http://auth"},
        {"auth_type": "basic"},
        {"whitelist_source_range": "10.0.0.0/8"},
        {"auth_tls_secret": "default/ca"},
        {"enable_modsecurity": "true"},
        {"configuration_snippet": "deny all;"},
    ],
)
def test_protection_that_is_not_understood_fails_closed(annotations):
    """Nothing is served, on no path; the Ingress is told which annotation it was."""
    manifest = make("x", SIMPLE, default=backend("b"), metadata=annotated(**annotations))
    output = convert(manifest, make("y", rule("y.com", path("/", "b"))))
    assert requests.answer(output.configs, "example.com", "/") == (
        "pilothouse-system/unserved-backend"
    )
    assert requests.answer(output.configs, "y.com", "/") == "default/b:80"
    found = condition(output, "x", "Accepted")
    assert not found.status
    (name,) = annotations
    assert name.replace("_", "-") in found.message


def test_protection_that_is_switched_off_is_no_demand():
    """false and off ask for nothing."""
    output = convert(make("x", SIMPLE, metadata=annotated(enable_modsecurity="false")))
    assert condition(output, "x", "Accepted").status
    assert requests.answer(output.configs, "example.com", "/") == "default/a:80"


def test_other_annotations_without_effect_are_told():
    """Those of ingress-nginx by name; those of strangers are nobody's business."""
    annotations = annotated(proxy_body_size="8m")[:-1] + ", example.com/x: y}"
    output = convert(make("x", SIMPLE, metadata=annotations))
    assert message(output, "x", "Ignored") == "nginx.ingress.kubernetes.io/proxy-body-size"
    assert requests.answer(output.configs, "example.com", "/") == "default/a:80"


def test_a_canary_is_not_taken_for_its_main_ingress():
    """It serves nothing, and takes nothing from the Ingress that it is a canary of."""
    output = convert(
        make("x", SIMPLE, metadata=annotated(canary="true", canary_weight="10") + aged(1)),
        make("y", rule("example.com", path("/", "b")), metadata=aged(2)),
    )
    assert requests.answer(output.configs, "example.com", "/") == "default/b:80"
    assert not condition(output, "x", "Accepted").status
    assert condition(output, "y", "Conflicted") is None
