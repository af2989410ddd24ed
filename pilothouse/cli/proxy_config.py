# SPDX-License-Identifier: Apache-2.0
"""What one proxy is to hold, and how far it is: asked from discovery by client status (CSDS).

Discovery knows what it sent, what was acknowledged and what refused. Private keys are left out by
it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import grpc.aio
from google.protobuf import any_pb2, json_format

from pilothouse import api
from pilothouse.api.envoy.service.status.v3 import csds_pb2
from pilothouse.cli import queries
from pilothouse.xds import types

_METHOD: Final = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus"
KINDS: Final[Mapping[str, types.ResourceType | None]] = {
    "all": None,
    "clusters": types.CLUSTER,
    "endpoints": types.ENDPOINT,
    "listeners": types.LISTENER,
    "routes": types.ROUTE,
    "secrets": types.SECRET,
    "extensions": types.EXTENSION,
}
"""What may be asked for, and the type of resource that it means."""
_Config = csds_pb2.ClientConfig


class NotOneProxyError(Exception):
    """A name fits no connected proxy, or several; the message lists them."""


async def resources(
    channel: grpc.aio.Channel, *, kind: str, proxy: str, name: str, bodies: bool
) -> queries.Rows:
    """The resources of one proxy, by type and name.

    Args:
        channel: To discovery.
        kind: One of `KINDS`.
        proxy: Its node id, its name, or ``NAME.NAMESPACE``.
        name: Only resources whose name has this in it; empty for all.
        bodies: Decode what is in them, as ``resource``.

    Raises:
        NotOneProxyError: the proxy is not connected, or the name fits several.
    """
    request = csds_pb2.ClientStatusRequest(exclude_resource_contents=not bodies)
    ask = channel.unary_unary(
        _METHOD,
        request_serializer=csds_pb2.ClientStatusRequest.SerializeToString,
        response_deserializer=csds_pb2.ClientStatusResponse.FromString,
    )
    answer = await ask(request, timeout=queries.SECONDS)
    config = _one(answer.config, proxy)
    wanted = KINDS[kind]
    if bodies:
        _load_types()
    return [
        _row(one)
        for one in config.generic_xds_configs
        if (wanted is None or one.type_url == wanted.type_url) and name in one.name
    ]


def _one(configs: Sequence[_Config], proxy: str) -> _Config:
    """The youngest stream of the proxy that is meant."""
    found: dict[str, _Config] = {one.node.id: one for one in configs if _is(one.node.id, proxy)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise NotOneProxyError(f"{proxy!r} may be any of {', '.join(sorted(found))}")
    known = ", ".join(sorted({one.node.id for one in configs})) or "none"
    raise NotOneProxyError(f"no proxy {proxy!r} is connected; connected: {known}")


def _is(node: str, wanted: str) -> bool:
    """Tell whether a node id is meant by itself, by its third part, or by the name in it."""
    parts = node.split("~")
    instance = parts[2] if len(parts) == 4 else ""
    return bool(wanted) and wanted in (node, instance, instance.rpartition(".")[0])


def _row(one: _Config.GenericXdsConfig) -> dict[str, Any]:
    row: dict[str, Any] = {
        "type": types.of(one.type_url).short,
        "name": one.name,
        "state": csds_pb2.ConfigStatus.Name(one.config_status),
        "version": one.version_info,
        "refused": one.error_state.details,
    }
    if one.xds_config.type_url:
        row["resource"] = _decoded(one.xds_config)
    return row


def _decoded(body: any_pb2.Any) -> Any:
    return json_format.MessageToDict(body)


def _load_types() -> None:
    """Know every type that may be packed inside another one."""
    for package in _packages():
        importlib.import_module(package)


def _packages() -> Iterable[str]:
    found = pkgutil.walk_packages(api.__path__, f"{api.__name__}.")
    return [one.name for one in found if one.name.endswith("_pb2")]
