# SPDX-License-Identifier: Apache-2.0
"""CORS by RouteRules, as a browser meets it at a real Envoy.

Expected: https://fetch.spec.whatwg.org/#http-cors-protocol.
"""

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

SHOP = "https://shop.example.com"
FULL = (
    "cors: {allowOrigins: [{exact: 'https://shop.example.com'}], allowMethods: [PUT, DELETE],"
    " allowHeaders: [x-a, x-b], exposeHeaders: [x-c], maxAge: 2m, allowCredentials: true}"
)
TO_ONE, TO_TWO = "destinations: [{service: one}]", "destinations: [{service: two}]"


def origins(*tests: str) -> str:
    return f"{{{TO_ONE}, cors: {{allowOrigins: [{', '.join(tests)}]}}}}"


RULES = {
    "full": f"{{{TO_ONE}, {FULL}}}",
    "any": origins("{exact: '*'}"),
    "prefix": origins("{prefix: 'https://shop.'}"),
    "suffix": origins("{suffix: .example.com}"),
    "regex": origins("{regex: 'https://[a-z]+[.]example[.]com'}"),
    "answering": (
        f"{{{TO_ONE}, cors: {{allowOrigins: [{{exact: a}}], answerUnmatchedPreflights: true}}}}"
    ),
    "by-method": (
        f"{{matches: [{{method: PUT, headers: [{{name: x-a, exact: b}}]}}], {TO_ONE}, {FULL}}},"
        f" {{{TO_TWO}}}"
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.sidecar(RULES) as made:
        yield made


async def preflight(
    world: rule_worlds.World, host: str, origin: str = SHOP, method: str = "PUT"
) -> Mapping[str, str] | str:
    """The headers about CORS of the answer to a preflight; the backend where it was sent on."""
    asked = {"origin": origin, "access-control-request-method": method}
    async with world.ask(host, "/", "OPTIONS", asked) as answer:
        assert answer.status == 200
        body = await answer.text()
        return (await answer.json())["backend"] if body else permissions(answer.headers)


def permissions(headers: Mapping[str, str]) -> dict[str, str]:
    about = "access-control-"
    return {
        name.lower().removeprefix(about): value
        for name, value in headers.items()
        if name.lower().startswith(about)
    }


async def test_a_preflight_is_answered(world: rule_worlds.World):
    """With all that the rule says, and without the backend."""
    found = await preflight(world, "full")
    assert isinstance(found, dict)
    found.pop("expose-headers", None)  # says nothing in this place, and does no harm
    assert found == {
        "allow-origin": SHOP,
        "allow-methods": "PUT,DELETE",
        "allow-headers": "x-a,x-b",
        "max-age": "120",
        "allow-credentials": "true",
    }


async def test_a_request_of_another_origin_is_answered_with_permission(world: rule_worlds.World):
    """The backend's answer, with what a browser needs to hand it on."""
    async with world.ask("full", headers={"origin": SHOP}) as answer:
        assert (await answer.json())["backend"] == "one"
        assert permissions(answer.headers) == {
            "allow-origin": SHOP,
            "expose-headers": "x-c",
            "allow-credentials": "true",
        }


async def test_other_origins_get_no_permission(world: rule_worlds.World):
    """Their requests are sent on all the same: it is the browser that keeps the answer back."""
    async with world.ask("full", headers={"origin": "https://evil.example.com"}) as answer:
        assert answer.status == 200
        assert permissions(answer.headers) == {}
    assert await preflight(world, "full", "https://evil.example.com") == "one"


async def test_preflights_of_other_origins_may_be_answered(world: rule_worlds.World):
    """Without permission, and without the backend."""
    assert await preflight(world, "answering") == {}


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("any", "null", True),
        ("any", SHOP, True),
        ("prefix", "https://shop.example.org", True),
        ("prefix", "http://shop.example.org", False),
        ("suffix", SHOP, True),
        ("suffix", "https://example.com.evil.example", False),
        ("regex", SHOP, True),
        ("regex", "https://shop.example.com.evil.example", False),
        ("regex", "https://shopXexample.com", False),
    ],
)
async def test_origins(world: rule_worlds.World, host: str, origin: str, *, allowed: bool):
    """Each kind of test allows what its comment says and nothing else."""
    async with world.ask(host, headers={"origin": origin}) as answer:
        assert ("allow-origin" in permissions(answer.headers)) is allowed


async def test_a_preflight_finds_the_route_of_the_request_that_shall_follow(
    world: rule_worlds.World,
):
    """Though it has another method and not the headers; one for another method does not."""
    assert await world.reached("by-method", "/", "PUT", {"x-a": "b"}) == "one"
    found = await preflight(world, "by-method")
    assert isinstance(found, dict)
    assert found["allow-origin"] == SHOP
    assert await preflight(world, "by-method", method="PATCH") == "two"
    assert await world.reached("by-method", "/", "OPTIONS") == "two"
