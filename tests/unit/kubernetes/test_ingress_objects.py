# SPDX-License-Identifier: Apache-2.0
"""What the API server would refuse is refused here, with a reason."""

import pytest

from pilothouse.config import documents
from pilothouse.kubernetes import ingress_objects
from tests.support.ingresses import SIMPLE, ingress_class, make, path, rule


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (make("x"), "spec: one of rules and defaultBackend is required"),
        (make("x", rule("1.2.3.4", path("/", "a"))), "not the IP address '1.2.3.4'"),
        (make("x", rule("a.com:80", path("/", "a"))), "spec.rules[0].host: must be a lower-case"),
        (make("x", rule("A.com", path("/", "a"))), "spec.rules[0].host: must be a lower-case"),
        (make("x", rule("*", path("/", "a"))), "spec.rules[0].host: must be a lower-case"),
        (make("x", rule("a.*.com", path("/", "a"))), "spec.rules[0].host: must be a lower-case"),
        (make("x", rule("a.com", path("foo", "a"))), "paths[0].path: must begin with /"),
        (make("x", rule("a.com", path("/a//b", "a"))), "must not have '//'"),
        (make("x", rule("a.com", path("/a/../b", "a", "Exact"))), "must not have '/../'"),
        (make("x", rule("a.com", path("/a%2Fb", "a"))), "must not have '%2F'"),
        (make("x", rule("a.com", path("/a/..", "a"))), "must not have '/..'"),
        (make("x", rule("a.com", path(None, "a", "Exact"))), "must begin with /"),
        (make("x", rule("a.com", path("a", "a", "ImplementationSpecific"))), "must begin with /"),
        (make("x", rule("a.com", path("/", "a", "Magic"))), "pathType: must be Exact, Prefix"),
        (
            make("x", rule("a.com", path("/", "a"))).replace("pathType: Prefix, ", ""),
            "paths[0].pathType: is required",
        ),
        (make("x", rule("a.com")), "spec.rules[0].http.paths: at least one is required"),
        (
            make("x", rule("a.com", path("/", "a", port="{number: 80, name: http}"))),
            "backend.service.port: exactly one of name and number is required",
        ),
        (make("x", rule("a.com", path("/", "a", port="{number: 0}"))), "must be 1 to 65535"),
        (make("x", default="{}"), "exactly one of service and resource is required"),
        (make("x", SIMPLE, tls="{secretName: a/b}"), "spec.tls[0].secretName: must be a DNS"),
        (make("x", SIMPLE, tls="{hosts: [a_b]}"), "spec.tls[0].hosts[0]: must be a lower-case"),
        (ingress_class("c", "''"), "spec.controller: is required"),
        (ingress_class("c", "x" * 251), "must have at most 250 characters"),
    ],
)
def test_what_the_api_server_refuses_is_a_problem(manifest, text):
    """The problem names the object and the field."""
    (document,), _ = documents.load(manifest, location="bad.yaml")
    parsed, problems = ingress_objects.read(document)
    assert parsed is None
    assert text in " ".join(each.message for each in problems)
    assert {each.location for each in problems} == {"bad.yaml:1"}
    assert all(each.key is not None for each in problems)
