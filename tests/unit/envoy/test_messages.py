# SPDX-License-Identifier: Apache-2.0
"""Encoding: joined chunks are the whole message, and a reader that shares no code with us agrees.

The reader is envoy-data-plane (betterproto2), generated from Envoy's own protos by other people.
"""

import datetime as dt

import hypothesis
import pytest
from hypothesis import strategies as st

from pilothouse.envoy import clusters, endpoints, listeners, routes, secrets, wire
from pilothouse.model import secrets as model_secrets
from pilothouse.model import services
from pilothouse.routing import plan, upstreams
from tests.support import envoy_plans, independent
from tests.support.envoy_plans import forward, header, host, key, listener, route

NAMES = st.text("ab-.é", max_size=300)  # a length of more than 127 needs a second byte
KEYS = st.builds(key, st.text("abc", min_size=1, max_size=200))
ACTIONS = st.one_of(
    st.builds(
        plan.Forward,
        clusters=st.lists(
            st.builds(
                plan.WeightedCluster, cluster=st.none() | KEYS, weight=st.integers(0, 1_000_000)
            ),
            min_size=1,
            max_size=3,
        ).map(tuple),
        timeout_ms=st.integers(0, 10_000_000),
        retry=st.none() | st.builds(plan.Retry, attempts=st.integers(0, 10)),
    ),
    st.builds(
        plan.Redirect,
        code=st.sampled_from([301, 302, 303, 307, 308]),
        scheme=st.none() | st.sampled_from(["http", "https"]),
        host=st.none() | NAMES,
        port=st.none() | st.integers(1, 65535),
        path=st.none() | NAMES,
    ),
    st.builds(plan.DirectResponse, status=st.integers(200, 599), body=NAMES),
)
ROUTES = st.builds(
    plan.Route,
    name=NAMES,
    match=st.builds(
        plan.RouteMatch,
        path_kind=st.sampled_from(["any", "exact", "prefix", "regex"]),
        path=NAMES,
        method=st.sampled_from(["", "GET"]),
        headers=st.lists(
            st.builds(
                plan.HeaderMatch,
                name=NAMES,
                kind=st.sampled_from(["exact", "prefix", "regex", "present", "absent"]),
                value=NAMES,
            ),
            max_size=2,
        ).map(tuple),
    ),
    action=ACTIONS,
)
HOSTS = st.builds(
    plan.VirtualHost,
    name=NAMES,
    domains=st.lists(NAMES, max_size=3).map(tuple),
    routes=st.lists(ROUTES, max_size=3).map(tuple),
)
CONFIGURATIONS = st.builds(
    plan.RouteConfiguration,
    name=NAMES,
    virtual_hosts=st.lists(HOSTS, max_size=3).map(tuple),
)


@hypothesis.given(configuration=CONFIGURATIONS, ignore_port=st.booleans())
def test_joined_chunks_are_the_whole_message(
    *, configuration: plan.RouteConfiguration, ignore_port: bool
):
    """The bytes are those that protobuf itself gives for the one message."""
    chunks = [routes.chunk(each) for each in configuration.virtual_hosts]
    joined = routes.resource(configuration.name, chunks, ignore_port=ignore_port)
    whole = routes.message(configuration, ignore_port=ignore_port)
    assert joined.body == wire.encode(whole)


def test_a_cluster_as_others_read_it():
    """Name, limits, timeout, where endpoints come from, HTTP/2."""
    cluster = plan.Cluster(
        key=key("reviews", version="v2"),
        http2=True,
        settings=upstreams.Settings(
            connect_timeout_ms=1_250,
            load_balancer=upstreams.LoadBalancer(policy="round_robin"),
            circuit_breaker=upstreams.CircuitBreaker(max_connections=7, max_pending_requests=0),
        ),
    )
    read = independent.cluster.Cluster.parse(clusters.resource(cluster).body)
    assert read.name == "outbound|9080|version=v2|reviews.default"
    assert read.type == independent.cluster.ClusterDiscoveryType.EDS
    assert read.lb_policy == independent.cluster.ClusterLbPolicy.ROUND_ROBIN
    assert read.connect_timeout == dt.timedelta(seconds=1.25)
    source = read.eds_cluster_config.eds_config
    assert source.ads is not None
    assert source.initial_fetch_timeout == dt.timedelta(seconds=15)
    (limits,) = read.circuit_breakers.thresholds
    assert (limits.max_connections, limits.max_pending_requests) == (7, 0)
    assert (limits.max_requests, limits.max_retries) == (2**32 - 1, 2**32 - 1)
    assert list(read.typed_extension_protocol_options) == [
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    ]


