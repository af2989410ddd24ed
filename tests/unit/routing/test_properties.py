# SPDX-License-Identifier: Apache-2.0
"""Plans depend on what is there, and on nothing else: not on order, and not on the past."""

import dataclasses
import random
from collections.abc import Collection
from typing import Any

from hypothesis import given, settings, strategies

from pilothouse.config import objects
from pilothouse.model import keys, mapped, secrets, services
from pilothouse.model import proxy as proxies
from pilothouse.routing import credentials, hosts, plan, planner, state
from tests.support import meshes

PLACE = services.Locality(region="r", zone="z")
SECRET = secrets.SecretKey("one", "s")
ELSEWHERE = services.Locality(region="r", zone="y")
NAMESPACES = ("one", "two")
NAMES = ("a", "b")
PORTS = strategies.lists(
    strategies.builds(
        meshes.port,
        strategies.sampled_from((80, 8080)),
        strategies.sampled_from(("http", "web")),
        strategies.sampled_from(tuple(services.AppProtocol)),
    ),
    max_size=2,
    unique_by=lambda port: port.number,
).map(lambda ports: tuple(sorted(ports, key=lambda port: port.number)))
NAMESPACE = strategies.sampled_from(NAMESPACES)
NAME = strategies.sampled_from(NAMES)
CREATED = strategies.integers(0, 2)


def flow(**parts: Any) -> str:
    """YAML in flow style, without what is None."""
    return "{" + ", ".join(f"{key}: {one}" for key, one in parts.items() if one is not None) + "}"


def lists(of: strategies.SearchStrategy[str], least: int = 1) -> strategies.SearchStrategy[str]:
    return strategies.lists(of, min_size=least, max_size=2).map(
        lambda found: "[" + ", ".join(found) + "]"
    )


def optional(*values: Any) -> strategies.SearchStrategy[Any]:
    return strategies.sampled_from((None, *values))


DESTINATION = strategies.one_of(
    strategies.builds(
        flow,
        service=NAME,
        namespace=NAMESPACE,
        port=optional(80),
        labels=optional("{version: v1}"),
        weight=optional(0, 3),
    ),
    strategies.builds(flow, externalService=NAME, namespace=NAMESPACE, weight=optional(2)),
)
SOURCE = optional("{namespace: one}", "{labels: {app: a}}", "{service: a, namespace: one}")
MATCH = strategies.builds(
    flow,
    path=optional("{exact: /x}", "{prefix: /x}", "{prefix: /}", "{regex: '/.'}"),
    method=optional("GET"),
    headers=optional("[{name: h, present: true}]"),
    source=SOURCE,
)
CONNECTIONS = lists(
    strategies.builds(
        flow,
        matches=optional(
            "[{sourceCidrs: [10.0.0.0/8]}]", "[{source: {namespace: one}}, {port: 1}]"
        ),
        destinations=strategies.one_of(strategies.none(), lists(DESTINATION)),
    )
)
ROUTE = strategies.one_of(
    strategies.builds(flow, matches=lists(MATCH), destinations=lists(DESTINATION)),
    strategies.builds(flow, matches=lists(MATCH), redirect=strategies.just("{path: /y}")),
    strategies.builds(flow, matches=lists(MATCH), timeout=strategies.just("1s")),
)
PARENT = strategies.one_of(
    strategies.builds(flow, service=NAME, namespace=NAMESPACE, port=optional(80)),
    strategies.builds(flow, externalService=NAME, namespace=NAMESPACE),
    strategies.builds(flow, gateway=NAME, namespace=NAMESPACE),
)
RULE = strategies.builds(
    flow,
    parents=lists(PARENT),
    hosts=optional("['*.com', a.com]"),
    priority=optional(1),
    http=lists(ROUTE),
    tcp=strategies.one_of(strategies.none(), CONNECTIONS),
    tls=strategies.one_of(strategies.none(), CONNECTIONS),
    udp=optional("[{}]", "[{destinations: [{service: a, namespace: one}]}]"),
)
POLICY = strategies.builds(
    flow,
    service=NAME,
    namespace=NAMESPACE,
    labels=optional("{version: v1}"),
    connectTimeout=optional("1s", "2s"),
    locality=optional(
        "{}",
        "{failover: {}}",
        "{failover: {labels: [app, topology.kubernetes.io/zone, version=v1]}}",
        "{distribution: {shares: [{from: '*', to: {'*': 1}}]}}",
        "{zoneAware: {}}",
        "{zoneAware: {failover: {}}}",
        "{zoneAware: {failover: {labels: [app]}}}",
    ),
    tls=optional(
        "{mode: DISABLE}", "{sni: a, caSecret: s}", "{mode: MUTUAL, sni: a, clientCertificate: s}"
    ),
)
EXTERNAL = strategies.builds(
    flow,
    hosts=lists(strategies.sampled_from(("a.com", "b.com", "a", "a.one"))),
    ports=strategies.sampled_from(
        ("[{number: 80}]", "[{number: 80, protocol: TCP}, {number: 81, protocol: TLS}]")
    ),
    throughEgressGateway=optional("true"),
)
GATEWAY = strategies.builds(
    flow,
    selector=strategies.sampled_from(("{app: a}", "{app: a, zone: z}")),
    listeners=strategies.sampled_from(
        (
            "[{name: http, port: 80, protocol: HTTP}]",
            "[{name: http, port: 80, protocol: HTTP, hosts: ['*.com']}]",
            "[{name: tls, port: 80, protocol: HTTPS, tls: {certificates: [{secret: s}]}}]",
            "[{name: tcp, port: 80, protocol: TCP}, {name: udp, port: 80, protocol: UDP}]",
        )
    ),
    allowedNamespaces=optional("['*']"),
)


