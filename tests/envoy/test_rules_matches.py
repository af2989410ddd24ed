# SPDX-License-Identifier: Apache-2.0
"""Which requests a RouteRule's matches take, as a real Envoy decides."""

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


def matching(*matches: str) -> str:
    """What matches goes to `one`, all else to `two`."""
    yes = f"{{matches: [{', '.join(matches)}], destinations: [{{service: one}}]}}"
    return f"{yes}, {{destinations: [{{service: two}}]}}"


def header(test: str) -> str:
    return matching(f"{{headers: [{{name: x-a, {test}}}]}}")


def query(test: str) -> str:
    return matching(f"{{queryParameters: [{{name: q, {test}}}]}}")


def cookie(test: str) -> str:
    return matching(f"{{cookies: [{{name: c, {test}}}]}}")


RULES = {
    "string-prefix": matching("{path: {stringPrefix: /foo}}"),
    "any-case-exact": matching("{path: {exact: /Foo, ignoreCase: true}}"),
    "any-case-prefix": matching("{path: {prefix: /Foo, ignoreCase: true}}"),
    "any-case-string": matching("{path: {stringPrefix: /Foo, ignoreCase: true}}"),
    "template": matching("{path: {template: '/users/{id}/orders/*'}}"),
    "template-rest": matching("{path: {template: '/files/{path=**}'}}"),
    "template-odd": matching('{path: {template: "/a-._~!$&\'()+,;:@=/**"}}'),
    "suffix": header("suffix: End"),
    "contains": header("contains: Mid"),
    "range": header("range: {min: -5, max: 10}"),
    "from": header("range: {min: 18}"),
    "any-case": header("exact: Yes, ignoreCase: true"),
    "absent": header("present: false"),
    "not-exact": header("exact: no, invert: true"),
    "not-prefix": header("prefix: no, invert: true"),
    "not-regex": header("regex: n.+, invert: true"),
    "not-range": header("range: {min: 1, max: 3}, invert: true"),
    "query-exact": query("exact: yes"),
    "query-prefix": query("prefix: be"),
    "query-regex": query("regex: 'v[0-9]'"),
    "query-present": query("present: true"),
    "query-absent": query("present: false"),
    "cookie-exact": cookie("exact: a.b"),
    "cookie-prefix": cookie("prefix: be"),
    "cookie-present": cookie("present: true"),
    "cookie-absent": cookie("present: false"),
    "http": matching("{scheme: http}"),
    "https": matching("{scheme: https}"),
    "method-prefix": matching("{headers: [{name: ':method', prefix: P}]}"),
    "method-regex": matching("{headers: [{name: ':method', regex: 'P(U|OS)T'}]}"),
    "scheme-not": matching("{headers: [{name: ':scheme', exact: https, invert: true}]}"),
    "path-and-query": matching("{headers: [{name: ':path', suffix: '?x'}]}"),
    "authority": matching("{headers: [{name: ':authority', exact: authority}]}"),
    "all-of": matching("{method: PUT, queryParameters: [{name: q, present: true}]}"),
    "any-of": matching("{path: {exact: /a}}", "{path: {exact: /b}}"),
    "port": matching("{port: 80}"),
    "other-port": matching("{port: 81}"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.sidecar(RULES) as made:
        yield made


async def check(
    world: rule_worlds.World,
    host: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    matches: bool,
    method: str = "GET",
) -> None:
    """Whether the host's rule takes a request."""
    reached = await world.reached(host, path, method, headers)
    assert reached == ("one" if matches else "two")


@pytest.mark.parametrize(
    ("host", "path", "matches"),
    [
        ("string-prefix", "/foo", True),
        ("string-prefix", "/foobar", True),
        ("string-prefix", "/foo/bar?q", True),
        ("string-prefix", "/Foo", False),
        ("string-prefix", "/fo", False),
        ("any-case-exact", "/fOO", True),
        ("any-case-exact", "/foo/", False),
        ("any-case-prefix", "/foo/bar", True),
        ("any-case-prefix", "/FOO", True),
        ("any-case-prefix", "/foobar", False),
        ("any-case-string", "/fOObar", True),
        ("template", "/users/7/orders/8", True),
        ("template", "/users/7/orders/8?q=1", True),
        ("template", "/users/7/orders/8/", False),
        ("template", "/users/7/8/orders/9", False),
        ("template", "/users//orders/9", False),
        ("template", "/Users/7/orders/8", False),
        ("template-rest", "/files/a/b/c", True),
        ("template-rest", "/file/a", False),
        ("template-odd", "/a-._~!$&'()+,;:@=/b", True),
        ("query-exact", "/?q=yes", True),
        ("query-exact", "/?a=1&q=yes&b=2", True),
        ("query-exact", "/?q=Yes", False),
        ("query-exact", "/?Q=yes", False),
        ("query-exact", "/?q=yes&q=no", True),
        ("query-exact", "/?q=no&q=yes", False),
        ("query-exact", "/?q=%79es", False),
        ("query-exact", "/", False),
        ("query-prefix", "/?q=beta", True),
        ("query-prefix", "/?q=abe", False),
        ("query-regex", "/?q=v7", True),
        ("query-regex", "/?q=v77", False),
        ("query-present", "/?q=", True),
        ("query-present", "/?q", True),
        ("query-present", "/?qq=1", False),
        ("query-absent", "/", True),
        ("query-absent", "/?p=1", True),
        ("query-absent", "/?q=1", False),
    ],
)
async def test_paths_and_queries(world: rule_worlds.World, host: str, path: str, *, matches: bool):
    """Each kind of test takes what its comment says and nothing else."""
    await check(world, host, path, matches=matches)


@pytest.mark.parametrize(
    ("host", "value", "matches"),
    [
        ("suffix", "theEnd", True),
        ("suffix", "End.", False),
        ("suffix", "theend", False),
        ("contains", "aMidb", True),
        ("contains", "amidb", False),
        ("range", "-5", True),
        ("range", "10", True),
        ("range", "11", False),
        ("range", "-6", False),
        ("range", "7.0", False),
        ("range", "seven", False),
        ("range", None, False),
        ("from", "9223372036854775806", True),
        ("from", "17", False),
        ("any-case", "yES", True),
        ("any-case", "yes!", False),
        ("absent", None, True),
        ("absent", "", False),
        ("not-exact", None, True),
        ("not-exact", "", True),
        ("not-exact", "yes", True),
        ("not-exact", "no", False),
        ("not-prefix", None, True),
        ("not-prefix", "none", False),
        ("not-regex", None, True),
        ("not-regex", "no", False),
        ("not-range", None, True),
        ("not-range", "4", True),
        ("not-range", "3", False),
    ],
)
async def test_headers(world: rule_worlds.World, host: str, value: str | None, *, matches: bool):
    """An absent header (None here) passes every inverted test."""
    await check(world, host, "/", {} if value is None else {"x-a": value}, matches=matches)


@pytest.mark.parametrize(
    ("host", "cookies", "matches"),
    [
        ("cookie-exact", "c=a.b", True),
        ("cookie-exact", "x=1; c=a.b; y=2", True),
        ("cookie-exact", "c=aXb", False),
        ("cookie-exact", "c=a.bc", False),
        ("cookie-exact", "cc=a.b", False),
        ("cookie-exact", "x=c=a.b", False),
        ("cookie-exact", None, False),
        ("cookie-prefix", "c=beta", True),
        ("cookie-prefix", "c=abe; d=be", False),
        ("cookie-present", "c=", True),
        ("cookie-present", "b=1; c=2", True),
        ("cookie-present", "b=c", False),
        ("cookie-absent", None, True),
        ("cookie-absent", "b=c", True),
        ("cookie-absent", "b=1; c=2", False),
    ],
)
async def test_cookies(world: rule_worlds.World, host: str, cookies: str | None, *, matches: bool):
    """One cookie among others, whole names and values."""
    await check(world, host, "/", {} if cookies is None else {"cookie": cookies}, matches=matches)


async def test_schemes(world: rule_worlds.World):
    """The scheme is the one by which the client came."""
    await check(world, "http", "/", matches=True)
    await check(world, "https", "/", matches=False)


async def test_parts_of_a_request_as_headers(world: rule_worlds.World):
    """Tested as HTTP/2 has them, in all the ways that there are for headers."""
    for method, by_prefix, by_regex in (
        ("PUT", True, True),
        ("POST", True, True),
        ("PATCH", True, False),
        ("GET", False, False),
    ):
        await check(world, "method-prefix", "/", method=method, matches=by_prefix)
        await check(world, "method-regex", "/", method=method, matches=by_regex)
    await check(world, "scheme-not", "/", matches=True)
    await check(world, "path-and-query", "/a?x", matches=True)
    await check(world, "path-and-query", "/a?y", matches=False)
    await check(world, "authority", "/", matches=True)
    await check(world, "authority", "/", {"host": "authority:80"}, matches=False)


async def test_all_of_one_match_and_any_of_several(world: rule_worlds.World):
    """The conditions of one match must all hold; of several matches one."""
    await check(world, "all-of", "/?q", method="PUT", matches=True)
    await check(world, "all-of", "/", method="PUT", matches=False)
    await check(world, "all-of", "/?q", matches=False)
    await check(world, "any-of", "/a", matches=True)
    await check(world, "any-of", "/b", matches=True)
    await check(world, "any-of", "/c", matches=False)


async def test_ports(world: rule_worlds.World):
    """A match for another port of the parent takes nothing here."""
    await check(world, "port", "/", matches=True)
    await check(world, "other-port", "/", matches=False)


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("api.example.com", "one"),
        ("API.Example.com:8080", "one"),
        ("api.example.community", "404"),
        ("beta-1.example.com", "two"),
        ("Beta-2.example.com:80", "two"),
        ("x.eu.example.com", "three"),
        ("x.eu.example.com:8443", "three"),
        ("v7.example.com", "one"),
        ("V7.example.com:1", "one"),
        ("v77.example.com", "404"),
    ],
)
async def test_authorities(edge: rule_worlds.World, host: str, reached: str):
    """The host without its port, in either case."""
    assert await edge.reached(host) == reached


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edge() -> AsyncIterator[rule_worlds.World]:
    routes = {
        "{exact: api.example.com}": "one",
        "{prefix: beta-}": "two",
        "{suffix: .eu.example.com}": "three",
        "{regex: 'v[0-9][.]example[.]com'}": "one",
    }
    rule = ", ".join(
        f"{{matches: [{{authority: {test}}}], destinations: [{{service: {to}}}]}}"
        for test, to in routes.items()
    )
    async with rule_worlds.gateway({"*.example.com": rule}) as made:
        yield made