def test_endpoints_as_others_read_them():
    """Every locality is said and weighed by its endpoints; an empty one is left out."""
    zone = services.Locality(region="eu", zone="eu-1")
    assignment = plan.ClusterEndpoints(
        key=key("reviews"),
        localities=(
            plan.LocalityEndpoints(
                locality=services.Locality(), addresses=envoy_plans.addresses(1, 2, 3)
            ),
            plan.LocalityEndpoints(locality=services.Locality(region="as"), addresses=()),
            plan.LocalityEndpoints(
                locality=zone, addresses=(plan.Address(host="2001:db8::1", port=65535),)
            ),
        ),
    )
    read = independent.endpoint.ClusterLoadAssignment.parse(endpoints.resource(assignment).body)
    assert read.cluster_name == "outbound|9080||reviews.default"
    assert [
        (place.locality.region, place.locality.zone, place.load_balancing_weight, place.priority)
        for place in read.endpoints
    ] == [("", "", 3, 0), ("eu", "eu-1", 1, 0)]
    sockets = [
        each.endpoint.address.socket_address
        for place in read.endpoints
        for each in place.lb_endpoints
    ]
    assert [(each.address, each.port_value) for each in sockets] == [
        ("127.0.0.1", 1),
        ("127.0.0.1", 2),
        ("127.0.0.1", 3),
        ("2001:db8::1", 65535),
    ]


def test_routes_as_others_read_them():
    """Match and action of a weighted route with a share that leads nowhere."""
    planned = host(
        "reviews",
        route(
            forward((key("reviews"), 3), (None, 1), timeout_ms=2_500),
            "RouteRule/default/reviews/0",
            path_kind="prefix",
            path="/api",
            method="GET",
            headers=(header("x-user", "exact", "jason"), header("x-no", "absent")),
        ),
    )
    resource = routes.resource("http-proxy", [routes.chunk(planned)])
    assert [name for _, name in resource.references] == ["outbound|9080||reviews.default"]
    read = independent.route.RouteConfiguration.parse(resource.body)
    (only,) = read.virtual_hosts[0].routes
    assert only.name == "RouteRule/default/reviews/0"
    assert only.match.path_separated_prefix == "/api"
    assert [each.name for each in only.match.headers] == [":method", "x-user", "x-no"]
    assert only.match.headers[1].string_match.exact == "jason"
    assert only.match.headers[2].present_match is False
    shares = only.route.weighted_clusters.clusters
    assert [(each.name, each.weight) for each in shares] == [
        ("outbound|9080||reviews.default", 3),
        ("unresolved", 1),
    ]
    code = independent.route.RouteActionClusterNotFoundResponseCode.INTERNAL_SERVER_ERROR
    assert only.route.cluster_not_found_response_code == code
    assert only.route.timeout == dt.timedelta(seconds=2.5)
    assert only.route.retry_policy.retry_on == "connect-failure,refused-stream"
    assert only.route.retry_policy.num_retries == 2


ONCE = plan.Retry(attempts=1)
REDIRECT = route(plan.Redirect(code=301, host="b"), path_kind="exact", path="/r")


@pytest.mark.parametrize(
    ("retries", "of_host", "of_routes"),
    [
        ((plan.Retry(),), None, [2]),
        ((plan.Retry(), plan.Retry()), 2, [None, None]),
        ((ONCE, plan.Retry(attempts=1), ONCE), 1, [None, None, None]),
        ((ONCE, plan.Retry()), None, [1, 2]),
        ((ONCE, None), None, [1, None]),
        ((plan.Retry(attempts=0), plan.Retry(attempts=0)), None, [None, None]),
        ((None, None), None, [None, None]),
    ],
)
def test_retries_of_all_routes_are_those_of_the_host(
    retries: tuple[plan.Retry | None, ...], of_host: int | None, of_routes: list[int | None]
) -> None:
    """If there are several, and all that send requests on say the same.

    A route that says none would have its host's (`VirtualHost.retry_policy` of Envoy's API).
    """
    sending = [route(forward(key("reviews"), retry=retry)) for retry in retries]
    planned = host("reviews", REDIRECT, *sending)
    read = independent.route.RouteConfiguration.parse(
        routes.resource("http-proxy", [routes.chunk(planned)]).body
    )
    (made,) = read.virtual_hosts
    assert (made.retry_policy.num_retries if made.retry_policy else None) == of_host
    assert [
        one.route.retry_policy.num_retries if one.route.retry_policy else None
        for one in made.routes[1:]
    ] == of_routes


