# SPDX-License-Identifier: Apache-2.0
"""Routes and clusters as a real Envoy takes them: which backend answers, or what Envoy answers.

One Envoy serves the whole module; every test has a host of its own in it.
"""

import asyncio
import contextlib
import dataclasses
import math
import socket
from collections import Counter
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from pilothouse.envoy import translate
from pilothouse.routing import plan, treatment, upstreams
from tests.support import backends, envoy_plans, envoy_static, waiting
from tests.support.envoy_plans import forward, header, host, key, route

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

LISTENER = "http-proxy"
V1, V2, V3 = (key("app", version=version) for version in ("v1", "v2", "v3"))
EMPTY, HALF_DEAD, DEAD, LIMITED = (key(name) for name in ("empty", "half-dead", "dead", "limited"))
TURNS, NAMED = key("turns"), key("named", external=True)
BY_ITS_NAME = treatment.Rewrite(destination_host=True)
ANYWHERE = plan.Retry(attempts=1, previous_hosts=True)
PATIENCE = plan.Retry(attempts=1, per_try_timeout_ms=100, retry_on=("5xx",))
REDIRECTS = {
    "keeps-all": plan.Redirect(),
    "code-301": plan.Redirect(code=301, path="/new"),
    "code-303": plan.Redirect(code=303, path="/new"),
    "code-307": plan.Redirect(code=307, path="/new"),
    "code-308": plan.Redirect(code=308, path="/new"),
    "host": plan.Redirect(host="new.example.com"),
    "port": plan.Redirect(port=8443),
    "scheme": plan.Redirect(scheme="https"),
    "same-scheme": plan.Redirect(scheme="http"),
    "scheme-port": plan.Redirect(scheme="https", port=443),
    "default-port": plan.Redirect(scheme="https", host="new.example.com", port=443),
    "all": plan.Redirect(scheme="https", host="new.example.com", port=8443, path="/new"),
}
HOSTS = (
    host(
        "path",
        route(forward(V1), path_kind="exact", path="/exact"),
        route(forward(V2), path_kind="prefix", path="/foo"),
        route(forward(V3), path_kind="regex", path="/r[0-9]+"),
        route(plan.DirectResponse(status=404, body="nothing here\n")),
    ),
    host("method", route(forward(V1), method="POST"), route(forward(V2))),
    host(
        "header",
        route(forward(V1), path="/exact", headers=(header("x-exact", "exact", "Yes"),)),
        route(forward(V1), headers=(header("x-prefix", "prefix", "be"),)),
        route(forward(V1), headers=(header("x-regex", "regex", "v[0-9]"),)),
        route(forward(V1), headers=(header("x-present", "present"),)),
        route(
            forward(V2),
            headers=(header("x-one", "exact", "1"), header("x-two", "absent")),
        ),
        route(forward(V3)),
    ),
    host("weights", route(forward((V1, 80), (V2, 20), (V3, 0)))),
    host("lost-share", route(forward((V1, 60), (V2, 20), (None, 20)))),
    host("lost", route(forward((None, 1)))),
    host("empty", route(forward(EMPTY))),
    host("timeout", route(forward(V1, timeout_ms=200))),
    host("half-dead", route(forward(HALF_DEAD))),
    host("half-dead-once", route(forward(HALF_DEAD, retry=None))),
    host("half-dead-none", route(forward(HALF_DEAD, retry=plan.Retry(attempts=0)))),
    host("half-dead-again", route(forward(HALF_DEAD, retry=ANYWHERE))),
    host("half-dead-elsewhere", route(forward(HALF_DEAD, retry=plan.Retry(attempts=1)))),
    host("dead", route(forward(DEAD))),
    host("twice", route(forward(V1, retry=plan.Retry(attempts=2, retry_on=("5xx",))))),
    host("once", route(forward(V1))),
    host("limited", route(forward(LIMITED))),
    host("impatient", route(forward(V2, retry=PATIENCE))),
    host("turns", route(forward(TURNS))),
    host("named", route(forward(NAMED))),
    host("by-its-name", route(forward(NAMED, rewrite=BY_ITS_NAME))),
    host("secure", route(plan.Redirect(scheme="https"))),
    *(host(f"redirect-{name}:81", route(action)) for name, action in REDIRECTS.items()),
)


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """One Envoy, its backends, and a client."""

    envoy: envoy_static.RunningEnvoy
    backends: dict[str, backends.Backend]
    client: aiohttp.ClientSession

    def ask(self, name: str, path: str = "/", method: str = "GET", **headers: str):
        """A request to a host of the module, as a context manager."""
        return self.client.request(
            method,
            self.envoy.url(LISTENER, path),
            headers={"host": name} | {each.replace("_", "-"): v for each, v in headers.items()},
            allow_redirects=False,
        )

    async def reached(self, name: str, path: str = "/", method: str = "GET", **headers: str) -> str:
        """Which backend answers; else the status."""
        async with self.ask(name, path, method, **headers) as answer:
            return (await answer.json())["backend"] if answer.status == 200 else str(answer.status)

    async def tally(self, name: str, requests: int) -> Counter[str]:
        """What each of many requests reached."""
        return Counter(await asyncio.gather(*(self.reached(name) for _ in range(requests))))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        served = {
            name: await stack.enter_async_context(backends.backend(name))
            for name in ("v1", "v2", "v3", "limited")
        }
        # Bound and not listening: whoever connects is refused, for as long as we hold it.
        dead = stack.enter_context(socket.socket())
        dead.bind((envoy_plans.LOOPBACK, 0))
        refused = dead.getsockname()[1]
        clusters = [
            *((key("app", version=each), (served[each].port,)) for each in ("v1", "v2", "v3")),
            (EMPTY, ()),
            (HALF_DEAD, (served["v1"].port, refused)),
            (DEAD, (refused,)),
        ]
        limited = plan.Cluster(
            key=LIMITED,
            settings=upstreams.Settings(circuit_breaker=upstreams.CircuitBreaker(max_requests=1)),
        )
        turns = plan.Cluster(
            key=TURNS,
            settings=upstreams.Settings(load_balancer=upstreams.LoadBalancer(policy="round_robin")),
        )
        named = plan.Cluster(
            key=NAMED,
            resolution="dns",
            addresses=(plan.Address(host="localhost", port=served["v3"].port),),
        )
        layer = plan.Layer(
            clusters=(*(plan.Cluster(key=one) for one, _ in clusters), limited, turns, named),
            endpoints=(
                *(envoy_plans.assignment(one, *ports) for one, ports in clusters),
                envoy_plans.assignment(LIMITED, served["limited"].port),
                envoy_plans.assignment(TURNS, served["v1"].port, served["v2"].port),
            ),
            route_configurations=(envoy_plans.routes(LISTENER, *HOSTS),),
            listeners=(envoy_plans.listener(LISTENER),),
        )
        snapshot = translate.Translator().snapshot(envoy_plans.proxy(layer), {})
        envoy = await stack.enter_async_context(envoy_static.running(snapshot))
        client = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=20))
        )
        yield World(envoy, served, client)


