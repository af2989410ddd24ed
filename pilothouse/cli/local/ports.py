# SPDX-License-Identifier: Apache-2.0
"""Whether the addresses that a mesh needs are free, asked before anything is started.

A program that cannot have its port ends with a traceback, and the port answers all the same: for
somebody else.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from typing import NamedTuple

from pilothouse.cli.local import errors


class Wanted(NamedTuple):
    """A TCP port that a part of the mesh will listen on."""

    address: str
    port: int
    who: str


def require_free(wanted: Iterable[Wanted]) -> None:
    """Return when every port can be bound.

    Raises:
        errors.MeshError: naming all that cannot, who wants them, and why not.
    """
    taken = [
        f"{why}: {one.address}:{one.port} for {one.who}" for one in wanted if (why := _why(one))
    ]
    if taken:
        raise errors.MeshError("\n".join(taken))


def _why(one: Wanted) -> str:
    """Why a port cannot be bound; empty when it can."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((one.address, one.port))
            # Linux lets a second socket bind beside one that only listens with REUSEADDR set.
            trial.listen(1)
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            if number == errno.EADDRINUSE:
                return "in use by another program"
            return f"cannot be listened on ({os.strerror(number) if number else error})"
    return ""
