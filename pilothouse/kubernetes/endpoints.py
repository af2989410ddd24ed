# SPDX-License-Identifier: Apache-2.0
"""The endpoints of a service, from its EndpointSlices or from the pods that its selector picks.

Slices count where there are any; pods stand for what Kubernetes' own controller would have written.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from pilothouse.kubernetes import records
from pilothouse.model import keys, services

K = TypeVar("K")


class _Candidate(NamedTuple):
    """An endpoint before it is known whether better ones are there."""

    endpoint: services.Endpoint
    draining: bool
    """Terminating, and serving still."""


class Pods:
    """The running pods of a namespace."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_name: dict[str, records.PodRecord] = {}
        self._by_address: dict[str, dict[str, records.PodRecord]] = defaultdict(dict)
        self._by_label: dict[tuple[str, str], dict[str, records.PodRecord]] = defaultdict(dict)

    def add(self, pod: records.PodRecord) -> None:
        """Take a pod in; there is none of its name."""
        name = pod.workload.name
        self._by_name[name] = pod
        for address in pod.workload.addresses:
            self._by_address[address][name] = pod
        for pair in pod.workload.labels:
            self._by_label[pair][name] = pod

    def remove(self, pod: records.PodRecord) -> None:
        """Forget a pod that was taken in."""
        name = pod.workload.name
        del self._by_name[name]
        for address in set(pod.workload.addresses):
            _remove(self._by_address, address, name)
        for pair in pod.workload.labels:
            _remove(self._by_label, pair, name)

    def find(self, name: str, address: str) -> records.PodRecord | None:
        """The pod of that name, or else the one at that address: of several the first by name."""
        named = self._by_name.get(name)
        if named is not None:
            return named
        there = self._by_address.get(address)
        return there[min(there)] if there else None

    def selected(self, selector: keys.Labels) -> Iterator[records.PodRecord]:
        """The pods with all labels of a selector, by name; an empty one selects none."""
        if not selector:
            return
        rarest = min((self._by_label.get(pair, {}) for pair in selector), key=len)
        for _, pod in sorted(rarest.items()):
            if keys.selects(selector, pod.workload.labels):
                yield pod


def _remove(table: dict[K, dict[str, records.PodRecord]], key: K, name: str) -> None:
    del table[key][name]
    if not table[key]:
        del table[key]


def of(
    record: records.ServiceRecord, *, slices: list[records.SliceRecord], pods: Pods
) -> tuple[services.Endpoint, ...]:
    """The endpoints of a service, sorted by address, port and port name.

    Args:
        record: The service.
        slices: Its EndpointSlices, by name.
        pods: Those of its namespace.
    """
    if record.service.external_name is not None:
        return ()
    found = _from_slices(record, slices, pods) if slices else _from_pods(record, pods)
    chosen = _drain(_one_family([*found], preferred=record.ip_family))
    unique: dict[tuple[str, int, str], services.Endpoint] = {}
    for endpoint in chosen:
        name = (endpoint.address, endpoint.port, endpoint.port_name)
        # The API allows an endpoint in two slices for a while; ready in one of them is ready.
        if name not in unique or (endpoint.ready and not unique[name].ready):
            unique[name] = endpoint
    return tuple(endpoint for _, endpoint in sorted(unique.items()))


def _from_slices(
    record: records.ServiceRecord, slices: list[records.SliceRecord], pods: Pods
) -> Iterator[_Candidate]:
    ports = {port.name: port for port in record.service.ports}
    for slice_ in slices:
        served = [(ports[port.name], port.number) for port in slice_.ports if port.name in ports]
        for endpoint in slice_.endpoints:
            for address in endpoint.addresses:
                pod = pods.find(endpoint.pod, address)
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
            locality=_locality(region, zone),
            workload=endpoint.pod or (pod.workload.name if pod else ""),
        ),
        draining=endpoint.terminating and endpoint.serving,
    )


@functools.lru_cache(maxsize=1024)
def _locality(region: str, zone: str) -> services.Locality:
    """One for all who are at a place."""
    return services.Locality(region=region, zone=zone)


def _from_pods(record: records.ServiceRecord, pods: Pods) -> Iterator[_Candidate]:
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


def _one_family(candidates: list[_Candidate], *, preferred: str) -> list[_Candidate]:
    """Leave out the second address of dual-stack workloads: it is no second workload."""
    if len({records.family(one.endpoint.address) for one in candidates}) < 2:
        return candidates
    families: dict[str, set[str]] = defaultdict(set)
    for candidate in candidates:
        endpoint = candidate.endpoint
        families[endpoint.workload].add(records.family(endpoint.address))
    return [
        one
        for one in candidates
        if not one.endpoint.workload
        or preferred not in families[one.endpoint.workload]
        or records.family(one.endpoint.address) == preferred
    ]


def _drain(candidates: list[_Candidate]) -> Iterable[services.Endpoint]:
    """Use draining endpoints of a port when it has no ready one, as kube-proxy does (KEP-1669)."""
    if any(one.draining for one in candidates):
        return _drained(candidates)
    return [one.endpoint for one in candidates]


def _drained(candidates: list[_Candidate]) -> Iterator[services.Endpoint]:
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
