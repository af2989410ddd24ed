# SPDX-License-Identifier: Apache-2.0
"""Listeners as a real Envoy takes them: at the edge, beside an application, and behind TLS."""

import asyncio
import contextlib
import dataclasses
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from pilothouse.envoy import translate
from pilothouse.model import secrets
from pilothouse.routing import plan
from tests.support import backends, certificates, envoy_plans, envoy_static, otlp
from tests.support.envoy_plans import LOOPBACK, forward, host, key, listener, route, static

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]

APP, COLLECTOR = key("app"), key("collector", 4317, external=True)
SIDECAR, EDGE, SECURE, STRIPPED = "http-proxy", "gateway|8080", "gateway|8443", "gateway|8081"
TRACED, TRACED_EDGE, UNSAMPLED = "traced", "traced-edge", "unsampled"


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """One Envoy, its backend and collector, and the certificates that it serves."""

    envoy: envoy_static.RunningEnvoy
    backend: backends.Backend
    client: aiohttp.ClientSession
    collector: otlp.OtlpReceiver
    pairs: dict[str, certificates.Pair]

    async def raw(self, name: str, target: str, *headers: str) -> tuple[str, dict[str, Any]]:
        """A GET with exactly this target and these header lines: the answer's head and JSON."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self.envoy.ports[name])
        try:
            lines = (f"GET {target} HTTP/1.1", *headers, "Connection: close", "", "")
            writer.write("\r\n".join(lines).encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
        return head.lower(), json.loads(body) if body.startswith("{") else {}

    async def tls(self, name: str | None, context: ssl.SSLContext) -> tuple[bytes, str | None]:
        """Shake hands: the certificate (DER) and the protocol that Envoy chose."""
        _, writer = await asyncio.open_connection(
            LOOPBACK, self.envoy.ports[SECURE], ssl=context, server_hostname=name or ""
        )
        try:
            connection = writer.get_extra_info("ssl_object")
            return connection.getpeercert(binary_form=True), connection.selected_alpn_protocol()
        finally:
            writer.close()
            await writer.wait_closed()


def held(pairs: Mapping[str, certificates.Pair]) -> dict[secrets.SecretKey, secrets.TlsSecret]:
    keys = {"shop": envoy_plans.SHOP_TLS, "api": envoy_plans.API_TLS}
    return {
        keys[name]: secrets.TlsSecret(
            key=keys[name],
            certificate_chain=pair.certificate.encode(),
            private_key=pair.private_key.encode(),
        )
        for name, pair in pairs.items()
    }


def planned(backend: int, collector: int) -> plan.ProxyPlan:
    everything = host("all", route(forward(APP, timeout_ms=5000)), domains=("*",))
    shop = host("shop.example.com", route(forward(APP)))
    moved = host("moved.example.com", route(plan.Redirect(path="/new")))
    reviews = host("reviews:9080", route(forward(APP), "RouteRule/default/reviews/0"))
    tracing = plan.Tracing(collector=COLLECTOR, service_name="productpage.default")
    never = dataclasses.replace(tracing, sampling_percent=0)
    both = (envoy_plans.SHOP_TLS, envoy_plans.API_TLS)
    elsewhere = plan.Layer(route_configurations=(envoy_plans.routes(STRIPPED, shop),))
    main = plan.Layer(
        clusters=(static(APP, backend), static(COLLECTOR, collector, http2=True)),
        route_configurations=(
            envoy_plans.routes(SIDECAR, everything, reviews),
            envoy_plans.routes(EDGE, shop, moved),
            *(envoy_plans.routes(name, everything) for name in (SECURE, TRACED_EDGE, UNSAMPLED)),
            envoy_plans.routes(TRACED, everything, reviews),
        ),
        listeners=(
            listener(SIDECAR),
            listener(EDGE, edge=True, strip_port=True),
            listener(STRIPPED, edge=True, strip_port=True),
            listener(SECURE, edge=True, certificates=both),
            listener(TRACED, tracing=tracing),
            listener(TRACED_EDGE, tracing=never, edge=True),
            listener(UNSAMPLED, tracing=never),
        ),
        certificates=both,
    )
    return envoy_plans.proxy(main, elsewhere)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        backend = await stack.enter_async_context(backends.backend("app"))
        collector = await stack.enter_async_context(otlp.otlp_receiver())
        pairs = {
            "shop": certificates.make("shop.example.com", "*.shop.example.com"),
            "api": certificates.make("api.example.com"),
        }
        proxy = planned(backend.port, int(collector.endpoint.rpartition(":")[2]))
        snapshot = translate.Translator().snapshot(proxy, held(pairs))
        envoy = await stack.enter_async_context(envoy_static.running(snapshot))
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield World(envoy, backend, client, collector, pairs)


async def test_envoy_has_nothing_to_warn_of(world: World):
    """No deprecated field, no default that is about to change, nothing ignored."""
    assert world.envoy.log.read_text() == ""


async def test_an_application_uses_its_sidecar_as_http_proxy(world: World):
    """A request line with a whole URL is routed by that URL's host and port."""
    async with world.client.get(
        "http://reviews:9080/reviews/1?full", proxy=world.envoy.url(SIDECAR, "")
    ) as answer:
        got = await answer.json()
    assert got["path"] == "/reviews/1?full"
    assert got["headers"]["host"] == "reviews:9080"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a/../b", "/b"),
        ("/a/./b", "/a/b"),
        ("//a///b", "/a/b"),
        ("/a%2e%2e/b", "/a../b"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%2fb/../c", "/c"),
    ],
)
async def test_paths_are_sent_on_as_they_were_matched(world: World, target: str, path: str):
    """Dots and double slashes go, an escaped slash stays."""
    _, got = await world.raw(SIDECAR, target, "Host: app")
    assert got["path"] == path


