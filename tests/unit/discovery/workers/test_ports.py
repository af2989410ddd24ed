# SPDX-License-Identifier: Apache-2.0
"""A port that workers share is kept for them, and told apart from one that is taken."""

from __future__ import annotations

import socket

import pytest

from pilothouse.adapters.rpc import serving
from pilothouse_discovery.workers import ports

ANY = serving.Address("127.0.0.1", 0)


def listening(port: int, *, shared: bool) -> socket.socket:
    """A socket that listens, as a worker does or as somebody else does."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        one.bind(("127.0.0.1", port))
        one.listen(64)  # the kernel may give most clients to one
    except OSError:
        one.close()
        raise
    return one


def test_workers_listen_side_by_side_and_get_every_connection() -> None:
    """The socket that keeps the port gets none."""
    with (
        ports.reserved(ANY, setting="--grpc-address") as kept,
        listening(kept.port, shared=True) as one,
        listening(kept.port, shared=True) as other,
    ):
        for listener in (one, other):
            listener.setblocking(False)  # noqa: FBT003
        clients = [socket.create_connection(("127.0.0.1", kept.port)) for _ in range(16)]
        accepted = 0
        for listener in (one, other):
            while True:
                try:
                    peer, _ = listener.accept()
                except BlockingIOError:
                    break
                peer.close()
                accepted += 1
        for client in clients:
            client.close()
    assert accepted == 16


def test_nobody_else_gets_it_while_no_worker_lives() -> None:
    """Who does not share ports is kept out; after the block the port is free."""
    with (
        ports.reserved(ANY, setting="--grpc-address") as kept,
        socket.socket() as other,
        pytest.raises(OSError, match="in use"),
    ):
        other.bind(("127.0.0.1", kept.port))
    listening(kept.port, shared=False).close()


@pytest.mark.parametrize("shared", [True, False])
def test_a_port_that_somebody_listens_on_is_taken(shared: bool) -> None:  # noqa: FBT001
    """Also by somebody who shares: that is another server."""
    with listening(0, shared=shared) as taken:
        address = serving.Address("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(serving.StartError, match=r"\(--grpc-address\): the port is in use"),
            ports.reserved(address, setting="--grpc-address"),
        ):
            raise AssertionError("it is reserved")


@pytest.mark.parametrize("shared", [True, False])
def test_the_port_of_a_server_that_has_just_ended_is_free(shared: bool) -> None:  # noqa: FBT001
    """Connections that it closed linger for a minute, and do not matter, workers or none."""
    with listening(0, shared=shared) as ended:
        address = serving.Address("127.0.0.1", ended.getsockname()[1])
        client = socket.create_connection(("127.0.0.1", address.port))
        peer, _ = ended.accept()
        peer.close()  # first, so that this end lingers
        assert client.recv(1) == b""
        client.close()
    with ports.reserved(address, setting="--grpc-address") as kept:
        assert kept == address
        listening(kept.port, shared=True).close()


def test_a_host_that_does_not_exist_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting that names it."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    address = serving.Address("nowhere", 1)
    with (
        pytest.raises(serving.StartError, match=r"--grpc-address\): name or service not known"),
        ports.reserved(address, setting="--grpc-address"),
    ):
        raise AssertionError("it is reserved")
