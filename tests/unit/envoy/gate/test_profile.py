# SPDX-License-Identifier: Apache-2.0
"""The profile of gRPC applications; what must come out is what the gRFCs say they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import any_pb2, message

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_pb2
from pilothouse.api.envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from pilothouse.api.envoy.extensions.filters.http.fault.v3 import fault_pb2
from pilothouse.api.envoy.extensions.filters.http.router.v3 import router_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.api.envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from pilothouse.envoy import translate
from pilothouse.envoy.gate import gate, profile
from pilothouse.model import proxy
from pilothouse.xds import types
from tests.support import meshes

# Untyped, because the stubs do not know that a message may be written as a dictionary.
Listener: Any = listener_pb2.Listener
RouteConfiguration: Any = route_pb2.RouteConfiguration
TlsContext: Any = tls_pb2.UpstreamTlsContext

CDS, EDS = types.CLUSTER.type_url, types.ENDPOINT.type_url
LDS, RDS = types.LISTENER.type_url, types.ROUTE.type_url


def packed(value: message.Message) -> any_pb2.Any:
    made = any_pb2.Any()
    made.Pack(value)
    return made


ROUTER = {"name": "router", "typed_config": packed(router_pb2.Router())}
FAULT = {"name": "fault", "typed_config": packed(fault_pb2.HTTPFault())}
BUFFER = {"name": "buffer", "typed_config": packed(buffer_pb2.Buffer())}


def manager(*filters: Any, **more: Any) -> any_pb2.Any:
    more.setdefault("rds", {"config_source": {"ads": {}}, "route_config_name": "r"})
    return packed(
        http_connection_manager_pb2.HttpConnectionManager(
            stat_prefix="p", http_filters=filters, **more
        )
    )


def client(*filters: Any, **more: Any) -> Any:
    return Listener(name="svc", api_listener={"api_listener": manager(*filters, **more)})


def server(**more: Any) -> Any:
    chain = {"filters": [{"name": "hcm", "typed_config": manager(ROUTER)}]}
    more.setdefault("filter_chains", [chain])
    return Listener(name="s", **more)


def cluster(**more: Any) -> cluster_pb2.Cluster:
    more.setdefault("type", cluster_pb2.Cluster.EDS)
    more.setdefault("eds_cluster_config", {"eds_config": {"ads": {}}})
    return cluster_pb2.Cluster(name="c", **more)


def route(**more: Any) -> Any:
    more.setdefault("match", {"prefix": ""})
    more.setdefault("route", {"cluster": "c"})
    return RouteConfiguration(virtual_hosts=[{"name": "h", "domains": ["*"], "routes": [more]}])


def group(*hosts: str, zone: str = "a", priority: int = 0, weight: int = 1) -> dict[str, Any]:
    found = [
        {"endpoint": {"address": {"socket_address": {"address": one, "port_value": 80}}}}
        for one in hosts
    ]
    return {
        "locality": {"zone": zone},
        "priority": priority,
        "load_balancing_weight": {"value": weight},
        "lb_endpoints": found,
    }


def assignment(*groups: Any) -> Any:
    return endpoint_pb2.ClusterLoadAssignment(cluster_name="c", endpoints=groups)


SDS = packed(TlsContext(common_tls_context={"tls_certificate_sds_secret_configs": [{"name": "x"}]}))
HALF = (1 << 31) + 1

RIGHT = {
    "client": (LDS, client(FAULT, ROUTER)),
    "an optional filter": (LDS, client({**BUFFER, "is_optional": True}, ROUTER)),
    "server": (LDS, server()),
    "eds": (CDS, cluster()),
    "self": (CDS, cluster(eds_cluster_config={"eds_config": {"self": {}}})),
    "aggregate": (CDS, cluster(cluster_type={"name": "envoy.clusters.aggregate"}, type=None)),
    "a route that is skipped": (
        RDS,
        route(match={"connect_matcher": {}, "query_parameters": [{"name": "x"}]}),
    ),
    "a redirect, which is skipped": (RDS, route(redirect={}, route=None)),
    "localities": (EDS, assignment(group("10.0.0.1"), group("10.0.0.2", zone="b"))),
    "priorities": (EDS, assignment(group("10.0.0.1"), group("::1", priority=1))),
    "a locality without weight is skipped": (
        EDS,
        assignment(group("10.0.0.1"), group("name", weight=0, priority=7)),
    ),
}
WRONG = {
    "no filter": (LDS, client(), "http_filters"),
    "unknown filter": (LDS, client(BUFFER, ROUTER), "http_filters[0]"),
    "router not last": (LDS, client(ROUTER, ROUTER | {"name": "again"}), "http_filters[0]"),
    "same name": (LDS, client(FAULT, FAULT, ROUTER), "http_filters"),
    "trusted hops": (LDS, client(ROUTER, xff_num_trusted_hops=1), "xff_num_trusted_hops"),
    "routes elsewhere": (
        LDS,
        client(ROUTER, rds={"config_source": {"path_config_source": {"path": "x"}}}),
        "rds.config_source",
    ),
    "listener filters": (LDS, server(listener_filters=[{"name": "x"}]), "listener_filters"),
    "original dst": (LDS, server(use_original_dst={"value": False}), "use_original_dst"),
    "no manager": (
        LDS,
        server(filter_chains=[{"filters": [{"typed_config": packed(tcp_proxy_pb2.TcpProxy())}]}]),
        "filter_chains[0].filters[0].typed_config",
    ),
    "static": (CDS, cluster(type=cluster_pb2.Cluster.STATIC), "type"),
    "random": (CDS, cluster(lb_policy=cluster_pb2.Cluster.RANDOM), "lb_policy"),
    "eds elsewhere": (CDS, cluster(eds_cluster_config={}), "eds_config"),
    "two addresses of dns": (
        CDS,
        cluster(
            type=cluster_pb2.Cluster.LOGICAL_DNS,
            load_assignment=assignment(group("a.example", "b.example")),
        ),
        "load_assignment",
    ),
    "murmur": (
        CDS,
        cluster(lb_policy=cluster_pb2.Cluster.RING_HASH, ring_hash_lb_config={"hash_function": 1}),
        "hash_function",
    ),
    "outliers": (
        CDS,
        cluster(outlier_detection={"max_ejection_percent": {"value": 101}}),
        "max_ejection_percent",
    ),
    "negative": (
        CDS,
        cluster(outlier_detection={"interval": {"seconds": -1}}),
        "outlier_detection.interval",
    ),
    "reports elsewhere": (CDS, cluster(lrs_server={"ads": {}}), "lrs_server"),
    "sds": (
        CDS,
        cluster(transport_socket={"name": "tls", "typed_config": SDS}),
        "tls_certificate_sds_secret_configs",
    ),
    "template": (RDS, route(match={"path_separated_prefix": "/a"}), "match"),
    "no weight": (
        RDS,
        route(route={"weighted_clusters": {"clusters": [{"name": "a"}]}}),
        "weighted_clusters",
    ),
    "gap": (EDS, assignment(group("10.0.0.1", priority=1)), "endpoints"),
    "twice": (EDS, assignment(group("10.0.0.1"), group("10.0.0.2")), "endpoints"),
    "heavy": (
        EDS,
        assignment(group("10.0.0.1", weight=HALF), group("::1", zone="b", weight=HALF)),
        "endpoints",
    ),
    "a name": (EDS, assignment(group("a.example")), "address"),
    "same address": (EDS, assignment(group("10.0.0.1"), group("10.0.0.1", zone="b")), "address"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_client_takes_or_skips_is_right(name: str) -> None:
    """The gate is not stricter than the clients."""
    assert profile.broken(*RIGHT[name]) == ()


@pytest.mark.parametrize("name", WRONG)
def test_what_a_client_refuses_is_told(name: str) -> None:
    """At its field."""
    url, value, path = WRONG[name]
    found = profile.broken(url, value)
    assert found
    assert [one.path.endswith(path) for one in found] == [True] * len(found), found


def test_what_our_translators_make_for_grpc_passes() -> None:
    """A service with two versions and a rule, dialled and served."""
    mesh = meshes.from_manifests(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: default}\n"
        "spec: {selector: {app: a}, ports: [{name: grpc, port: 80, targetPort: 8080}]}\n"
        "---\napiVersion: v1\nkind: Pod\n"
        "metadata: {name: p, namespace: default, labels: {app: a, version: v1}}\n"
        "spec: {containers: []}\nstatus: {podIP: 10.1.0.1}\n"
        "---\napiVersion: pilothouse.dev/v1alpha1\nkind: RouteRule\n"
        "metadata: {name: a, namespace: default}\n"
        "spec: {parents: [{service: a}], grpc: [{destinations: [{service: a}], timeout: 2s}]}\n"
    )
    node = proxy.NodeId(role=proxy.Role.GRPC, address="10.1.0.1", name="p", namespace="default")
    planned = meshes.planned(mesh, proxy.Proxy(id=node))
    snapshot = translate.Translator().snapshot(planned, {})
    assert {CDS, EDS, LDS, RDS} <= set(snapshot.types)
    assert not gate.Gate().report(snapshot, grpc=True)
