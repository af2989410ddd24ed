# SPDX-License-Identifier: Apache-2.0
"""Changes of headers by RouteRules, as a real Envoy makes them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

EMPTY = '""'
ROUTE = (
    "requestHeaders: {set: {X-Set: '100 %', x-new: new, x-empty: " + EMPTY + "},"
    " add: {x-added: two}, remove: [X-Gone]},"
    " responseHeaders: {set: {x-who: route}, add: {x-answer: 'yes'}, remove: [content-type]}"
)
RULES = {
    "route": f"{{destinations: [{{service: one}}], {ROUTE}}}",
    "both": (
        "{destinations: [{service: one, requestHeaders: {set: {x-set: destination}, remove:"
        " [x-new]}, responseHeaders: {set: {x-who: destination}}}], " + ROUTE + "}"
    ),
    "shares": (
        "{destinations: [{service: one, requestHeaders: {set: {x-to: a}}}, {service: one,"
        " requestHeaders: {set: {x-to: b}}}, {service: two, responseHeaders: {set: {x-by: c}}}]}"
    ),
    "again": (
        "{destinations: [{service: one}],"
        " requestHeaders: {set: {x-a: new}, add: {x-a: more}, remove: [x-a]}}"
    ),
    "redirect": "{redirect: {path: /new}, responseHeaders: {set: {x-why: moved}}}",
    "answer": (
        "{directResponse: {status: 200, body: '{}'},"
        " responseHeaders: {set: {content-type: application/json}}}"
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[rule_worlds.World]:
    async with rule_worlds.sidecar(RULES) as made:
        yield made


async def test_request_headers(world: rule_worlds.World):
    """Set replaces, add keeps what is there, remove removes; a value is sent as it is written."""
    given = {"x-set": "old", "x-added": "one", "x-gone": "1", "x-kept": "1"}
    async with world.ask("route", headers=given) as answer:
        headers = (await answer.json(content_type=None))["all"]
    assert headers["x-set"] == ["100 %"]
    assert headers["x-new"] == ["new"]
    assert headers["x-empty"] == [""]
    assert headers["x-added"] == ["one", "two"]
    assert headers["x-kept"] == ["1"]
    assert "x-gone" not in headers


async def test_response_headers(world: rule_worlds.World):
    """The same for answers."""
    async with world.ask("route") as answer:
        assert answer.headers["x-who"] == "route"
        assert answer.headers["x-answer"] == "yes"
        assert "content-type" not in answer.headers


async def test_a_destination_has_the_last_word(world: rule_worlds.World):
    """What its own changes say comes after those of the route."""
    async with world.ask("both") as answer:
        headers = (await answer.json(content_type=None))["all"]
        assert answer.headers["x-who"] == "destination"
        assert answer.headers["x-answer"] == "yes"
    assert headers["x-set"] == ["destination"]
    assert "x-new" not in headers


async def test_each_share_has_its_own_changes(world: rule_worlds.World):
    """Also two shares of one service."""
    found = set()
    for _ in range(60):
        async with world.ask("shares") as answer:
            body = await answer.json()
            by = answer.headers.get("x-by")
            found.add((body["backend"], body["headers"].get("x-to"), by))
    assert found == {("one", "a", None), ("one", "b", None), ("two", None, "c")}


async def test_what_is_removed_goes_first(world: rule_worlds.World):
    """So a header that is removed, set and added has the new values only."""
    async with world.ask("again", headers={"x-a": "old"}) as answer:
        assert (await answer.json())["all"]["x-a"] == ["new", "more"]


async def test_answers_without_a_backend_have_changed_headers_too(world: rule_worlds.World):
    """Redirects and direct responses."""
    async with world.ask("redirect") as answer:
        assert (answer.status, answer.headers["x-why"]) == (302, "moved")
    async with world.ask("answer") as answer:
        assert await answer.json() == {}
        assert answer.headers["content-type"] == "application/json"
