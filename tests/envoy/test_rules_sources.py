# SPDX-License-Identifier: Apache-2.0
"""Matches for some clients: two sidecars of one mesh, and a gateway, as they answer."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support import rule_worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

TO = "destinations: [{service: %s}]"
RULES = {
    "shop": (
        f"{{matches: [{{source: {{labels: {{track: canary}}}}}}], {TO % 'one'}}},"
        f" {{matches: [{{source: {{labels: {{track: canary}}, namespace: x}}}}], {TO % 'two'}}},"
        f" {{matches: [{{path: {{exact: /own}}, source: {{namespace: default}}}}], {TO % 'two'}}},"
        f" {{{TO % 'three'}}}"
    ),
    "parents": (f"{{matches: [{{gateways: [mesh]}}], {TO % 'one'}}}, {{{TO % 'two'}}}"),
}
AT_GATEWAY = {
    "shop.example.com": (
        f"{{matches: [{{gateways: [edge], path: {{exact: /a}}}}], {TO % 'one'}}},"
        f" {{matches: [{{gateways: [default/edge]}}], {TO % 'two'}}}, {{{TO % 'three'}}}"
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worlds() -> AsyncIterator[dict[str, rule_worlds.World]]:
    """A canary's sidecar, another one, and a gateway."""
    async with contextlib.AsyncExitStack() as stack:
        yield {
            "canary": await stack.enter_async_context(
                rule_worlds.sidecar(RULES, app="web", track="canary")
            ),
            "stable": await stack.enter_async_context(
                rule_worlds.sidecar(RULES, app="web", track="stable")
            ),
            "edge": await stack.enter_async_context(rule_worlds.gateway(AT_GATEWAY)),
        }


@pytest.mark.parametrize(
    ("client", "host", "path", "backend"),
    [
        ("canary", "shop", "/", "one"),
        ("canary", "shop", "/own", "two"),
        ("stable", "shop", "/", "three"),
        ("stable", "shop", "/own", "two"),
        ("stable", "parents", "/", "one"),
        ("edge", "shop.example.com", "/a", "one"),
        ("edge", "shop.example.com", "/b", "two"),
    ],
)
async def test_requests_go_where_their_client_is_meant_to_go(
    worlds: dict[str, rule_worlds.World], client: str, host: str, path: str, backend: str
):
    """By what is said of the proxy, not by anything in the request."""
    assert await worlds[client].reached(host, path) == backend
