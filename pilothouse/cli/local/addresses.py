# SPDX-License-Identifier: Apache-2.0
"""Loopback addresses for a mesh on one machine: a /16 block of 127.0.0.0/8, held by a bound socket.

Linux answers for all of 127.0.0.0/8 without any set-up, so every workload has an address of its own
and no port is used twice; two meshes on one machine take two blocks.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
from typing import Self

from pilothouse.cli.local import errors

FIRST_BLOCK, LAST_BLOCK = 40, 99
_LOCK_PORT = 15999


class NoBlockError(errors.MeshError):
    """No block of addresses is free; the message says what was tried."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A /16 of 127.0.0.0/8."""

    number: int
    """Second part of its addresses, 1 to 254."""

    @property
    def control(self) -> str:
        """Where the services of the control plane listen."""
        return f"127.{self.number}.0.1"

    @property
    def ingress(self) -> str:
        """Where the ingress gateway listens."""
        return f"127.{self.number}.0.2"

    @property
    def egress(self) -> str:
        """Where the egress gateway listens."""
        return f"127.{self.number}.0.3"

    def pod(self, index: int) -> str:
        """Where the sidecar of a pod listens; ``index`` counts from 0."""
        return str(ipaddress.IPv4Address(f"127.{self.number}.1.0") + 1 + index)

    def application(self, index: int) -> str:
        """Where the program in a pod listens."""
        return str(ipaddress.IPv4Address(f"127.{self.number}.128.0") + 1 + index)


class HeldBlock:
    """A block that no other mesh on this machine will take while it is open."""

    def __init__(self, block: Block, lock: socket.socket) -> None:
        """Keep the socket that holds the block."""
        self.block = block
        self._lock = lock

    @classmethod
    def take(cls, number: int | None = None) -> Self:
        """Take this block, or the first free one.

        Raises:
            NoBlockError: it is taken, or all are.
        """
        numbers = range(FIRST_BLOCK, LAST_BLOCK + 1) if number is None else (number,)
        for candidate in numbers:
            lock = socket.socket()
            try:
                lock.bind((f"127.{candidate}.255.254", _LOCK_PORT))
            except OSError:
                lock.close()
                continue
            return cls(Block(number=candidate), lock)
        tried = f"127.{numbers[0]}.0.0/16" + (
            f" to 127.{numbers[-1]}.0.0/16" if number is None else ""
        )
        msg = f"{tried}: in use by another mesh on this machine"
        raise NoBlockError(msg)

    def close(self) -> None:
        """Give the block back."""
        self._lock.close()