@pytest.mark.parametrize(
    ("path", "reached"),
    [
        ("/exact", "v1"),
        ("/exact?query", "v1"),
        ("/exact/", "404"),
        ("/Exact", "404"),
        ("/foo", "v2"),
        ("/foo/", "v2"),
        ("/foo/bar", "v2"),
        ("/foo?bar", "v2"),
        ("/foobar", "404"),
        ("/fo", "404"),
        ("/r12", "v3"),
        ("/r12?query", "v3"),
        ("/r12/", "404"),
        ("/x/r12", "404"),
    ],
)
async def test_paths(world: World, path: str, reached: str):
    """Exact is the whole path, a prefix is whole elements, an expression matches all of it."""
    assert await world.reached("path", path) == reached


async def test_a_direct_response_has_its_status_and_body(world: World):
    """What is answered without a backend says what is wrong."""
    async with world.ask("path", "/nowhere") as answer:
        assert (answer.status, await answer.text()) == (404, "nothing here\n")


async def test_an_unknown_host_is_not_found(world: World):
    """No virtual host, no route."""
    assert await world.reached("nobody") == "404"


async def test_methods(world: World):
    """A method is matched whole."""
    assert await world.reached("method", method="POST") == "v1"
    assert await world.reached("method", method="GET") == "v2"
    assert await world.reached("method", method="PUT") == "v2"


