# SPDX-License-Identifier: Apache-2.0
"""States of a small mesh, and proxies in it: short ways to write them."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from pilothouse.config import codec, documents, objects, schema
from pilothouse.kubernetes import services as manifests
from pilothouse.model import keys, proxy, services
from pilothouse.routing import plan, planner, state
from tests.support import configs

HEADER = "apiVersion: pilothouse.dev/v1alpha1\n"


def service_key(name: str) -> keys.ServiceKey:
    """`NAME.NAMESPACE`, or `NAME` in the namespace default."""
    name, _, namespace = name.partition(".")
    return keys.ServiceKey(namespace or "default", name)


def port(
    number: int,
    name: str = "http",
    protocol: services.AppProtocol = services.AppProtocol.HTTP,
    target: int | str | None = None,
) -> services.Port:
    """A service port."""
    return services.Port(number=number, name=name, protocol=protocol, target_port=target)


def service(name: str, *ports: services.Port | int, **parts: Any) -> services.Service:
    """A service with these HTTP ports (9080 when none is given), which selects app=NAME."""
    key = service_key(name)
    found = tuple(
        one if isinstance(one, services.Port) else port(one, f"http-{one}") for one in ports
    )
    parts.setdefault("selector", keys.labels(app=key.name))
    return services.Service(key=key, ports=found or (port(9080),), **parts)


def endpoint(address: str, number: int = 9080, name: str = "http", **parts: Any) -> Any:
    """A ready endpoint; `version` is a label."""
    version = parts.pop("version", None)
    labels = keys.labels(version=version) if version else ()
    return services.Endpoint(address=address, port=number, port_name=name, labels=labels, **parts)


def rule(name: str, spec: str, **meta: Any) -> dict[keys.ObjectKey, objects.Config]:
    """A RouteRule NAME or NAME.NAMESPACE from a spec in YAML flow style, with parts of its Meta."""
    return _object("RouteRule", name, spec, **meta)


def policy(name: str, spec: str, **meta: Any) -> dict[keys.ObjectKey, objects.Config]:
    """A DestinationPolicy."""
    return _object("DestinationPolicy", name, spec, **meta)


def external(name: str, spec: str, **meta: Any) -> dict[keys.ObjectKey, objects.Config]:
    """An ExternalService."""
    return _object("ExternalService", name, spec, **meta)


def gateway(name: str, spec: str, **meta: Any) -> dict[keys.ObjectKey, objects.Config]:
    """A MeshGateway."""
    return _object("MeshGateway", name, spec, **meta)


def tracing(spec: str) -> dict[keys.ObjectKey, objects.Config]:
    """The MeshConfig that is used, with this section."""
    return _object("MeshConfig", "default.pilothouse-system", f"{{tracing: {spec}}}")


def defaults(spec: str) -> dict[keys.ObjectKey, objects.Config]:
    """The MeshConfig that is used."""
    return _object("MeshConfig", "default.pilothouse-system", spec)


def _object(kind: str, name: str, spec: str, **meta: Any) -> dict[keys.ObjectKey, objects.Config]:
    key = service_key(name)
    config = configs.read(
        f"{HEADER}kind: {kind}\n"
        f"metadata: {{name: {key.name}, namespace: {key.namespace}}}\nspec: {spec}\n"
    )
    changed = dataclasses.replace(config, meta=dataclasses.replace(config.meta, **meta))
    return {config.key: changed}


def mesh_state(
    *known: services.Service | Mapping[keys.ObjectKey, objects.Config],
    endpoints: Mapping[str, Iterable[services.Endpoint]] | None = None,
    **parts: Any,
) -> state.MeshState:
    """A state of services and config objects, in any order; endpoints by service."""
    found: dict[keys.ServiceKey, services.Service] = {}
    config: dict[keys.ObjectKey, objects.Config] = {}
    for one in known:
        if isinstance(one, services.Service):
            found[one.key] = one
        else:
            config.update(one)
    return state.MeshState(
        services=dict(sorted(found.items())),
        endpoints={
            service_key(name): tuple(some) for name, some in sorted((endpoints or {}).items())
        },
        configs=dict(sorted(config.items())),
        **parts,
    )


def sidecar(name: str = "client", address: str = "10.0.9.9", **parts: Any) -> proxy.Proxy:
    """A sidecar NAME or NAME.NAMESPACE."""
    return _proxy(proxy.Role.SIDECAR, name, address, **parts)


def edge(name: str = "edge", address: str = "10.0.8.8", **parts: Any) -> proxy.Proxy:
    """A gateway proxy with the label app=NAME."""
    parts.setdefault("labels", keys.labels(app=service_key(name).name))
    return _proxy(proxy.Role.GATEWAY, name, address, **parts)


def _proxy(role: proxy.Role, name: str, address: str, **parts: Any) -> proxy.Proxy:
    key = service_key(name)
    node = proxy.NodeId(role=role, address=address, name=key.name, namespace=key.namespace)
    return proxy.Proxy(id=node, **parts)


def mesh(*known: Any, **parts: Any) -> planner.Mesh:
    """`mesh_state`, planned by a new planner."""
    return planner.Planner().update(mesh_state(*known, **parts))


def planned(whole: planner.Mesh, of: proxy.Proxy) -> plan.ProxyPlan:
    """The plan of a proxy that can be planned."""
    found = whole.plan(of)
    assert isinstance(found, plan.ProxyPlan), found
    return found


def condition(
    whole: planner.Mesh, kind: str, name: str, type_: str = "ResolvedRefs"
) -> objects.Condition | None:
    """A condition of an object NAME or NAME.NAMESPACE, or None."""
    key = service_key(name)
    found = whole.conditions[keys.ObjectKey(kind, key.namespace, key.name)]
    return next((one for one in found if one.type == type_), None)


def from_manifests(text: str, *more: Mapping[keys.ObjectKey, objects.Config]) -> planner.Mesh:
    """The mesh of Services, EndpointSlices, Pods and config objects in YAML, planned."""
    found, problems = documents.load(text, location="input.yaml")
    registry, mistakes = manifests.registry_state(found)
    assert (problems, mistakes) == ((), ())
    config: dict[keys.ObjectKey, objects.Config] = {}
    for document in found:
        if document.manifest["apiVersion"] == schema.API_VERSION:
            one, wrong = codec.from_manifest(document, source="test")
            assert one is not None, wrong
            config[one.key] = one
    for some in more:
        config.update(some)
    return planner.Planner().update(
        state.MeshState(
            services=registry.services,
            endpoints=registry.endpoints,
            workloads=registry.workloads,
            configs=dict(sorted(config.items())),
        )
    )