def of_kind(
    make: Any, spec: strategies.SearchStrategy[str]
) -> strategies.SearchStrategy[dict[keys.ObjectKey, objects.Config]]:
    return strategies.builds(
        lambda name, namespace, text, created: make(f"{name}.{namespace}", text, created=created),
        NAME,
        NAMESPACE,
        spec,
        CREATED,
    )


CONFIGS = strategies.lists(
    strategies.one_of(
        of_kind(meshes.rule, RULE),
        of_kind(meshes.policy, POLICY),
        of_kind(meshes.external, EXTERNAL),
        of_kind(meshes.gateway, GATEWAY),
    ),
    max_size=6,
).map(lambda found: {key: one for some in found for key, one in some.items()})

SERVICE = strategies.builds(
    lambda name, namespace, ports, ip, alias: services.Service(
        key=keys.ServiceKey(namespace, name),
        ports=ports,
        cluster_ips=(ip,) if ip else (),
        selector=keys.labels(app=name),
        external_name=alias,
    ),
    NAME,
    NAMESPACE,
    PORTS,
    strategies.sampled_from(("", "10.96.0.1", "10.96.0.2")),
    optional("a.one", "b.two.svc.cluster.local.", "a.com", "elsewhere.example"),
)


def endpoint(*args: Any, pod: str | None, **parts: Any) -> services.Endpoint:
    """An endpoint; `pod` is its name in a StatefulSet."""
    made: services.Endpoint = meshes.endpoint(*args, **parts)
    more = {hosts.POD_LABEL: pod} if pod else {}
    return dataclasses.replace(made, labels=keys.labels({**dict(made.labels), **more}))