@pytest.mark.parametrize(
    "name", ["shop.example.com", "shop.example.com:8080", "shop.example.com.", "SHOP.example.com"]
)
async def test_a_gateway_matches_a_host_with_any_port(world: World, name: str):
    """The port takes no part in matching, nor does a trailing dot, nor does case."""
    _, got = await world.raw(EDGE, "/", f"Host: {name}")
    assert got["backend"] == "app"


async def test_the_host_header_keeps_its_port(world: World):
    """The application and a redirect see the port that the client used."""
    _, got = await world.raw(EDGE, "/", "Host: shop.example.com:8080")
    assert got["headers"]["host"] == "shop.example.com:8080"
    head, _ = await world.raw(EDGE, "/", "Host: moved.example.com:8080")
    assert "location: http://moved.example.com:8080/new" in head


async def test_routes_of_another_layer_are_matched_without_port_too(world: World):
    """There the listener itself strips it: the host is found, at the price of the header's port."""
    _, got = await world.raw(STRIPPED, "/", "Host: shop.example.com:8080")
    assert got["headers"]["host"] == "shop.example.com"


async def test_the_edge_believes_no_header_of_the_outside(world: World):
    """Who asked and how is what the connection says; ids are new; nobody steers Envoy."""
    _, got = await world.raw(
        EDGE,
        "/",
        "Host: shop.example.com",
        "X-Forwarded-For: 10.9.9.9",
        "X-Forwarded-Proto: https",
        "X-Request-Id: 11111111-1111-4111-8111-111111111111",
        "X-Envoy-Internal: true",
        "X-Envoy-Max-Retries: 50",
        "X-Envoy-Upstream-Rq-Timeout-Ms: 1",
        "X-Envoy-Decorator-Operation: mine",
        "X-Forwarded-Client-Cert: By=me",
    )
    seen = got["headers"]
    claimed, added = seen["x-forwarded-for"].split(",")
    assert claimed == "10.9.9.9"
    assert added  # for a client on this machine Envoy writes the machine's own address
    assert seen["x-forwarded-proto"] == "http"
    assert seen["x-request-id"] != "11111111-1111-4111-8111-111111111111"
    taken = {"x-envoy-internal", "x-envoy-max-retries", "x-envoy-upstream-rq-timeout-ms"}
    taken |= {"x-envoy-decorator-operation", "x-forwarded-client-cert"}
    assert not taken & set(seen)


async def test_a_sidecar_passes_on_what_it_is_told(world: World):
    """The request's id and origin stay; only what would steer Envoy goes."""
    _, got = await world.raw(
        SIDECAR,
        "/",
        "Host: app",
        "X-Forwarded-For: 10.9.9.9",
        "X-Forwarded-Proto: https",
        "X-Request-Id: 11111111-1111-4111-8111-111111111111",
        "X-Envoy-Upstream-Rq-Timeout-Ms: 1",
    )
    seen = got["headers"]
    assert seen["x-forwarded-for"] == "10.9.9.9"
    assert seen["x-forwarded-proto"] == "https"
    assert seen["x-request-id"] == "11111111-1111-4111-8111-111111111111"
    assert "x-envoy-upstream-rq-timeout-ms" not in seen


@pytest.mark.parametrize("origin", [(), ("X-Forwarded-For: 10.9.9.9",)])
@pytest.mark.parametrize("name", [SIDECAR, EDGE])
async def test_nobody_steers_envoy_by_headers(world: World, name: str, origin: tuple[str, ...]):
    """Who asks for more retries gets none, wherever it is or claims to be."""
    before = len(world.backend.requests)
    wishes = ("X-Envoy-Retry-On: 5xx", "X-Envoy-Max-Retries: 3")
    head, _ = await world.raw(name, "/status/503", "Host: shop.example.com", *wishes, *origin)
    assert head.startswith("http/1.1 503")
    assert world.backend.requests[before:] == ["GET /status/503"]


