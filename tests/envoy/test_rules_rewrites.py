# SPDX-License-Identifier: Apache-2.0
"""Rewrites, redirects and direct responses of RouteRules, as a real Envoy makes them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


def rewriting(rewrite: str, path: str = "") -> str:
    """A rewrite of what matches a path; what does not is answered 404."""
    matches = f"matches: [{{path: {path}}}], " if path else ""
    return (
        f"{{{matches}destinations: [{{service: one}}], rewrite: {rewrite}}},"
        " {directResponse: {status: 404}}"
    )


def redirecting(redirect: str, path: str) -> str:
    return f"{{matches: [{{path: {path}}}], redirect: {redirect}}}"


RULES = {
    "any-to-new": rewriting("{prefix: /new}"),
    "any-to-root": rewriting("{prefix: /}"),
    "foo-to-new": rewriting("{prefix: /new}", "{prefix: /foo}"),
    "foo-to-new-slash": rewriting("{prefix: /new/}", "{prefix: /foo/}"),
    "foo-to-root": rewriting("{prefix: /}", "{prefix: /foo}"),
    "any-case-to-root": rewriting("{prefix: /}", "{prefix: /a.b, ignoreCase: true}"),
    "any-case-to-new": rewriting("{prefix: /new}", "{prefix: /Foo, ignoreCase: true}"),
    "string": rewriting("{prefix: /v2-}", "{stringPrefix: /v1-}"),
    "full": rewriting('{full: "/new/a\\\\1"}'),
    "regex": rewriting("{regex: {pattern: '/([a-z]+)/([0-9]+)', substitution: '/\\2/\\1'}}"),
    "regex-all": rewriting("{regex: {pattern: o, substitution: ''}}"),
    "template": rewriting("{template: '/o/{order}/of/{user}'}", "{template: '/{user}/{order}'}"),
    "template-rest": rewriting("{template: '/new/{rest}'}", "{template: '/old/{rest=**}'}"),
    "host": rewriting("{host: 'Other.example.com:8080'}"),
    "destination-host": rewriting("{destinationHost: true}"),
    "both": rewriting("{full: /new, host: other}"),
    "moved-prefix": redirecting("{prefix: /new}", "{prefix: /foo}"),
    "moved-to-root": redirecting("{prefix: /}", "{prefix: /foo}"),
    "moved-any": redirecting("{prefix: /new}", "{prefix: /}"),
    "no-query": redirecting("{path: /new, stripQuery: true}", "{prefix: /}"),
    "answer": '{directResponse: {status: 418, body: "a teapot: é\\n"}}',
    "bytes": "{directResponse: {status: 200, bodyBytes: 'iVBORw0KGgo/AP8='},"
    " responseHeaders: {set: {content-type: image/png}}}",
    "bytes-bare": "{directResponse: {status: 200, bodyBytes: AP8=}}",
    "no-content": "{directResponse: {status: 204}}",
    "long": f"{{directResponse: {{status: 200, body: {'é' * 2048}}}}}",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.sidecar(RULES) as made:
        yield made


@pytest.mark.parametrize(
    ("host", "asked", "received"),
    [
        ("any-to-new", "/bar", "/new/bar"),
        ("any-to-new", "/", "/new/"),
        ("any-to-root", "/bar?q=/", "/bar?q=/"),
        ("foo-to-new", "/foo", "/new"),
        ("foo-to-new", "/foo/", "/new/"),
        ("foo-to-new", "/foo/bar?q=/foo", "/new/bar?q=/foo"),
        ("foo-to-new", "/foo/foo", "/new/foo"),
        ("foo-to-new-slash", "/foo/bar", "/new/bar"),
        ("foo-to-new-slash", "/foo", "/new"),
        ("foo-to-root", "/foo", "/"),
        ("foo-to-root", "/foo/", "/"),
        ("foo-to-root", "/foo/bar", "/bar"),
        ("foo-to-root", "/foo/foo/bar", "/foo/bar"),
        ("foo-to-root", "/foo?q=1", "/?q=1"),
        ("any-case-to-root", "/A.B/c", "/c"),
        ("any-case-to-new", "/FOO/bar", "/new/bar"),
        ("string", "/v1-a/b", "/v2-a/b"),
        ("full", "/old/path?q=1", "/new/a\\1?q=1"),
        ("regex", "/abc/12/d?q", "/12/abc/d?q"),
        ("regex-all", "/foo/o?o=o", "/f/?o=o"),
        ("template", "/ann/7?q", "/o/7/of/ann?q"),
        ("template-rest", "/old/a/b/c", "/new/a/b/c"),
    ],
)
async def test_paths(world: rule_worlds.World, host: str, asked: str, received: str):
    """What the backend is asked for; the query stays as it is."""
    path, headers = await world.seen(host, asked)
    assert path == received
    assert headers["host"] == host


async def test_hosts(world: rule_worlds.World):
    """The host that the backend sees; a service of the mesh keeps the one that was asked for."""
    assert (await world.seen("host", "/a"))[1]["host"] == "Other.example.com:8080"
    assert (await world.seen("destination-host", "/a"))[1]["host"] == "destination-host"


async def test_path_and_host_together(world: rule_worlds.World):
    """One rewrite may change both."""
    path, headers = await world.seen("both", "/a?q")
    assert (path, headers["host"]) == ("/new?q", "other")


@pytest.mark.parametrize(
    ("host", "asked", "location"),
    [
        ("moved-prefix", "/foo/bar?q=1", "http://moved-prefix/new/bar?q=1"),
        ("moved-prefix", "/foo", "http://moved-prefix/new"),
        ("moved-to-root", "/foo/bar?q", "http://moved-to-root/bar?q"),
        ("moved-to-root", "/foo", "http://moved-to-root/"),
        ("moved-any", "/bar", "http://moved-any/new/bar"),
        ("no-query", "/bar?q=1", "http://no-query/new"),
    ],
)
async def test_redirects(world: rule_worlds.World, host: str, asked: str, location: str):
    """A prefix is replaced as in a rewrite; the query may be left out."""
    async with world.ask(host, asked) as answer:
        assert (answer.status, answer.headers["location"]) == (302, location)


async def test_direct_responses(world: rule_worlds.World):
    """Status and body, which may be bytes of any kind, up to the longest."""
    async with world.ask("answer") as answer:
        assert (answer.status, await answer.text()) == (418, "a teapot: é\n")
        assert answer.headers["content-type"] == "text/plain"
    async with world.ask("bytes") as answer:
        assert (answer.status, await answer.read()) == (200, b"\x89PNG\r\n\x1a\n?\x00\xff")
        assert answer.headers["content-type"] == "image/png"
    async with world.ask("bytes-bare") as answer:
        assert (await answer.read(), answer.headers["content-type"]) == (b"\0\xff", "text/plain")
    async with world.ask("no-content") as answer:
        assert (answer.status, await answer.read()) == (204, b"")
    async with world.ask("long") as answer:
        assert await answer.text() == "é" * 2048
