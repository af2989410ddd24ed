# SPDX-License-Identifier: Apache-2.0
"""What is spoken on a port: appProtocol first, then the prefix of the name, then TCP."""

import pytest

from pilothouse.kubernetes import protocols


@pytest.mark.parametrize(
    ("name", "app_protocol", "expected"),
    [
        ("", "", "TCP"),
        ("http", "", "HTTP"),
        ("http-web", "", "HTTP"),
        ("HTTP-web", "", "HTTP"),
        ("httpish", "", "TCP"),
        ("http2-x", "", "HTTP2"),
        ("grpc-x", "", "GRPC"),
        ("grpc-web-x", "", "HTTP"),
        ("tcp-x", "", "TCP"),
        ("tls-x", "", "TLS"),
        ("https-x", "", "TLS"),
        ("udp-x", "", "TCP"),
        ("http-x", "grpc", "GRPC"),
        ("http-x", "tcp", "TCP"),
        ("http-x", "example.com/own", "TCP"),
        ("", "HTTP", "HTTP"),
        ("", "kubernetes.io/h2c", "HTTP2"),
        ("", "kubernetes.io/ws", "HTTP"),
        ("", "kubernetes.io/wss", "TLS"),
        ("", "https", "TLS"),
    ],
)
def test_protocol_of_a_tcp_port(name, app_protocol, expected):
    """The documented words and prefixes; what is unknown is TCP."""
    found = protocols.of_port(transport="TCP", app_protocol=app_protocol, name=name)
    assert found == expected


@pytest.mark.parametrize("name", ["", "http", "udp-x"])
def test_udp_is_udp(name):
    """Whatever the port is called."""
    assert protocols.of_port(transport="UDP", app_protocol="", name=name) == "UDP"
