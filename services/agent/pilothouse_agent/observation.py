# SPDX-License-Identifier: Apache-2.0
"""What the traffic on the xDS streams tells: which types came, and what Envoy made of them.

The relay shows every message that passes; nothing here changes one, and a message that cannot be
read is no concern of ours. No I/O and no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from google.protobuf.message import DecodeError

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2

_SHORT_NAMES = {
    "envoy.config.cluster.v3.Cluster": "CDS",
    "envoy.config.listener.v3.Listener": "LDS",
    "envoy.config.route.v3.RouteConfiguration": "RDS",
    "envoy.config.endpoint.v3.ClusterLoadAssignment": "EDS",
    "envoy.extensions.transport_sockets.tls.v3.Secret": "SDS",
    "envoy.service.runtime.v3.Runtime": "RTDS",
    "envoy.config.core.v3.TypedExtensionConfig": "ECDS",
}
REQUIRED = ("CDS", "LDS")
"""What a proxy must have accepted once before it may be called ready."""


class State(StrEnum):
    """Where a type stands with Envoy."""

    WAITING = "waiting"
    """Nothing has come from discovery."""
    SENT = "sent"
    """Envoy has it and has not answered: clusters, for one, are warmed first."""
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    """Envoy refused the latest; what it had accepted before, if anything, stays in force."""


@dataclass(slots=True)
class TypeStatus:
    """One type's story so far."""

    state: State = State.WAITING
    accepted: int = 0
    """Responses that Envoy accepted, ever."""
    rejected: int = 0
    error: str = ""
    """Envoy's words when it last refused; stays after recovery, since people come late."""
    in_force: bool = False
    """Whether the running Envoy has accepted this type at least once."""
    version: str = ""


@dataclass(slots=True)
class Observer:
    """What all streams so far have told."""

    types: dict[str, TypeStatus] = field(default_factory=dict)
    streams: int = 0
    changes: int = 0
    """How often discovery sent a version of a type that differs from the one before."""

    def proxy_started(self) -> None:
        """A new Envoy process has nothing yet, whatever the last one had accepted."""
        for status in self.types.values():
            status.in_force = False
            status.state = State.WAITING

    def missing(self) -> list[str]:
        """The required types that the running Envoy has never accepted, and why."""
        reasons: list[str] = []
        for name in REQUIRED:
            status = self.types.get(name, TypeStatus())
            if not status.in_force:
                detail = f" by Envoy: {status.error}" if status.state is State.REJECTED else ""
                reasons.append(f"{name}: {_TEXT[status.state]}{detail}")
        return reasons

    def stream(self, *, delta: bool) -> "StreamObserver":
        """The observer of one new stream."""
        self.streams += 1
        return StreamObserver(self, delta=delta)

    def status(self, type_url: str) -> TypeStatus:
        """The status of a type, made when it is first seen."""
        return self.types.setdefault(short_name(type_url), TypeStatus())


_TEXT: Mapping[State, str] = {
    State.WAITING: "not received from discovery",
    State.SENT: "sent to Envoy, which has not answered yet",
    State.ACCEPTED: "accepted",
    State.REJECTED: "rejected",
}


class StreamObserver:
    """Matches the answers on one stream to what they answer. Nonces mean nothing elsewhere."""

    def __init__(self, parent: Observer, *, delta: bool) -> None:
        self._parent = parent
        self._delta = delta
        # A response is answered by the first request that carries its nonce. Later ones repeat it
        # while they subscribe to more, also after a refusal: they say nothing new.
        self._open: dict[str, str] = {}

    def response(self, data: bytes) -> None:
        """Discovery sent this to Envoy."""
        response: discovery_pb2.DeltaDiscoveryResponse | discovery_pb2.DiscoveryResponse
        try:
            if self._delta:
                response = discovery_pb2.DeltaDiscoveryResponse.FromString(data)
                version = response.system_version_info
            else:
                response = discovery_pb2.DiscoveryResponse.FromString(data)
                version = response.version_info
        except DecodeError:
            return
        status = self._parent.status(response.type_url)
        status.state = State.SENT
        if status.version and version and status.version != version:
            self._parent.changes += 1
        status.version = version or status.version
        self._open[response.type_url] = response.nonce

    def request(self, data: bytes) -> None:
        """Envoy sent this to discovery."""
        request: discovery_pb2.DeltaDiscoveryRequest | discovery_pb2.DiscoveryRequest
        try:
            if self._delta:
                request = discovery_pb2.DeltaDiscoveryRequest.FromString(data)
            else:
                request = discovery_pb2.DiscoveryRequest.FromString(data)
        except DecodeError:
            return
        nonce = self._open.get(request.type_url)
        if not request.response_nonce or request.response_nonce != nonce:
            return
        del self._open[request.type_url]
        status = self._parent.status(request.type_url)
        if request.HasField("error_detail"):
            status.state = State.REJECTED
            status.rejected += 1
            status.error = " ".join(request.error_detail.message.split())
        else:
            status.state = State.ACCEPTED
            status.accepted += 1
            status.in_force = True


def short_name(type_url: str) -> str:
    """CDS, LDS, ... as people say; a type without such a name is called by its own."""
    name = type_url.rpartition("/")[2]
    return _SHORT_NAMES.get(name, name)
