# SPDX-License-Identifier: Apache-2.0
"""Ports are asked for before a mesh starts."""

import socket

import pytest

from pilothouse.cli.local import errors, ports


def test_every_port_that_cannot_be_had_is_named_with_who_wants_it_and_why():
    with socket.create_server(("127.9.85.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = [
            ports.Wanted("127.9.85.2", port, "pod default/free"),
            ports.Wanted("127.9.85.1", port, "pod default/late"),
            ports.Wanted("192.0.2.1", port, "pod default/elsewhere"),
        ]
        with pytest.raises(errors.MeshError) as caught:
            ports.require_free(wanted)

    elsewhere = f"192.0.2.1:{port} for pod default/elsewhere"
    assert str(caught.value).splitlines() == [
        f"in use by another program: 127.9.85.1:{port} for pod default/late",
        f"cannot be listened on (Cannot assign requested address): {elsewhere}",
    ]
    # And nothing was left bound.
    ports.require_free(wanted[:2])
