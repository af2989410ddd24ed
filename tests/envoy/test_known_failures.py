# SPDX-License-Identifier: Apache-2.0
"""Failures that users of meshes and gateways know, and do not find here: choosing a route.

Shown elsewhere, through a real Envoy as well:

- `/foo` also taking `/foobar`: `test_translation_routes.py::test_paths`
- a header that is absent failing a negative test: `test_rules_matches.py::test_headers`
- a POST sent again after it was processed:
  `test_translation_routes.py::test_a_processed_request_is_not_sent_twice`, and over two sidecars
  `test_known_failures_mesh.py::test_a_request_that_was_processed_is_not_sent_again`
- headers that the first proxy takes and the next does not:
  `test_known_failures_mesh.py::test_headers_that_one_sidecar_takes_the_next_one_takes`
- a rule before its pods failing everybody:
  `test_discovery_changes.py::test_a_rule_may_come_before_its_pods`
- requests lost while a rule is edited: `test_discovery_changes.py::test_thirty_changes_in_a_row`,
  `::test_weights_move_from_one_version_to_another`
- objects that must be applied in an order: `test_discovery_changes.py::test_files_in_any_order`
- a service that cannot call itself, WebSockets over HTTP/2, connections that end when rules change:
  `test_known_failures_mesh.py`
- gRPC streams that end after some default timeout: `test_known_failures_streams.py`
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from tests.support import reference_envoy
from tests.support import reference_values as values
from tests.support import reference_worlds as worlds

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

EDGE = values.Client(namespace="default", labels=worlds.EDGE, port=80)
OURS, SHOP, TEAM = (values.Client(namespace=one) for one in ("default", "shop", "team"))
GATEWAY = """
apiVersion: pilothouse.dev/v1alpha1
kind: MeshGateway
metadata: {name: edge}
spec:
  selector: {app: edge}
  allowedNamespaces: ['*']
  listeners: [{name: http, port: 80, protocol: HTTP}]
"""
VERSIONS = {"10.0.0.1": "v1", "10.0.0.2": "v2", "10.0.0.3": "ratings"}
"""Who is where in `worlds.ALWAYS`."""


def rule(name: str, parent: str, routes: str, *, hosts: str = "") -> str:
    """A RouteRule, NAME.NAMESPACE, whose parent and routes are in YAML flow style."""
    name, _, namespace = name.partition(".")
    return f"""
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {{name: {name}, namespace: {namespace or "default"}}}
spec:
  parents: [{{{parent}, namespace: default}}]
  http: [{routes}]
  {f"hosts: [{hosts}]" if hosts else ""}
