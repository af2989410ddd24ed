# SPDX-License-Identifier: Apache-2.0
"""Hosts and paths of an Ingress are served as Kubernetes documents them."""

import pytest

from tests.support import requests
from tests.support.ingresses import SERVICES, backend, condition, convert, make, path, rule

HOSTS = make(
    "x",
    rule("foo.com", path("/only", "exact")),
    rule("*.foo.com", path("/", "a")),
    rule("*.bar.foo.com", path("/", "b")),
    rule("", path("/", "default")),
)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("bar.foo.com", "default/a:80"),
        ("bar.foo.com:8080", "default/a:80"),
        ("BAR.Foo.com", "default/a:80"),
        ("baz.bar.foo.com", "default/b:80"),
        ("qux.baz.bar.foo.com", "default/default:80"),
        ("qux.baz.other.foo.com", "default/default:80"),
        ("foo.com", "404"),
        ("other.com", "default/default:80"),
    ],
)
def test_a_wildcard_covers_exactly_one_label(host, expected):
    """Exact before longer wildcard before shorter before none; no host falls through."""
    assert requests.answer(convert(HOSTS).configs, host, "/") == expected


def test_without_a_rule_for_every_host_other_names_are_not_found():
    """Names of no label and of two labels below a wildcard answer 404."""
    output = convert(make("x", rule("*.foo.com", path("/", "a"))))
    for host, expected in [
        ("bar.foo.com", "default/a:80"),
        ("baz.bar.foo.com", "404"),
        ("foo.com", "404"),
        ("subdomain.bar.com", "404"),
    ]:
        assert requests.answer(output.configs, host, "/") == expected


def test_a_host_without_paths_gets_the_default_backend():
    """A rule may name a host and nothing else."""
    output = convert(make("x", "{host: example.com}", default=backend("default")))
    assert requests.answer(output.configs, "example.com", "/x") == "default/default:80"
    assert requests.answer(output.configs, "other.com", "/x") == "404"


@pytest.mark.parametrize(
    ("kind", "paths", "request_path", "expected"),
    [
        ("Prefix", ["/"], "/anything/at/all", "/"),
        ("Exact", ["/foo"], "/foo", "/foo"),
        ("Exact", ["/foo"], "/bar", None),
        ("Exact", ["/foo"], "/foo/", None),
        ("Exact", ["/foo/"], "/foo", None),
        ("Exact", ["/foo"], "/FOO", None),
        ("Prefix", ["/foo"], "/foo", "/foo"),
        ("Prefix", ["/foo"], "/foo/", "/foo"),
        ("Prefix", ["/foo/"], "/foo", "/foo/"),
        ("Prefix", ["/foo/"], "/foo/", "/foo/"),
        ("Prefix", ["/foo"], "/FOO", None),
        ("Prefix", ["/aaa/bb"], "/aaa/bbb", None),
        ("Prefix", ["/aaa/bbb"], "/aaa/bbb", "/aaa/bbb"),
        ("Prefix", ["/aaa/bbb/"], "/aaa/bbb", "/aaa/bbb/"),
        ("Prefix", ["/aaa/bbb"], "/aaa/bbb/", "/aaa/bbb"),
        ("Prefix", ["/aaa/bbb"], "/aaa/bbb/ccc", "/aaa/bbb"),
        ("Prefix", ["/aaa/bbb"], "/aaa/bbbxyz", None),
        ("Prefix", ["/", "/aaa"], "/aaa/ccc", "/aaa"),
        ("Prefix", ["/", "/aaa", "/aaa/bbb"], "/aaa/bbb", "/aaa/bbb"),
        ("Prefix", ["/", "/aaa", "/aaa/bbb"], "/ccc", "/"),
        ("Prefix", ["/aaa"], "/ccc", None),
        ("Prefix", ["/aaa", "/aaa/bbb"], "/aaaccc", None),
        ("Prefix", ["/foo", "/foo/"], "/foo/", "/foo/"),
        ("Prefix", ["/foo/", "/foo"], "/foo/", "/foo/"),
        ("ImplementationSpecific", ["/foo"], "/foo/bar", "/foo"),
        ("ImplementationSpecific", [""], "/foo/bar", ""),
    ],
)
def test_paths_match_as_documented(kind, paths, request_path, expected):
    """Prefix goes by whole elements, Exact by the whole path; the longest wins."""
    rules = [path(value, SERVICES[number], kind) for number, value in enumerate(paths)]
    output = convert(make("x", rule("example.com", *rules)))
    wanted = "404" if expected is None else f"default/{SERVICES[paths.index(expected)]}:80"
    assert requests.answer(output.configs, "example.com", request_path) == wanted


def test_exact_beats_prefix_of_equal_length():
    """Wherever it stands in the object."""
    rules = [path("/foo", "prefix"), path("/foo", "exact", "Exact")]
    for order in (rules, rules[::-1]):
        output = convert(make("x", rule("example.com", *order)))
        assert requests.answer(output.configs, "example.com", "/foo") == "default/exact:80"
        assert requests.answer(output.configs, "example.com", "/foo/") == "default/prefix:80"


REGEX = ", annotations: {nginx.ingress.kubernetes.io/use-regex: 'true'}"


def test_regular_expressions_on_request():
    """Only ImplementationSpecific paths are expressions; a broken one costs only itself."""
    specific = "ImplementationSpecific"
    manifest = make(
        "x",
        rule("example.com", path("/v[0-9]+", "a", specific), path("/b(", "b", specific)),
        metadata=REGEX,
    )
    output = convert(manifest)
    assert requests.answer(output.configs, "example.com", "/V12/x") == "default/a:80"
    assert requests.answer(output.configs, "example.com", "/b(") == "404"
    found = condition(output, "x", "ResolvedRefs")
    assert found.reason == "InvalidPath"
    assert found.message.startswith("spec.rules[0].http.paths[1].path: ")
    plain = convert(manifest.replace(REGEX, ""))
    assert requests.answer(plain.configs, "example.com", "/v12") == "404"


def test_a_path_that_no_request_has_costs_only_itself():
    """Requests are matched as cleaned; the API server lets such paths pass in one type only."""
    specific = "ImplementationSpecific"
    manifest = make(
        "x", rule("example.com", path("/a//b", "a", specific), path("/b", "b", specific))
    )
    output = convert(manifest)
    assert requests.answer(output.configs, "example.com", "/b") == "default/b:80"
    assert requests.answer(output.configs, "example.com", "/a//b") == "404"
    found = condition(output, "x", "ResolvedRefs")
    assert (found.status, found.reason) == (False, "InvalidPath")
    assert found.message.startswith("spec.rules[0].http.paths[0].path: must be as it is when")
