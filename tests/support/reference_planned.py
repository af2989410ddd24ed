# SPDX-License-Identifier: Apache-2.0
"""What Envoys are told in a world of manifests, and whether that is what the manifests say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from pilothouse.api.envoy.config.endpoint.v3 import endpoint_pb2
from pilothouse.api.envoy.config.listener.v3 import listener_pb2
from pilothouse.api.envoy.config.route.v3 import route_pb2
from pilothouse.config import codec, documents, objects, validation
from pilothouse.envoy import translate
from pilothouse.kubernetes import services as registry
from pilothouse.model import keys, proxy
from pilothouse.routing import planner, state
from pilothouse.xds import resources, types
from tests.support import envoy_static, meshes
from tests.support import reference_matcher as matcher
from tests.support import reference_values as values
from tests.support import reference_walker as walker
from tests.support import reference_worlds as worlds


class Planned:
    """A world, planned and translated, as one that came after another if there is one."""

    def __init__(self, world: worlds.World, before: Planned | None = None) -> None:
        read = [
            documents.RawDocument(location=str(number), manifest=manifest, line=1)
            for number, manifest in enumerate(world)
        ]
        known, problems = registry.registry_state(read)
        assert problems == (), problems
        configs = [_config(each) for each in read if each.api_version == worlds.API]
        self._planner: planner.Planner = before._planner if before else planner.Planner()
        self.mesh = self._planner.update(
            state.MeshState(
                services=known.services,
                endpoints=known.endpoints,
                workloads=known.workloads,
                configs={each.key: each for each in sorted(configs, key=lambda one: one.key)},
            )
        )
        self._translator: translate.Translator = (
            before._translator if before else translate.Translator()
        )
        self._translator.begin_generation()
        self._held: dict[values.Client, walker.Envoy] = {}

    def snapshot(self, client: values.Client, **parts: Any) -> resources.Snapshot:
        """What the proxy of a client is sent."""
        role = proxy.Role.SIDECAR if client.port is None else proxy.Role.GATEWAY
        node = proxy.NodeId(
            role=role, address=client.address, name="client", namespace=client.namespace
        )
        return self.told(proxy.Proxy(id=node, labels=keys.labels(dict(client.labels)), **parts))

    def told(self, of: proxy.Proxy) -> resources.Snapshot:
        """What a proxy is sent."""
        return self._translator.snapshot(meshes.planned(self.mesh, of), {})

    def envoy(self, client: values.Client) -> walker.Envoy:
        """The listener to which a client's requests come, with all that it uses."""
        if client not in self._held:
            self._held[client] = envoy(self.snapshot(client), listener_of(client))
        return self._held[client]


def listener_of(client: values.Client) -> str:
    """The name of the listener to which the requests of a client come."""
    return "http-proxy" if client.port is None else f"gateway|{client.port}"


def _config(document: documents.RawDocument) -> objects.Config:
    config, wrong = codec.from_manifest(document, source="test")
    assert config is not None, wrong
    assert validation.validate(config) == (), document.manifest
    return config


def envoy(snapshot: resources.Snapshot, name: str) -> walker.Envoy:
    """A listener, whose routes have its name, of a snapshot."""
    found = {
        kind: {cast("Any", one).name: one for one in envoy_static.messages(snapshot, kind)}
        for kind in (types.LISTENER, types.ROUTE, types.CLUSTER)
    }
    assigned = envoy_static.messages(snapshot, types.ENDPOINT)
    return walker.Envoy(
        listener=cast("listener_pb2.Listener", found[types.LISTENER][name]),
        routes=cast("route_pb2.RouteConfiguration", found[types.ROUTE][name]),
        clusters=cast("dict[str, cluster_pb2.Cluster]", found[types.CLUSTER]),
        endpoints={
            one.cluster_name: one
            for one in cast("list[endpoint_pb2.ClusterLoadAssignment]", assigned)
        },
    )


@dataclasses.dataclass(frozen=True)
class Difference:
    """A request of which rules say one thing, and the configuration another."""

    client: values.Client
    request: values.Request
    documented: values.Verdict
    generated: values.Verdict


def documented(world: worlds.World, asked: worlds.Asked) -> list[values.Verdict]:
    """What the objects say of requests."""
    return [matcher.verdict(world, client, request) for client, request in asked]


def generated(
    planned: Planned,
    asked: worlds.Asked,
    spoil: Callable[[route_pb2.RouteConfiguration], object] = lambda _: None,
) -> list[values.Verdict]:
    """What Envoys do with requests, after what they are told was spoilt in some way."""
    envoys: dict[values.Client, walker.Envoy] = {}
    for client in {client for client, _ in asked}:
        sound = planned.envoy(client)
        routes = route_pb2.RouteConfiguration()
        routes.CopyFrom(sound.routes)
        spoil(routes)
        envoys[client] = dataclasses.replace(sound, routes=routes)
    return [envoys[client].verdict(request) for client, request in asked]


def differences(
    asked: worlds.Asked, documented: Sequence[values.Verdict], generated: Sequence[values.Verdict]
) -> list[Difference]:
    """Where two ways to find out what becomes of requests do not agree."""
    found = []
    for (client, request), wanted, made in zip(asked, documented, generated, strict=True):
        said = made if wanted.body is not None else dataclasses.replace(made, body=None)
        if wanted != said:
            found.append(Difference(client, request, wanted, said))
    return found
