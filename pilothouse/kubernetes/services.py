# SPDX-License-Identifier: Apache-2.0
"""Services, EndpointSlices and Pods to what a registry knows.

The endpoints of a service come from its EndpointSlices where it has any, and else from the pods
that its selector picks: what Kubernetes' own controller would have written. Everything happens
within one namespace, so a change in one namespace touches no other.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from pilothouse.config import documents, objects
from pilothouse.kubernetes import records
from pilothouse.model import keys, services


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """An endpoint before it is known whether better ones are there."""

    endpoint: services.Endpoint
    draining: bool
    """Terminating, and serving still."""


def registry_state(
    manifests: Iterable[documents.RawDocument],
) -> tuple[services.RegistryState, tuple[objects.Problem, ...]]:
    """The state of a registry that knows these manifests and no others.

    Args:
        manifests: Any objects; only Services, EndpointSlices and Pods count. Of several with the
            same key the first counts, and the others are problems.

    Returns:
        The state, with ``synced`` set, and a problem for each violation, in the manifests' order.
    """
    found: dict[keys.ObjectKey, records.Record] = {}
    first: dict[keys.ObjectKey, str] = {}
    problems: list[objects.Problem] = []
    for document in manifests:
        record, wrong = records.read(document)
        problems += wrong
        if record is None:
            continue
        if record.key in found:
            message = f"is already defined in {first[record.key]}"
            problems.append(
                objects.Problem(location=document.location, message=message, key=record.key)
            )
            continue
        found[record.key] = record
        first[record.key] = document.location
    return join(found.values()), tuple(problems)


def join(found: Iterable[records.Record]) -> services.RegistryState:
    """Put records together, in whatever order they come; no two have the same key."""
    services_: dict[keys.ServiceKey, records.ServiceRecord] = {}
    slices: dict[keys.ServiceKey, list[records.SliceRecord]] = defaultdict(list)
    pods: dict[str, _Pods] = defaultdict(_Pods)
    for record in sorted(found, key=lambda record: record.key):
        match record:
            case records.ServiceRecord():
                services_[record.service.key] = record
            case records.SliceRecord():
                slices[keys.ServiceKey(record.key.namespace, record.service)].append(record)
            case records.PodRecord() if not record.finished:
                pods[record.key.namespace].add(record)
    endpoints = {
        key: _endpoints(record, slices=slices.get(key, []), pods=pods[key.namespace])
        for key, record in services_.items()
    }
    return services.RegistryState(
        services={key: record.service for key, record in services_.items()},
        endpoints={key: found for key, found in endpoints.items() if found},
        workloads=tuple(
            pod.workload for _, known in sorted(pods.items()) for pod in known.by_name.values()
        ),
        synced=True,
    )


def merge(states: Mapping[str, services.RegistryState]) -> services.RegistryState:
    """One state of many, by namespace; each holds objects of its own namespace only."""
    ordered = [state for _, state in sorted(states.items())]
    return services.RegistryState(
        services={key: value for state in ordered for key, value in state.services.items()},
        endpoints={key: value for state in ordered for key, value in state.endpoints.items()},
        workloads=tuple(workload for state in ordered for workload in state.workloads),
        synced=True,
    )


class _Pods:
    """The running pods of a namespace."""

    def __init__(self) -> None:
        self.by_name: dict[str, records.PodRecord] = {}
        self.by_address: dict[str, records.PodRecord] = {}
        self._by_label: dict[tuple[str, str], list[records.PodRecord]] = defaultdict(list)

    def add(self, pod: records.PodRecord) -> None:
        self.by_name[pod.workload.name] = pod
        for address in pod.workload.addresses:
            self.by_address.setdefault(address, pod)
        for pair in pod.workload.labels:
            self._by_label[pair].append(pod)

    def selected(self, selector: keys.Labels) -> Iterator[records.PodRecord]:
        """The pods with all labels of a selector; an empty one selects none, as in a Service."""
        if not selector:
            return
        rarest = min((self._by_label.get(pair, []) for pair in selector), key=len)
        for pod in rarest:
            if keys.selects(selector, pod.workload.labels):
                yield pod


def _endpoints(
    record: records.ServiceRecord, *, slices: list[records.SliceRecord], pods: _Pods
) -> tuple[services.Endpoint, ...]:
    if record.service.external_name is not None:
        return ()
    found = _from_slices(record, slices, pods) if slices else _from_pods(record, pods)
    chosen = _drain(_one_family(tuple(found), preferred=record.ip_family))
    unique: dict[tuple[str, int, str], services.Endpoint] = {}
    for endpoint in chosen:
        name = (endpoint.address, endpoint.port, endpoint.port_name)
        # The API allows an endpoint in two slices for a while; ready in one of them is ready.
        if name not in unique or (endpoint.ready and not unique[name].ready):
            unique[name] = endpoint
    return tuple(endpoint for _, endpoint in sorted(unique.items()))


def _from_slices(
    record: records.ServiceRecord, slices: list[records.SliceRecord], pods: _Pods
) -> Iterator[_Candidate]:
    ports = {port.name: port for port in record.service.ports}
    for slice_ in slices:
        served = [(ports[port.name], port.number) for port in slice_.ports if port.name in ports]
        for endpoint in slice_.endpoints:
            for address in endpoint.addresses:
                pod = pods.by_name.get(endpoint.pod) or pods.by_address.get(address)
                for port, number in served:
                    target = number or _number_at(port, pod)
                    if target is not None:
                        yield _slice_candidate(endpoint, address, port, target, pod)


def _slice_candidate(
    endpoint: records.SliceEndpoint,
    address: str,
    port: services.Port,
    target: int,
    pod: records.PodRecord | None,
) -> _Candidate:
    region = pod.locality.region if pod else ""
    zone = endpoint.zone or (pod.locality.zone if pod else "")
    return _Candidate(
        endpoint=services.Endpoint(
            address=address,
            port=target,
            port_name=port.name,
            labels=pod.workload.labels if pod else (),
            ready=endpoint.ready,
            locality=services.Locality(region=region, zone=zone),
            workload=endpoint.pod or (pod.workload.name if pod else ""),
        ),
        draining=endpoint.terminating and endpoint.serving,
    )


def _from_pods(record: records.ServiceRecord, pods: _Pods) -> Iterator[_Candidate]:
    for pod in pods.selected(record.service.selector):
        address = _address(pod, preferred=record.ip_family)
        if not address:
            continue  # not started yet
        for port in record.service.ports:
            target = _number_at(port, pod)
            if target is None:
                continue  # this pod has no container port of that name
            yield _Candidate(
                endpoint=services.Endpoint(
                    address=address,
                    port=target,
                    port_name=port.name,
                    labels=pod.workload.labels,
                    ready=record.publish_not_ready or (pod.ready and not pod.terminating),
                    locality=pod.locality,
                    workload=pod.workload.name,
                ),
                draining=pod.terminating and pod.ready,
            )


def _address(pod: records.PodRecord, *, preferred: str) -> str:
    addresses = pod.workload.addresses
    return next(
        (address for address in addresses if records.family(address) == preferred),
        addresses[0] if addresses else "",
    )


def _number_at(port: services.Port, pod: records.PodRecord | None) -> int | None:
    """The port number at a workload; None for a name that the workload does not have."""
    if not isinstance(port.target_port, str):
        return port.target_port or port.number
    declared = pod.ports if pod else ()
    return next((each.number for each in declared if each.name == port.target_port), None)


def _one_family(candidates: tuple[_Candidate, ...], *, preferred: str) -> Iterator[_Candidate]:
    """Leave out the second address of dual-stack workloads: it is no second workload."""
    families: dict[str, set[str]] = defaultdict(set)
    for candidate in candidates:
        endpoint = candidate.endpoint
        families[endpoint.workload].add(records.family(endpoint.address))
    for candidate in candidates:
        endpoint = candidate.endpoint
        known = families[endpoint.workload] if endpoint.workload else set()
        if preferred not in known or records.family(endpoint.address) == preferred:
            yield candidate


def _drain(candidates: Iterable[_Candidate]) -> Iterator[services.Endpoint]:
    """Use draining endpoints of a port when it has no ready one, as kube-proxy does (KEP-1669)."""
    by_port: dict[str, list[_Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_port[candidate.endpoint.port_name].append(candidate)
    for _, group in sorted(by_port.items()):
        any_ready = any(candidate.endpoint.ready for candidate in group)
        for candidate in group:
            if candidate.draining and not any_ready:
                yield dataclasses.replace(candidate.endpoint, ready=True)
            else:
                yield candidate.endpoint