@pytest.mark.parametrize(
    ("headers", "reached"),
    [
        ({"x_exact": "Yes"}, "v1"),
        ({"x_exact": "yes"}, "v3"),
        ({"x_prefix": "beta"}, "v1"),
        ({"x_prefix": "abe"}, "v3"),
        ({"x_regex": "v7"}, "v1"),
        ({"x_regex": "v77"}, "v3"),
        ({"x_present": ""}, "v1"),
        ({"x_one": "1"}, "v2"),
        ({"x_one": "1", "x_two": "2"}, "v3"),
        ({}, "v3"),
    ],
)
async def test_headers(world: World, headers: dict[str, str], reached: str):
    """Each kind of test holds for what it says and for nothing else; several must all hold."""
    assert await world.reached("header", **headers) == reached


def within(share: float, requests: int, got: int) -> bool:
    """Whether a count is within five standard deviations of its binomial expectation."""
    return abs(got - share * requests) <= 5 * math.sqrt(requests * share * (1 - share))


async def test_weights(world: World):
    """Shares are as weighted; a weight of 0 gets nothing at all."""
    tally = await world.tally("weights", 500)
    assert within(0.8, 500, tally["v1"])
    assert within(0.2, 500, tally["v2"])
    assert tally.total() == tally["v1"] + tally["v2"]


async def test_the_share_of_an_unresolved_destination_gets_500(world: World):
    """Its neighbours keep exactly their shares."""
    tally = await world.tally("lost-share", 500)
    assert within(0.6, 500, tally["v1"])
    assert within(0.2, 500, tally["v2"])
    assert within(0.2, 500, tally["500"])
    assert set(tally) == {"v1", "v2", "500"}


async def test_a_route_that_cannot_be_resolved_at_all_gets_500(world: World):
    """All of its requests are the unresolved share."""
    assert await world.reached("lost") == "500"


async def test_a_cluster_without_endpoints_is_unavailable(world: World):
    """It exists, so the answer is 503, and it comes at once."""
    async with world.ask("empty") as answer:
        assert (answer.status, await answer.text()) == (503, "no healthy upstream")


async def test_a_timeout_ends_the_request(world: World):
    """The route's timeout is 504; the backend has had the request once."""
    before = len(world.backends["v1"].requests)
    assert await world.reached("timeout", "/hold") == "504"
    assert world.backends["v1"].requests[before:] == ["GET /hold"]


async def test_what_could_not_connect_is_tried_elsewhere(world: World):
    """By default a refused connection costs nobody a request, even a POST: nobody processed it."""
    tally = Counter([await world.reached("half-dead", method="POST") for _ in range(20)])
    assert tally == {"v1": 20}


@pytest.mark.parametrize("name", ["half-dead-once", "half-dead-none"])
async def test_without_retries_a_refused_connection_is_an_error(world: World, name: str):
    """No retry policy, or one of 0 attempts, shows that it was the retry that helped."""
    tally = Counter([await world.reached(name) for _ in range(20)])
    assert tally["503"] > 0
    assert set(tally) <= {"v1", "503"}


async def test_a_retry_may_go_to_the_same_endpoint(world: World):
    """One retry is always enough when it goes elsewhere, and only sometimes when it need not."""
    again, elsewhere = [
        Counter([await world.reached(name) for _ in range(40)])
        for name in ("half-dead-again", "half-dead-elsewhere")
    ]
    assert elsewhere == {"v1": 40}
    assert set(again) == {"v1", "503"}


async def test_retries_end(world: World):
    """Two retries after the first try, then the error."""
    before = await world.envoy.counter("cluster.outbound|9080||dead/default.upstream_rq_retry")
    assert await world.reached("dead") == "503"
    after = await world.envoy.counter("cluster.outbound|9080||dead/default.upstream_rq_retry")
    assert after - before == 2


