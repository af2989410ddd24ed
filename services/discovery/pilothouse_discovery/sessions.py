# SPDX-License-Identifier: Apache-2.0
"""What the rest of discovery knows of a client's stream, whichever process has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import grpc

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import resources, status


class Stream(Protocol):
    """How far a client is; the words are those of `pilothouse.xds.streams.Stream`."""

    limit: int | None

    @property
    def target(self) -> resources.Snapshot | None:
        """What the client shall hold in the end."""

    @property
    def current(self) -> resources.Snapshot:
        """The step that is being delivered; of interest is whether it is the target."""

    @property
    def in_sync(self) -> bool:
        """True when the client has acknowledged the whole target."""

    @property
    def idle(self) -> bool:
        """True when nothing is to be written and no answer is awaited."""

    @property
    def refusals(self) -> Mapping[str, str]:
        """Type URL to the client's words, where it refused what it shall hold."""

    @property
    def subscribed(self) -> tuple[str, ...]:
        """The types that the client has asked for."""

    def claimed(self, type_url: str) -> bool:
        """True when the client held something of a type before this stream."""

    def acked(self, type_url: str) -> resources.Snapshot:
        """The snapshot whose content of a type was acknowledged last."""

    def types(self) -> Sequence[status.TypeStatus]:
        """How each subscribed type stands, sorted by type URL."""

    def statuses(self) -> Iterable[status.ResourceStatus]:
        """How each resource stands that the client asked for, sorted by type URL and name."""


class Session(Protocol):
    """A client's stream, from its first request to its end. Compared by identity."""

    @property
    def stream(self) -> Stream:
        """How far the client is."""

    @property
    def node(self) -> base_pb2.Node:
        """Who the client is, by its first request."""

    @property
    def peer(self) -> str:
        """The client's address in gRPC's form, for people."""

    @property
    def ending(self) -> tuple[grpc.StatusCode, str] | None:
        """The status it is about to end with, or has ended with; None while there is none."""

    def push(self, snapshot: resources.Snapshot, *, traceparent: str = "") -> None:
        """Make this what the client shall hold."""

    def end(self, code: grpc.StatusCode, message: str) -> None:
        """End the stream with a status; the first call counts."""
