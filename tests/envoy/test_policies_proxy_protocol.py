# SPDX-License-Identifier: Apache-2.0
"""The PROXY protocol to endpoints, as a real Envoy speaks it."""

import asyncio
import ipaddress
import json
import socket
import ssl
import struct

import pytest

from tests.support import certificates, envoy_plans, policy_worlds

pytestmark = pytest.mark.envoy

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""What version 2 begins with (the PROXY protocol, section 2.2)."""
SERVER = certificates.make("api.example")
TLS = f"tls: {{sni: api.example, caCertificates: {json.dumps(SERVER.certificate)}}}"
PATIENCE = 10.0


def serve_one(listening: socket.socket, tls: ssl.SSLContext | None) -> tuple[str, str]:
    """Answer one connection's one request with 200.

    Not a byte more than the header is read in clear text: what follows may be TLS.

    Returns:
        The version of the PROXY protocol, and the address that it tells.
    """
    accepted, _ = listening.accept()
    accepted.settimeout(PATIENCE)
    with accepted:
        told = _header(accepted)
        inner = accepted if tls is None else tls.wrap_socket(accepted, server_side=True)
        with inner:
            _until(inner, b"\r\n\r\n")
            inner.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    return told


def _header(from_client: socket.socket) -> tuple[str, str]:
    first = from_client.recv(len(SIGNATURE), socket.MSG_WAITALL)
    if first == SIGNATURE:
        _, _, length = struct.unpack("!BBH", from_client.recv(4, socket.MSG_WAITALL))
        body = from_client.recv(length, socket.MSG_WAITALL)
        return "v2", str(ipaddress.IPv4Address(body[:4]))
    word, family, source, *_ = (first + _until(from_client, b"\r\n")).decode().split(" ")
    assert (word, family) == ("PROXY", "TCP4")
    return "v1", source


def _until(from_client: socket.socket, end: bytes) -> bytes:
    read = b""
    while not read.endswith(end):
        one = from_client.recv(1)
        assert one, f"the connection ended after {read!r}"
        read += one
    return read


@pytest.mark.parametrize("version", ["V1", "V2"])
@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
async def test_the_endpoint_is_told_the_clients_address(version: str, *, tls: bool):
    """Before anything else, TLS included; and the request follows."""
    policy = f"connectionPool: {{proxyProtocol: {version}}}{f', {TLS}' if tls else ''}"
    with socket.create_server((envoy_plans.LOOPBACK, 0)) as listening:
        listening.settimeout(PATIENCE)
        port = listening.getsockname()[1]
        async with policy_worlds.running({"shop": [port]}, {"shop": policy}) as world:
            served = asyncio.create_task(
                asyncio.to_thread(serve_one, listening, SERVER.server() if tls else None),
                name="endpoint",
            )
            async with world.ask("shop") as answer:
                status = answer.status
            assert await served == (version.lower(), "127.0.0.1")
            assert status == 200
