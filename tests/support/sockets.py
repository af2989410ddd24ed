# SPDX-License-Identifier: Apache-2.0
"""Sockets as the kernel has them: a port that answers nobody, and timers of connections."""

import contextlib
import pathlib
import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def deaf() -> Iterator[int]:
    """A port whose queue is full: who connects gets no answer at all."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((LOOPBACK, 0))
        listening.listen(0)
        address = listening.getsockname()
        for _ in range(8):
            waiting_one = stack.enter_context(socket.socket())
            waiting_one.settimeout(0)
            waiting_one.connect_ex(address)
        yield address[1]


def keepalive_timers(port: int) -> list[float]:
    """Seconds until the keepalive timers of connections to a port of LOOPBACK are due."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = [row[5].split(":") for row in rows if row[2] == f"0100007F:{port:04X}"]
    return [int(due, 16) / 100 for kind, due in timers if kind == "02"]