@pytest.mark.parametrize("edge", [True, False])
def test_a_listener_as_others_read_it(*, edge: bool):
    """Address, certificates in the plan's order, and the manager's view of its peers."""
    both = (envoy_plans.SHOP_TLS, envoy_plans.API_TLS)
    planned = listener("gateway|8443", port=8443, certificates=both, edge=edge)
    read = independent.listener.Listener.parse(listeners.Served(planned).resource().body)
    assert read.address.socket_address.port_value == 8443
    (chain,) = read.filter_chains
    context = independent.tls.DownstreamTlsContext.parse(chain.transport_socket.typed_config.value)
    names = context.common_tls_context.tls_certificate_sds_secret_configs
    assert [each.name for each in names] == ["secret|default/shop-tls", "secret|default/api-tls"]
    assert context.common_tls_context.alpn_protocols == ["h2", "http/1.1"]
    manager = independent.connection_manager.HttpConnectionManager.parse(
        chain.filters[0].typed_config.value
    )
    assert manager.rds.route_config_name == "gateway|8443"
    assert manager.rds.config_source.initial_fetch_timeout == dt.timedelta(seconds=15)
    assert bool(manager.use_remote_address) is edge
    assert manager.stream_idle_timeout == dt.timedelta(minutes=5 if edge else 0)


def test_a_certificate_as_others_read_it():
    """Chain and key, inline."""
    secret = model_secrets.TlsSecret(
        key=envoy_plans.SHOP_TLS, certificate_chain=b"chain", private_key=b"key"
    )
    read = independent.tls.Secret.parse(secrets.certificate(secret).body)
    assert read.name == "secret|default/shop-tls"
    assert read.tls_certificate.certificate_chain.inline_bytes == b"chain"
    assert read.tls_certificate.private_key.inline_bytes == b"key"


@pytest.mark.parametrize("revocations", [b"", b"list"])
def test_an_authority_as_others_read_it(revocations: bytes):
    """Who signs and what was revoked; the secret's own key stays where it is."""
    secret = model_secrets.TlsSecret(
        key=envoy_plans.SHOP_TLS, private_key=b"4711", authorities=b"ca", revocations=revocations
    )
    body = secrets.authority(secret).body
    read = independent.tls.Secret.parse(body)
    assert read.name == "authority|default/shop-tls"
    assert read.validation_context.trusted_ca.inline_bytes == b"ca"
    crl = read.validation_context.crl
    assert (crl.inline_bytes if crl else b"") == revocations
    assert read.validation_context.only_verify_leaf_cert_crl is bool(revocations)
    assert b"4711" not in body


def test_an_unknown_redirect_code_is_a_mistake_of_the_plan():
    """Validation refuses it long before, so here it is an exception."""
    with pytest.raises(KeyError):
        routes.chunk(host("x", route(plan.Redirect(code=300))))


def test_a_long_answer_is_cut_to_what_envoy_takes():
    """4096 bytes, Envoy's default for bodies; a character that does not fit whole is left out."""
    body = "é" * 4000
    direct = plan.DirectResponse(status=500, body=body)
    configuration = envoy_plans.routes("r", host("h", route(direct)))
    made = routes.message(configuration).virtual_hosts[0].routes[0].direct_response.body
    assert len(made.inline_string.encode()) <= 4096
    assert made.inline_string.rstrip(" .\n") == "é" * 2045
    short = plan.DirectResponse(status=500, body="é" * 2048)
    kept = routes.message(envoy_plans.routes("r", host("h", route(short))))
    assert kept.virtual_hosts[0].routes[0].direct_response.body.inline_string == "é" * 2048
