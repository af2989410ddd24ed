# SPDX-License-Identifier: Apache-2.0
"""From what the sources hold to one mesh state. Pure.

Equal sources give equal states, in whatever order they spoke.

Config is authored (stores) or derived (config sources such as ingress and egress). An authored
object wins over a derived one of the same kind, namespace and name; among equals the source named
first in the settings wins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from pilothouse.config import admission, objects
from pilothouse.model import keys, secrets, services
from pilothouse.routing import state as mesh_state

Conditions = Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What every source holds at one moment, by name, in the order of the settings."""

    authored: Mapping[str, objects.StoreState]
    derived: Mapping[str, objects.StoreState]
    registries: Mapping[str, services.RegistryState]
    secrets: Mapping[secrets.SecretKey, secrets.TlsSecret] = dataclasses.field(
        default_factory=dict, repr=False
    )
    """Every usable secret there is."""

    @property
    def objects(self) -> tuple[Mapping[keys.ObjectKey, objects.Config], ...]:
        """The objects of each store; comparing those that did not change costs next to nothing."""
        return tuple(state.configs for state in (*self.authored.values(), *self.derived.values()))

    @property
    def unsynced(self) -> frozenset[str]:
        """Names of the sources that have not been read whole yet."""
        stores = {**self.authored, **self.derived}
        return frozenset(
            [name for name, state in stores.items() if not state.synced]
            + [name for name, state in self.registries.items() if not state.synced]
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What follows from the sources."""

    state: mesh_state.MeshState
    observed: Mapping[keys.ObjectKey, objects.Config]
    """Every object as its source holds it, whether in force or not, in key order."""
    accepted: admission.AcceptedSet
    conditions: Conditions
    """From admission; routing adds its own."""
    problems: tuple[objects.Problem, ...]
    """What the sources could not read as objects, sorted by location."""


def assemble(
    sources: Sources,
    *,
    previous: admission.AcceptedSet,
    domain: str,
    refusals: Iterable[admission.Refusal] = (),
    proven: Collection[keys.ObjectKey] = (),
) -> World:
    """Merge the sources and admit what may be in force.

    Args:
        sources: What they hold now.
        previous: What has been in force.
        domain: DNS domain of the mesh.
        refusals: What the gate and proxies refused since.
        proven: Objects that some proxy runs as they have been in force.
    """
    observed, shadowed = _merge_configs(sources)
    problems = _problems(sources)
    admitted = admission.admit(
        previous, observed, problems=problems, refusals=refusals, proven=proven
    )
    conditions: dict[keys.ObjectKey, tuple[objects.Condition, ...]] = dict(admitted.conditions)
    for key, condition in shadowed.items():
        conditions[key] = (*conditions.get(key, ()), condition)
    known, endpoints, workloads = _merge_registries(sources.registries)
    return World(
        state=mesh_state.MeshState(
            services=known,
            endpoints=endpoints,
            workloads=workloads,
            configs=admitted.accepted.configs,
            unsynced=sources.unsynced,
            secrets=_uses(sources),
            domain=domain,
        ),
        observed=observed,
        accepted=admitted.accepted,
        conditions=conditions,
        problems=problems,
    )


def _uses(sources: Sources) -> secrets.Uses | None:
    if sources.unsynced:  # secrets come with the objects that name them, or later
        return None
    return frozenset(use for one in sources.secrets.values() for use in one.uses)


def overlaid(
    state: mesh_state.MeshState, held: Mapping[keys.ObjectKey, objects.Config | None]
) -> mesh_state.MeshState:
    """The same state with some objects in other contents, or, for None, without them."""
    configs = {**state.configs, **held}
    left = {key: config for key, config in sorted(configs.items()) if config is not None}
    return dataclasses.replace(state, configs=left)


def _problems(sources: Sources) -> tuple[objects.Problem, ...]:
    states = (*sources.authored.values(), *sources.derived.values())
    found = (problem for state in states for problem in state.problems)
    return tuple(sorted(found, key=lambda one: (one.location, one.message)))


def _merge_configs(
    sources: Sources,
) -> tuple[Mapping[keys.ObjectKey, objects.Config], Mapping[keys.ObjectKey, objects.Condition]]:
    stores = [*sources.authored.items(), *sources.derived.items()]
    filled = [state.configs for _, state in stores if state.configs]
    if len(filled) == 1:
        return filled[0], {}
    merged: dict[keys.ObjectKey, objects.Config] = {}
    shadowed: dict[keys.ObjectKey, objects.Condition] = {}
    for name, state in stores:
        for key, config in state.configs.items():
            holder = merged.setdefault(key, config)
            if holder is not config:
                shadowed[key] = objects.Condition(
                    type="Duplicated",
                    status=True,
                    reason="HeldByTwoSources",
                    message=f"it comes from {holder.source} and from {name}; "
                    f"that of {holder.source} is used",
                )
    return dict(sorted(merged.items())), shadowed


def _merge_registries(
    registries: Mapping[str, services.RegistryState],
) -> tuple[
    Mapping[keys.ServiceKey, services.Service],
    Mapping[keys.ServiceKey, tuple[services.Endpoint, ...]],
    tuple[services.Workload, ...],
]:
    states = tuple(registries.values())
    if len(states) == 1:
        only = states[0]
        return only.services, only.endpoints, only.workloads
    known: dict[keys.ServiceKey, services.Service] = {}
    endpoints: dict[keys.ServiceKey, list[services.Endpoint]] = {}
    workloads: dict[tuple[str, str], services.Workload] = {}
    for state in states:
        for key, service in state.services.items():
            known.setdefault(key, service)
        for key, found in state.endpoints.items():
            endpoints.setdefault(key, []).extend(found)
        for workload in state.workloads:
            workloads.setdefault((workload.namespace, workload.name), workload)
    return (
        dict(sorted(known.items())),
        {
            key: tuple(
                sorted(
                    set(found), key=lambda one: (one.address, one.port, one.port_name, one.workload)
                )
            )
            for key, found in sorted(endpoints.items())
        },
        tuple(workload for _, workload in sorted(workloads.items())),
    )
