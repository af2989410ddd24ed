# SPDX-License-Identifier: Apache-2.0
"""From the node of a first request to a proxy."""

import pytest
from google.protobuf import json_format

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.model import proxy
from pilothouse_discovery import nodes


def _node(
    node_id: str = "sidecar~10.0.0.7~reviews-1.default~cluster.local", **metadata: object
) -> base_pb2.Node:
    return json_format.ParseDict(
        {"id": node_id, "metadata": metadata, "locality": {"zone": "b"}}, base_pb2.Node()
    )


def test_all_facts_of_a_proxy_are_read() -> None:
    """Whatever shapes its configuration comes from the node."""
    read = nodes.read(
        _node(
            LABELS={"version": "v1", "app": "reviews"},
            BIND_ADDRESS="127.1.0.1",
            APPLICATION_ADDRESS="127.1.128.1",
            OUTBOUND_PORT=15002,
            MAPPED_PORTS=["127.0.0.1:2=b.shop:53/udp", "127.0.0.1:1=a.shop:5432"],
        )
    )

    assert read.id == proxy.NodeId(
        role=proxy.Role.SIDECAR, address="10.0.0.7", name="reviews-1", namespace="default"
    )
    assert read.labels == (("app", "reviews"), ("version", "v1"))
    assert (read.bind_address, read.application_address) == ("127.1.0.1", "127.1.128.1")
    assert read.outbound_port == 15002
    assert read.locality.zone == "b"
    assert [str(one) for one in read.mapped] == [
        "127.0.0.1:1=a.shop:5432",
        "127.0.0.1:2=b.shop:53/udp",
    ]


def test_what_is_not_said_has_its_default() -> None:
    """A bare node is a sidecar that serves its whole network namespace."""
    read = nodes.read(_node())

    assert read.bind_address == "0.0.0.0"
    assert read.application_address == "127.0.0.1"
    assert read.outbound_port == 15001


def test_a_port_may_come_as_text() -> None:
    """Agents may send numbers as text."""
    assert nodes.read(_node(OUTBOUND_PORT="15003")).outbound_port == 15003


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (_node("reviews"), "role~ip~id.namespace~domain"),
        (_node("sidecar~1.2.3.4~reviews~local"), "id.namespace"),
        (_node("router~1.2.3.4~a.b~local"), "unknown role 'router'"),
        (_node(INTERCEPTION="magic"), "INTERCEPTION is 'magic'"),
        (_node(OUTBOUND_PORT=0), "OUTBOUND_PORT is '0'"),
        (_node(MAPPED_PORTS=["here"]), "MAPPED_PORTS: 'here' must be ADDRESS:PORT"),
        (_node(MAPPED_PORTS="127.0.0.1:1=a.b:1,127.0.0.1:1=c.b:1"), "is mapped twice"),
    ],
)
def test_a_node_that_cannot_be_served_is_told_why(node: base_pb2.Node, words: str) -> None:
    """The message names the part that is wrong."""
    with pytest.raises(nodes.NodeError, match=words):
        nodes.read(node)
