# SPDX-License-Identifier: Apache-2.0
"""Envoy's client status service, in the control plane's part: what each client is to hold.

For each client that a request matches, every resource that it asked for, with its version and how
far it is: synced, not sent, sent and not answered, or refused with the client's words. Private keys
are left out. Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/status/v3/csds.proto
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from google.protobuf import any_pb2

from pilothouse.adapters.rpc import dialogues, serving, unary
from pilothouse.api.envoy.admin.v3 import config_dump_shared_pb2
from pilothouse.api.envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from pilothouse.api.envoy.service.status.v3 import csds_pb2
from pilothouse.xds import requests, status, types
from pilothouse_discovery import clients, node_matching, sessions

SERVICE: Final = csds_pb2.DESCRIPTOR.services_by_name["ClientStatusDiscoveryService"].full_name
_Config = csds_pb2.ClientConfig
_SYNCS: Final = {
    status.Sync.SYNCED: csds_pb2.SYNCED,
    status.Sync.NOT_SENT: csds_pb2.NOT_SENT,
    status.Sync.STALE: csds_pb2.STALE,
    status.Sync.ERROR: csds_pb2.ERROR,
}


class Client(Protocol):
    """What is shown of a client."""

    id: str
    """Unique among all clients."""
    session: sessions.Session


def about(
    connected: Iterable[Client], request: csds_pb2.ClientStatusRequest
) -> csds_pb2.ClientStatusResponse:
    """The status of the clients that a request matches, by node id and age.

    Raises:
        requests.ProtocolError: it has a matcher of a kind that is not understood.
    """
    listed = sorted(connected, key=lambda client: client.session.node.id)
    return csds_pb2.ClientStatusResponse(
        config=[
            _client(client, contents=not request.exclude_resource_contents)
            for client in listed
            if node_matching.matches(request.node_matchers, client.session.node)
        ]
    )


class ClientStatus:
    """Answers about the connected clients."""

    def __init__(self, connected: clients.Clients) -> None:
        """Wire it."""
        self._clients = connected

    def add_to(self, server: serving.GrpcServer, calls: dialogues.Dialogues) -> None:
        """Serve both methods, for reflection too."""
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "StreamClientStatus": calls.handler(lambda: self, csds_pb2.ClientStatusRequest),
            "FetchClientStatus": grpc.unary_unary_rpc_method_handler(
                self._fetch,
                request_deserializer=csds_pb2.ClientStatusRequest.FromString,
                response_serializer=csds_pb2.ClientStatusResponse.SerializeToString,
            ),
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        server.server.add_generic_rpc_handlers((generic,))
        server.announce(SERVICE)

    def receive(self, request: csds_pb2.ClientStatusRequest) -> csds_pb2.ClientStatusResponse:
        """The status of all clients that the request matches, by node id and age.

        Raises:
            requests.ProtocolError: it has a matcher of a kind that is not understood.
        """
        return about(self._clients, request)

    def closed(self) -> None:
        """Nothing is kept of a call."""

    async def _fetch(
        self,
        request: csds_pb2.ClientStatusRequest,
        context: grpc.aio.ServicerContext[
            csds_pb2.ClientStatusRequest, csds_pb2.ClientStatusResponse
        ],
    ) -> csds_pb2.ClientStatusResponse:
        try:
            return self.receive(request)
        except requests.ProtocolError as error:
            code = grpc.StatusCode[error.code]
            await unary.abort(context, code, str(error), reason="UNKNOWN_MATCHER")


def _client(client: Client, *, contents: bool) -> _Config:
    return _Config(
        node=client.session.node,
        generic_xds_configs=_resources(client.session.stream.statuses(), contents=contents),
        client_scope=client.id,
    )


def _resources(
    statuses: Iterable[status.ResourceStatus], *, contents: bool
) -> list[_Config.GenericXdsConfig]:
    found = []
    for one in statuses:
        made = _Config.GenericXdsConfig(
            type_url=one.type_url,
            name=one.name,
            version_info=one.version,
            config_status=_SYNCS[one.sync],
        )
        if one.error:
            made.error_state.CopyFrom(
                config_dump_shared_pb2.UpdateFailureState(
                    details=one.error, version_info=one.version
                )
            )
        if contents and one.resource is not None:
            body = one.resource.body
            if one.type_url == types.SECRET.type_url:
                body = redacted(body)
            made.xds_config.CopyFrom(any_pb2.Any(type_url=one.type_url, value=body))
        found.append(made)
    return found


def redacted(body: bytes) -> bytes:
    """An encoded Secret with nothing in it but what everybody may see."""
    secret = secret_pb2.Secret.FromString(body)
    shown = secret_pb2.Secret(name=secret.name)
    if secret.HasField("tls_certificate"):
        # What is not listed here is not shown, whatever Envoy may add.
        shown.tls_certificate.SetInParent()
        shown.tls_certificate.certificate_chain.CopyFrom(secret.tls_certificate.certificate_chain)
    if secret.HasField("validation_context"):
        shown.validation_context.trusted_ca.CopyFrom(secret.validation_context.trusted_ca)
    return shown.SerializeToString(deterministic=True)