async def test_a_sidecar_gives_an_id_to_a_request_without_one(world: World):
    """Every request can be followed."""
    _, got = await world.raw(SIDECAR, "/", "Host: app")
    assert len(got["headers"]["x-request-id"]) == 36


async def test_who_answered(world: World):
    """A sidecar keeps the application's Server header, the edge hides it."""
    beside, _ = await world.raw(SIDECAR, "/", "Host: app")
    edge, _ = await world.raw(EDGE, "/", "Host: shop.example.com")
    assert "server: the-application" in beside
    assert "server: envoy" in edge


@pytest.mark.parametrize("name", [SIDECAR, EDGE])
async def test_websockets_pass(world: World, name: str):
    """An upgrade goes through, and messages both ways."""
    async with world.client.ws_connect(
        world.envoy.url(name, "/echo"), headers={"host": "shop.example.com"}
    ) as socket:
        await socket.send_str("ahoy")
        assert await socket.receive_str() == "ahoy"


def client_context(pair: certificates.Pair | None = None) -> ssl.SSLContext:
    """Trusts one certificate and checks its name; without one it checks nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if pair is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=pair.certificate)
    return context


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("shop.example.com", "shop"),
        ("eu.shop.example.com", "shop"),
        ("api.example.com", "api"),
    ],
)
async def test_the_certificate_is_chosen_by_name(world: World, name: str, pair: str):
    """The client trusts nothing but that certificate, and requires its name."""
    certificate, _ = await world.tls(name, client_context(world.pairs[pair]))
    assert certificate == ssl.PEM_cert_to_DER_cert(world.pairs[pair].certificate)
    async with world.client.get(
        f"https://{LOOPBACK}:{world.envoy.ports[SECURE]}/",
        headers={"host": name},
        ssl=client_context(world.pairs[pair]),
        server_hostname=name,
    ) as answer:
        got = await answer.json()
    assert got["headers"]["host"] == name
    assert got["headers"]["x-forwarded-proto"] == "https"


@pytest.mark.parametrize("name", [None, "other.example.com"])
async def test_without_a_matching_name_the_first_certificate_is_served(
    world: World, name: str | None
):
    """The first of the gateway is the default."""
    certificate, _ = await world.tls(name, client_context())
    assert certificate == ssl.PEM_cert_to_DER_cert(world.pairs["shop"].certificate)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), (["http/1.1", "h2"], "h2")],
)
async def test_http2_is_preferred(world: World, offered: Sequence[str], chosen: str):
    """The listener's order decides."""
    context = client_context()
    context.set_alpn_protocols(list(offered))
    assert (await world.tls("shop.example.com", context))[1] == chosen


async def test_tls_before_1_2_is_refused(world: World):
    """The handshake fails, though the client would."""
    context = client_context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        await world.tls("shop.example.com", context)


async def test_a_tls_port_does_not_serve_in_the_clear(world: World):
    """Plain HTTP gets no answer at all."""
    with contextlib.suppress(ConnectionResetError):
        head, got = await world.raw(SECURE, "/", "Host: shop.example.com")
        assert (head, got) == ("", {})


async def test_spans_tell_route_and_cluster(world: World):
    """The trace of the caller goes on: the request's span, and below it the one of the upstream."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    _, got = await world.raw(
        TRACED, "/", "Host: reviews:9080", f"traceparent: 00-{trace}-b7ad6b7169203331-01"
    )
    spans = [
        (service, span)
        for service, span in await world.collector.wait(
            lambda spans: sum(span.trace_id.hex() == trace for _, span in spans) >= 2
        )
        if span.trace_id.hex() == trace
    ]
    assert {service for service, _ in spans} == {"productpage.default"}
    server = next(span for _, span in spans if span.parent_span_id.hex() == "b7ad6b7169203331")
    upstream = next(span for _, span in spans if span.parent_span_id == server.span_id)
    assert server.name == "reviews:9080/RouteRule/default/reviews/0"
    assert upstream.name == "router outbound|9080||app/default egress"
    assert got["headers"]["traceparent"].split("-")[1:3] == [trace, upstream.span_id.hex()]
    assert "x-envoy-decorator-operation" not in got["headers"]


async def test_sampling_is_for_requests_without_a_trace(world: World):
    """At 0 % a new request is not traced unless a client in the mesh asks for it by its own id; a
    client at the edge may ask, and is not heard.
    """
    forced = "x-client-trace-id: mine"
    await world.raw(UNSAMPLED, "/", "Host: never")
    await world.raw(TRACED_EDGE, "/", "Host: never", forced)
    await world.raw(UNSAMPLED, "/", "Host: forced", forced)
    spans = await world.collector.wait(
        lambda spans: any(tag(span, "http.url") == "http://forced/" for _, span in spans)
    )
    assert not [span for _, span in spans if tag(span, "http.url") == "http://never/"]


def tag(span: Any, name: str) -> str:
    return next((each.value.string_value for each in span.attributes if each.key == name), "")
