# SPDX-License-Identifier: Apache-2.0
"""The bootstrap: equal parameters give equal bytes, Envoy accepts it, discovery can read it."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pilothouse.adapters import process
from pilothouse.api.envoy.config.core.v3 import config_source_pb2
from pilothouse.envoy import bootstrap
from pilothouse.model import mapped, proxy, services

PLAIN = bootstrap.BootstrapParameters(
    node_id=proxy.NodeId(
        role=proxy.Role.SIDECAR, address="127.10.0.3", name="reviews-v1-0", namespace="default"
    ),
    cluster="reviews.default",
    version="1.2.3",
    discovery=bootstrap.UnixSocket("/run/xds.sock"),
    admin=bootstrap.UnixSocket("/run/admin.sock"),
)
FULL = dataclasses.replace(
    PLAIN,
    discovery=bootstrap.HostPort("discovery.pilothouse", 15010),
    admin=bootstrap.HostPort("127.0.0.1", 15000),
    labels=(("app", "reviews"), ("version", "v1")),
    locality=services.Locality(region="eu", zone="eu-1", sub_zone="rack-7"),
    bind_address="127.10.0.3",
    application_address="127.10.1.3",
    outbound_port=15002,
    mapped=mapped.parse_all(("127.0.0.1:1=a.shop:5432",)),
    delta=False,
    stats_prefixes=("server.", "cluster."),
    tracing_flush=0.1,
    log_json=True,
    load_reports=True,
)


def as_dict(parameters: bootstrap.BootstrapParameters) -> Any:
    return json.loads(bootstrap.to_json(bootstrap.build(parameters)))


@pytest.mark.envoy
@pytest.mark.parametrize("parameters", [PLAIN, FULL], ids=["plain", "full"])
async def test_envoy_accepts_it(tmp_path: Path, parameters: bootstrap.BootstrapParameters):
    path = tmp_path / "bootstrap.json"
    path.write_text(bootstrap.to_json(bootstrap.build(parameters)))
    async with asyncio.timeout(60):
        await process.validate(path, envoy=process.find_envoy())


def test_loads_are_reported_to_discovery_if_at_all():
    """On a stream of their own to the same cluster: what is asked of each costs bytes."""
    assert "cluster_manager" not in as_dict(PLAIN)
    (source,) = as_dict(FULL)["cluster_manager"]["load_stats_config"]["grpc_services"]
    assert source == {"envoy_grpc": {"cluster_name": bootstrap.XDS_CLUSTER}}


def test_equal_parameters_give_equal_bytes_whatever_the_order_of_labels():
    turned = dataclasses.replace(FULL, labels=tuple(reversed(FULL.labels)))
    texts = {bootstrap.to_json(bootstrap.build(each)) for each in (FULL, turned)}
    assert len(texts) == 1
    first, second = (
        bootstrap.build(each).SerializeToString(deterministic=True) for each in (FULL, turned)
    )
    assert first == second


def test_the_node_is_what_discovery_reads():
    node = as_dict(FULL)["node"]
    assert node["id"] == "sidecar~127.10.0.3~reviews-v1-0.default~cluster.local"
    assert node["cluster"] == "reviews.default"
    assert node["locality"] == {"region": "eu", "zone": "eu-1", "sub_zone": "rack-7"}
    assert node["metadata"] == {
        "ROLE": "sidecar",
        "NAMESPACE": "default",
        "PILOTHOUSE_VERSION": "1.2.3",
        "LABELS": {"app": "reviews", "version": "v1"},
        "BIND_ADDRESS": "127.10.0.3",
        "APPLICATION_ADDRESS": "127.10.1.3",
        "OUTBOUND_PORT": 15002,
        "MAPPED_PORTS": ["127.0.0.1:1=a.shop:5432"],
    }


def test_metadata_that_equals_the_default_is_left_out():
    assert set(as_dict(PLAIN)["node"]["metadata"]) == {"ROLE", "NAMESPACE", "PILOTHOUSE_VERSION"}


@pytest.mark.parametrize(("delta", "api_type"), [(True, "DELTA_GRPC"), (False, "GRPC")])
def test_clusters_and_listeners_come_over_ads(*, delta: bool, api_type: str):
    dynamic = as_dict(dataclasses.replace(PLAIN, delta=delta))["dynamic_resources"]
    assert dynamic["ads_config"]["api_type"] == api_type
    assert dynamic["ads_config"]["transport_api_version"] == "V3"
    for kind in ("cds_config", "lds_config"):
        assert dynamic[kind] == {
            "ads": {},
            "resource_api_version": "V3",
            "initial_fetch_timeout": "15s",
        }


def test_a_fetch_timeout_of_zero_is_said_and_not_left_to_envoys_default():
    built = bootstrap.build(dataclasses.replace(PLAIN, initial_fetch_timeout=0))
    source: config_source_pb2.ConfigSource = built.dynamic_resources.cds_config
    assert source.HasField("initial_fetch_timeout")
    assert source.initial_fetch_timeout.ToNanoseconds() == 0


def test_a_proxy_that_knows_where_it_is_asks_for_its_peers():
    """Envoy weighs zones by a cluster that must be in the bootstrap; others have none."""
    built = as_dict(FULL)
    name = built["cluster_manager"]["local_cluster_name"]
    (peers,) = [one for one in built["static_resources"]["clusters"] if one["name"] == name]
    assert (peers["type"], peers["eds_cluster_config"]["service_name"]) == ("EDS", "inbound|0")
    assert "cluster_manager" not in as_dict(PLAIN)
    assert [one["name"] for one in as_dict(PLAIN)["static_resources"]["clusters"]] == [
        bootstrap.XDS_CLUSTER
    ]


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("unix:/run/xds.sock", "STATIC"),
        ("127.0.0.1:15010", "STATIC"),
        ("[::1]:15010", "STATIC"),
        ("discovery:15010", "STRICT_DNS"),
    ],
)
def test_only_a_name_is_resolved(address: str, kind: str):
    discovery = bootstrap.parse_address(address)
    cluster = bootstrap.build(dataclasses.replace(PLAIN, discovery=discovery)).static_resources
    assert cluster.clusters[0].type == cluster.clusters[0].DiscoveryType.Value(kind)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", bootstrap.HostPort("127.0.0.1", 80)),
        ("[::1]:80", bootstrap.HostPort("::1", 80)),
        ("name:0", bootstrap.HostPort("name", 0)),
        ("/run/s", bootstrap.UnixSocket("/run/s")),
        ("unix:/run/s", bootstrap.UnixSocket("/run/s")),
    ],
)
def test_an_address_is_read(text: str, address: bootstrap.Address):
    assert bootstrap.parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "80", ":80", "host:", "host:http", "host:65536", "host:-1", "unix:", "/" * 108]
)
def test_what_is_no_address_is_refused_by_name(text: str):
    with pytest.raises(ValueError, match=r"HOST:PORT|Unix socket"):
        bootstrap.parse_address(text)


def test_an_address_is_written_as_grpc_reads_it():
    for text in ("127.0.0.1:80", "[::1]:80", "unix:/run/s"):
        assert str(bootstrap.parse_address(text)) == text
