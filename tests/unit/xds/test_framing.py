# SPDX-License-Identifier: Apache-2.0
"""Our framing, read by another implementation of protobuf (envoy-data-plane, betterproto2)."""

import warnings

import pytest
from google.protobuf import any_pb2

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse.xds import framing
from tests.support.xds_peer import CDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # envoy-data-plane is behind pydantic
    from envoy_data_plane.envoy.config.cluster import v3 as other_cluster
    from envoy_data_plane.envoy.service.discovery import v3 as other

NAME = "outbound|9080||réviews." + "x" * 200  # longer than one length byte can say, and not ASCII
BODY = cluster_pb2.Cluster(name=NAME, alt_stat_name="s").SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (1 << 21, "80808001")],
)
def test_varint(number, expected):
    """Seven bits a byte, lowest first (https://protobuf.dev/programming-guides/encoding/)."""
    assert framing.varint(number).hex() == expected


def test_field():
    """Field 2 of wire type 2 with "testing": the example of the same page."""
    assert framing.field(2, b"testing").hex() == "120774657374696e67"


def test_any_message():
    """An Any that holds a cluster."""
    read = any_pb2.Any.FromString(framing.any_message(CDS, BODY))
    assert (read.type_url, read.value) == (CDS, BODY)


def _cluster(value):
    return other_cluster.Cluster().parse(value)


def test_sotw_resource_and_response():
    """All fields arrive, in order, and nothing else."""
    frames = [framing.sotw_resource(CDS, BODY), framing.sotw_resource(CDS, b"")]
    encoded = framing.sotw_response(version="v", type_url=CDS, nonce="n", frames=frames)
    read = other.DiscoveryResponse().parse(encoded)
    assert (read.version_info, read.type_url, read.nonce) == ("v", CDS, "n")
    assert [one.type_url for one in read.resources] == [CDS, CDS]
    assert _cluster(read.resources[0].value).name == NAME
    assert not read.canary


@pytest.mark.parametrize("with_metadata", [False, True])
def test_delta_resource_and_response(with_metadata):
    """Resources, removed names and metadata arrive."""
    metadata = base_pb2.Metadata()
    if with_metadata:
        metadata.filter_metadata["trace"]["traceparent"] = "00-1-2-01"
    frame = framing.delta_resource(NAME, "v1", CDS, BODY, metadata.SerializeToString())
    encoded = framing.delta_response(
        version="v", type_url=CDS, nonce="n", frames=[frame], removed=["gone", NAME + "2"]
    )
    read = other.DeltaDiscoveryResponse().parse(encoded)
    assert (read.system_version_info, read.type_url, read.nonce) == ("v", CDS, "n")
    assert read.removed_resources == ["gone", NAME + "2"]
    (one,) = read.resources
    assert (one.name, one.version) == (NAME, "v1")
    assert _cluster(one.resource.value).alt_stat_name == "s"
    assert (one.metadata is not None) == with_metadata
    if with_metadata:
        assert list(one.metadata.filter_metadata) == ["trace"]


def test_resource_errors_in_both_variants():
    """A name, a code and words arrive, beside the resources (read by protobuf's own runtime)."""
    error = framing.resource_error(NAME, code=300, message="réviews is gone")
    frame = framing.sotw_resource(CDS, BODY)
    sotw = discovery_pb2.DiscoveryResponse.FromString(
        framing.sotw_response(version="v", type_url=CDS, nonce="n", frames=[frame], errors=[error])
    )
    delta = discovery_pb2.DeltaDiscoveryResponse.FromString(
        framing.delta_response(
            version="v", type_url=CDS, nonce="n", frames=[], removed=["x"], errors=[error, error]
        )
    )
    assert (len(sotw.resources), list(delta.removed_resources)) == (1, ["x"])
    for told in (*sotw.resource_errors, *delta.resource_errors):
        assert told.resource_name.name == NAME
        assert (told.error_detail.code, told.error_detail.message) == (300, "réviews is gone")
    assert (len(sotw.resource_errors), len(delta.resource_errors)) == (1, 2)