ENDPOINT = strategies.builds(
    endpoint,
    strategies.sampled_from(("10.0.0.1", "10.0.0.2")),
    strategies.sampled_from((80, 8080)),
    strategies.sampled_from(("http", "web")),
    version=optional("v1"),
    pod=optional("a-0", "b"),
    ready=strategies.booleans(),
    locality=strategies.sampled_from((services.Locality(), PLACE, ELSEWHERE)),
)
WORKLOAD = strategies.builds(
    lambda name, namespace: services.Workload(
        namespace=namespace, name=name, addresses=("10.0.0.1",), labels=keys.labels(app=name)
    ),
    NAME,
    NAMESPACE,
)
STATES = strategies.builds(
    lambda known, endpoints, workloads, configs, held: state.MeshState(
        services={one.key: one for one in known},
        endpoints={key: tuple(some) for key, some in endpoints.items()},
        workloads=tuple(workloads),
        configs=configs,
        secrets=held,
    ),
    strategies.lists(SERVICE, max_size=4),
    strategies.dictionaries(
        strategies.builds(keys.ServiceKey, NAMESPACE, NAME), strategies.lists(ENDPOINT, max_size=3)
    ),
    strategies.lists(WORKLOAD, max_size=2),
    CONFIGS,
    strategies.sampled_from(
        (None, frozenset(), frozenset([SECRET]), frozenset([secrets.AuthorityKey(SECRET)]))
    ),
)
PROXIES = (
    meshes.sidecar("a-1.one", "10.0.0.1"),
    meshes.sidecar("b-1.two", "10.0.0.1"),
    meshes.sidecar("c.three"),
    meshes.sidecar(
        "a-3.one",
        "10.0.0.2",
        mapped=mapped.parse_all(
            ("127.0.0.1:1=a.one:80", "127.0.0.1:1=b.two:80/udp", "127.0.0.1:2=b.one:8080")
        ),
    ),
    meshes.sidecar("a-2.one", "10.0.0.2", locality=PLACE, labels=keys.labels(app="a")),
    meshes.sidecar("b-2.one", "10.0.0.2", locality=ELSEWHERE, labels=keys.labels(app="b")),
    meshes.edge("a.one"),
    meshes.edge("a.two", labels=keys.labels(app="a", zone="z"), locality=PLACE),
)


def outcome(mesh: planner.Mesh) -> tuple[object, ...]:
    return ([mesh.plan(one) for one in PROXIES], [*mesh.conditions.items()])


def fresh(one: state.MeshState) -> tuple[object, ...]:
    return outcome(planner.Planner().update(one))


def shuffled(one: state.MeshState, rng: random.Random) -> state.MeshState:
    """The same state, with everything in another order."""

    def mixed(items: Any) -> list[Any]:
        found = list(items)
        rng.shuffle(found)
        return found

    return dataclasses.replace(
        one,
        services=dict(mixed(one.services.items())),
        endpoints={key: tuple(mixed(some)) for key, some in mixed(one.endpoints.items())},
        workloads=tuple(mixed(one.workloads)),
        configs=dict(mixed(one.configs.items())),
    )


@settings(max_examples=60)
@given(STATES, strategies.randoms(use_true_random=False))
def test_the_order_of_the_input_has_no_influence(one: state.MeshState, rng: random.Random):
    """Any order of services, endpoints, workloads and objects gives the same plans."""
    assert fresh(shuffled(one, rng)) == fresh(one)


@settings(max_examples=60)
@given(strategies.lists(STATES, min_size=2, max_size=4))
def test_the_past_has_no_influence(history: list[state.MeshState]):
    """A planner that has seen other states plans as one that has not."""
    old = planner.Planner()
    for one in history:
        assert outcome(old.update(one)) == fresh(one)


@settings(max_examples=60)
@given(STATES, strategies.permutations(PROXIES))
def test_no_proxy_gets_what_is_anothers(one: state.MeshState, order: list[proxies.Proxy]):
    """Whoever asks before: a proxy is told what it would be told if it were alone."""
    mesh = planner.Planner().update(one)
    for proxy in order:
        assert mesh.plan(proxy) == planner.Planner().update(one).plan(proxy)