"""


def to(version: str, *matches: str) -> str:
    """A route to one version of the reviews of the namespace default."""
    there = f"{{service: reviews, namespace: default, labels: {{version: {version}}}}}"
    return f"{{matches: [{', '.join(matches)}], destinations: [{there}]}}"


CATCH_ALL_FIRST = rule(
    "all",
    "gateway: edge",
    ", ".join(
        (
            to("v1", "{path: {prefix: /}}"),
            to("v2", "{path: {exact: /exact}}", "{path: {prefix: /foo}}"),
            "{matches: [{path: {regex: '/v[0-9]+/.*'}}], directResponse: {status: 418}}",
        )
    ),
    hosts="'*'",
)
WILDCARD = (
    rule("wide", "gateway: edge", to("v1"), hosts="'*.a.com'")
    + "---"
    + rule("exact", "gateway: edge", to("v2", "{path: {prefix: /x}}"), hosts="b.a.com")
)
TWO_NAMESPACES = "---".join(
    (
        rule("producer", "service: reviews", to("v1")),
        rule("consumer.shop", "service: reviews", to("v2", "{path: {prefix: /mine}}")),
        rule("thief.team", "service: ratings", to("v2")),
    )
)
REPEATED = rule(
    "repeated",
    "service: reviews",
    ", ".join(
        (
            to("v2", "{headers: [{name: x-a, exact: admin, invert: true}]}"),
            "{directResponse: {status: 403}}",
        )
    ),
)
WORLDS = {
    "catch-all": (CATCH_ALL_FIRST, {EDGE}),
    "wildcard": (WILDCARD, {EDGE}),
    "namespaces": (TWO_NAMESPACES, {OURS, SHOP, TEAM}),
    "repeated": (REPEATED, {OURS}),
}


@dataclasses.dataclass(frozen=True)
class Known:
    """An Envoy that holds the clients of all worlds."""

    fleet: reference_envoy.Fleet
    block: int

    async def reached(
        self,
        world: str,
        client: values.Client,
        url: str,
        *headers: tuple[str, str],
    ) -> str:
        """Which version answers to HOST/PATH; else the status."""
        host, slash, path = url.partition("/")
        request = values.Request(authority=host, path=slash + path, headers=headers)
        answer = await self.fleet.ask(list(WORLDS).index(world), client, request)
        where = answer.endpoint.partition(":")[0].replace(f"127.{self.block}.5.", "10.0.0.")
        return VERSIONS[where] if where else str(answer.status)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def known() -> AsyncIterator[Known]:
    held = reference_envoy.block()
    number = held.block.number
    try:
        inhabited = [
            (
                reference_envoy.moved(
                    [*worlds.ALWAYS, *yaml.safe_load_all(GATEWAY + "---" + rules)], number
                ),
                clients,
            )
            for rules, clients in WORLDS.values()
        ]
        async with reference_envoy.running(inhabited) as fleet:
            yield Known(fleet, number)
    finally:
        held.close()


@pytest.mark.parametrize(
    ("path", "reached"),
    [
        ("/", "v1"),
        ("/exact", "v2"),
        ("/exact/", "v1"),
        ("/foo", "v2"),
        ("/foo/", "v2"),
        ("/foo/bar", "v2"),
        ("/foobar", "v1"),
        ("/v7/users", "418"),
    ],
)
async def test_a_catch_all_that_is_written_first_takes_the_rest(
    known: Known, path: str, reached: str
) -> None:
    """Order is by how specific matches are, not by who came first."""
    assert await known.reached("catch-all", EDGE, f"any.org{path}") == reached


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("c.a.com/", "v1"),
        ("b.a.com/x", "v2"),
        ("B.a.com:80/x", "v2"),
        ("b.a.com./x", "v2"),
        ("c.b.a.com/x", "v1"),
        ("b.a.com/", "404"),
        ("a.com/", "404"),
    ],
)
async def test_an_exact_host_beside_a_wildcard(known: Known, url: str, reached: str) -> None:
    """The exact one has its host alone, whatever its rules leave over."""
    assert await known.reached("wildcard", EDGE, url) == reached


@pytest.mark.parametrize(
    ("client", "url", "reached"),
    [
        (OURS, "reviews/", "v1"),
        (OURS, "reviews.default/mine", "v1"),
        (TEAM, "reviews.default/mine", "v1"),
        (SHOP, "reviews.default/mine", "v2"),
        (SHOP, "reviews.default:80/mine/too", "v2"),
        (SHOP, "reviews.default/other", "v1"),
        (OURS, "ratings/", "ratings"),
        (SHOP, "ratings.default/", "ratings"),
        (TEAM, "ratings.default/", "v2"),
    ],
)
async def test_no_namespace_takes_the_clients_of_another(
    known: Known, client: values.Client, url: str, reached: str
) -> None:
    """A rule from elsewhere is for its own namespace's clients; the service's own rule is for all.

    What the former does not match is left to the latter.
    """
    assert await known.reached("namespaces", client, url) == reached


@pytest.mark.parametrize(
    ("given", "reached"),
    [
        ([], "v2"),
        (["guest"], "v2"),
        (["guest", "friend"], "v2"),
        (["admin"], "403"),
        (["admin", "guest"], "403"),
        (["guest", "admin"], "403"),
    ],
)
async def test_a_repeated_header_does_not_slip_past_a_negative_test(
    known: Known, given: list[str], reached: str
) -> None:
    """Each of its values is looked at: https://github.com/envoyproxy/envoy/pull/44819."""
    headers = [("x-a", value) for value in given]
    assert await known.reached("repeated", OURS, "reviews/", *headers) == reached


async def exchange(port: int, head: str) -> tuple[int, bytes]:
    """Send the head of a request; the status, and what comes after the head of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode())
        async with asyncio.timeout(30):
            status = int((await reader.readline()).split()[1])
            while (await reader.readline()).strip():
                pass
            return status, await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("world", "client", "host"), [("catch-all", EDGE, "any.org"), ("repeated", OURS, "reviews")]
)
async def test_http_1_0_is_answered(
    known: Known, world: str, client: values.Client, host: str
) -> None:
    """As health checks and load generators speak it: the end of the connection ends the answer."""
    port = known.fleet.port(list(WORLDS).index(world), client)
    status, body = await exchange(port, f"GET / HTTP/1.0\r\nhost: {host}\r\n\r\n")
    assert (status, b'"path": "/"' in body) == (200, True)


@pytest.mark.parametrize(
    ("world", "client", "host"), [("catch-all", EDGE, "any.org"), ("repeated", OURS, "reviews")]
)
async def test_headers_that_are_too_large_are_answered_so(
    known: Known, world: str, client: values.Client, host: str
) -> None:
    """431 (RFC 6585, section 5), at gateways and at sidecars; what is large but allowed passes."""
    port = known.fleet.port(list(WORLDS).index(world), client)
    # Applications have limits of their own, most of them at 8 KB.
    for size, status in ((7_000, 200), (64 * 1024, 431)):
        head = f"GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n"
        answer = await exchange(port, f"{head}x-large: {'x' * size}\r\n\r\n")
        assert answer[0] == status