async def test_a_processed_request_is_not_sent_twice(world: World):
    """The backend read the POST and hung up: by default that is an error, not a retry."""
    before = len(world.backends["v1"].requests)
    assert await world.reached("once", "/drop", method="POST") == "503"
    assert world.backends["v1"].requests[before:] == ["POST /drop"]


async def test_retry_conditions_are_the_routes(world: World):
    """With 5xx an answer of 503 is tried again, as often as the route says."""
    before = len(world.backends["v1"].requests)
    assert await world.reached("twice", "/status/503") == "503"
    assert world.backends["v1"].requests[before:] == ["GET /status/503"] * 3


async def test_each_try_has_its_own_time(world: World):
    """The first try runs out of time and is tried again; the second is the last."""
    before = len(world.backends["v2"].requests)
    assert await world.reached("impatient", "/hold") == "504"
    assert world.backends["v2"].requests[before:] == ["GET /hold"] * 2


async def test_round_robin_takes_turns(world: World):
    """One after another, which no other policy does."""
    assert await world.tally("turns", 1) + await world.tally("turns", 1) == {"v1": 1, "v2": 1}


async def test_a_name_is_resolved_by_the_proxy(world: World):
    """A DNS cluster's host is a name."""
    assert await world.reached("named") == "v3"


async def test_a_name_may_take_the_place_of_the_host(world: World):
    """The host that was resolved, not the one that was asked for."""
    async with world.ask("named") as same, world.ask("by-its-name") as other:
        assert (await same.json())["headers"]["host"] == "named"
        assert (await other.json())["headers"]["host"] == "localhost"


async def test_metrics_are_told_by_the_whole_name_of_cluster_and_listener(world: World):
    """A dot in the name would cut the tag off."""
    await world.reached("dead")
    text = await world.envoy.ask("/stats/prometheus")
    assert 'envoy_cluster_name="outbound|9080||dead/default"' in text
    assert f'envoy_http_conn_manager_prefix="{LISTENER}"' in text


async def test_what_exceeds_a_circuit_breaker_fails_at_once(world: World):
    """One request may be under way; the next gets 503 and says that it is overload."""
    backend = world.backends["limited"]
    first = asyncio.create_task(world.reached("limited", "/hold"), name="held request")
    try:
        await waiting.eventually(lambda: backend.requests == ["GET /hold"])
        async with world.ask("limited") as answer:
            assert answer.status == 503
            assert answer.headers["x-envoy-overloaded"] == "true"
    finally:
        backend.release.set()
    assert await first == "limited"
    assert await world.reached("limited") == "limited"


@pytest.mark.parametrize(
    ("name", "status", "location"),
    [
        ("keeps-all", 302, "http://redirect-keeps-all:81/old?q=1"),
        ("code-301", 301, "http://redirect-code-301:81/new?q=1"),
        ("code-303", 303, "http://redirect-code-303:81/new?q=1"),
        ("code-307", 307, "http://redirect-code-307:81/new?q=1"),
        ("code-308", 308, "http://redirect-code-308:81/new?q=1"),
        ("host", 302, "http://new.example.com/old?q=1"),  # with a new host, Envoy drops the port
        ("port", 302, "http://redirect-port:8443/old?q=1"),
        ("scheme", 302, "https://redirect-scheme:443/old?q=1"),
        ("same-scheme", 302, "http://redirect-same-scheme:81/old?q=1"),
        ("scheme-port", 302, "https://redirect-scheme-port:443/old?q=1"),
        ("default-port", 302, "https://new.example.com/old?q=1"),
        ("all", 302, "https://new.example.com:8443/new?q=1"),
    ],
)
async def test_redirects(world: World, name: str, status: int, location: str):
    """A part that is not said is that of the request; the query always is."""
    async with world.ask(f"redirect-{name}:81", "/old?q=1") as answer:
        assert (answer.status, answer.headers["location"]) == (status, location)


async def test_a_redirect_to_another_scheme_needs_no_port(world: World):
    """Where the request has none, the answer has none."""
    async with world.ask("secure", "/old") as answer:
        assert answer.headers["location"] == "https://secure/old"