@settings(max_examples=60)
@given(
    STATES, STATES, strategies.sets(strategies.sampled_from(("services", "endpoints", "configs")))
)
def test_changes_one_after_another_end_where_they_end_together(
    before: state.MeshState, after: state.MeshState, first: set[str]
):
    """Whatever arrives first."""
    old = planner.Planner()
    between = dataclasses.replace(before, **{name: getattr(after, name) for name in first})
    for one in (before, between, after):
        last = old.update(one)
        outcome(last)
    assert outcome(last) == fresh(after)


@settings(max_examples=60)
@given(STATES)
def test_every_plan_is_whole(one: state.MeshState):
    """Nothing is named that is not there, nothing is there twice, and every list is in order."""
    mesh = planner.Planner().update(one)
    for proxy in PROXIES:
        whole = meshes.planned(mesh, proxy)
        clusters = [one for layer in whole.layers for one in layer.clusters]
        by_key = {one.key: one for one in clusters}
        assert len(by_key) == len(clusters)
        endpoints = [one.key for layer in whole.layers for one in layer.endpoints]
        assert len(set(endpoints)) == len(endpoints)
        for some in (one for layer in whole.layers for one in layer.endpoints):
            ranks = {one.priority for one in some.localities}
            assert ranks == set(range(len(ranks)))
        needed = {use for layer in whole.layers for use in layer.cluster_secrets}
        assert needed == {use for one in clusters for use in credentials.of_cluster(one)}
        assert {one.key for one in clusters if one.resolution == "eds"} <= set(endpoints)
        configurations = {
            one.name: one for layer in whole.layers for one in layer.route_configurations
        }
        check_chains(whole, configurations.keys(), by_key.keys())
        for configuration in configurations.values():
            check(configuration, by_key)


def check_chains(
    whole: plan.ProxyPlan, configurations: Collection[str], clusters: Collection[plan.ClusterKey]
) -> None:
    forwards = [one for layer in whole.layers for one in layer.tcp_forwards]
    assert len({one.name for one in forwards}) == len(forwards)
    for forward in forwards:
        assert {one.cluster for one in forward.clusters} <= {None, *clusters}
    for listener in (one for layer in whole.layers for one in layer.listeners):
        for chain in listener.chains:
            match chain.serves:
                case plan.Http(route_configuration=name):
                    assert name in configurations
                case plan.Tcp(forward=name):
                    assert name in {one.name for one in forwards}
                case plan.Udp(cluster=key):
                    assert key in {None, *clusters}


def check(
    configuration: plan.RouteConfiguration, clusters: dict[plan.ClusterKey, plan.Cluster]
) -> None:
    names = [one.name for one in configuration.virtual_hosts]
    assert names == sorted(set(names))
    domains = [domain for one in configuration.virtual_hosts for domain in one.domains]
    assert len(set(domains)) == len(domains)
    for host in configuration.virtual_hosts:
        assert host.domains == tuple(sorted(host.domains))
        for route in host.routes:
            assert route.origins == tuple(sorted(set(route.origins)))
            assert set(route.origins) <= set(host.origins)
            if isinstance(route.action, plan.Forward):
                assert sum(share.weight for share in route.action.clusters) > 0
                used = {one.cluster for one in route.action.clusters if one.cluster}
                assert used <= clusters.keys()


@settings(max_examples=60)
@given(STATES)
def test_no_sidecar_has_a_way_out_past_the_egress_gateway(one: state.MeshState):
    """Whatever rules say."""
    mesh = planner.Planner().update(one)
    closed = {
        keys.ServiceKey(key.namespace, key.name)
        for key, config in one.configs.items()
        if key.kind == "ExternalService" and config.spec.through_egress_gateway
    }
    for proxy in PROXIES[:3]:
        whole = meshes.planned(mesh, proxy)
        assert not [
            cluster
            for layer in whole.layers
            for cluster in layer.clusters
            if cluster.key.external and cluster.key.service in closed
        ]
