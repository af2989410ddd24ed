# SPDX-License-Identifier: Apache-2.0
"""A port that several processes listen on, and nobody else."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from pilothouse.adapters.rpc import serving


@contextlib.contextmanager
def reserved(address: serving.Address, *, setting: str) -> Iterator[serving.Address]:
    """Keep an address for workers inside the block; the value has the port, if it was 0.

    A socket that is bound and does not listen gets no connection, and keeps everybody out who does
    not share ports, also while no worker lives.

    Raises:
        serving.StartError: it cannot be listened on.
    """
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise serving.cannot_listen(address, setting=setting, error=error) from error
    port = address.port
    with contextlib.ExitStack() as stack:
        try:
            for family, kind, protocol, _, where in found:
                if port:
                    _try(family, kind, protocol, (where[0], port))
                keeper = stack.enter_context(socket.socket(family, kind, protocol))
                # The port of a server that has just ended has connections that linger.
                keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                _only_its_family(keeper)
                keeper.bind((where[0], port))
                port = keeper.getsockname()[1]
        except OSError as error:
            raise serving.cannot_listen(address, setting=setting, error=error) from error
        yield serving.Address(address.host, port)


def _try(family: int, kind: int, protocol: int, where: tuple[str | int, int]) -> None:
    """Listen as somebody who does not share; OSError when somebody listens there."""
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _only_its_family(trial)
        trial.bind(where)
        trial.listen(1)


def _only_its_family(one: socket.socket) -> None:
    if one.family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
