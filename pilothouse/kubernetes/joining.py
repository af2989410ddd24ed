# SPDX-License-Identifier: Apache-2.0
"""Records of Services, EndpointSlices and Pods, put together and kept together.

One changed record costs what it reaches: the services that an EndpointSlice or Pod belongs to are
looked up, and only their endpoints are worked out again. What turns out equal stays the same
object. Everything happens within one namespace.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from pilothouse.kubernetes import endpoints, records
from pilothouse.model import keys, services

K = TypeVar("K", bound=tuple[str, ...])
V = TypeVar("V")


class Join:
    """All records of one registry, and the state that follows from them."""

    def __init__(self) -> None:
        """Begin with no record."""
        self._namespaces: dict[str, _Namespace] = defaultdict(_Namespace)
        self._records: dict[keys.ObjectKey, records.Record] = {}
        self._order: list[tuple[str, str]] = []
        """Namespace and name of the workloads, sorted; `_workloads` has them in this order."""
        self._workloads: list[services.Workload] = []
        self.state = services.RegistryState(synced=True)
        """What the records amount to; replaced as a whole, and only by another value."""

    def update(self, changed: Mapping[keys.ObjectKey, records.Record | None]) -> None:
        """Take in records that are new or different, and forget those that are None."""
        reached: set[keys.ServiceKey] = set()
        workloads_changed = False
        for key, record in changed.items():
            before = self._records.pop(key, None)
            if record is not None:
                self._records[key] = record
            if record == before:
                continue
            namespace = self._namespaces[key.namespace]
            # Before and after: whoever used what was there must look again as well.
            for one in (before, record):
                if one is not None:
                    reached |= namespace.users(one)
            namespace.replace(before, record)
            if key.kind == "Pod":
                workloads_changed |= self._place(key, before, record)
        self._settle(reached, workloads_changed=workloads_changed)

    def _settle(self, reached: set[keys.ServiceKey], *, workloads_changed: bool) -> None:
        known: dict[keys.ServiceKey, services.Service | None] = {}
        found: dict[keys.ServiceKey, tuple[services.Endpoint, ...] | None] = {}
        for key in reached:
            namespace = self._namespaces[key.namespace]
            record = namespace.services.get(key.name)
            known[key] = record.service if record else None
            found[key] = (namespace.endpoints_of(record) or None) if record else None
        now = services.RegistryState(
            services=_patched(self.state.services, known),
            endpoints=_patched(self.state.endpoints, found),
            workloads=tuple(self._workloads) if workloads_changed else self.state.workloads,
            synced=True,
        )
        same = (
            now.services is self.state.services
            and now.endpoints is self.state.endpoints
            and now.workloads is self.state.workloads
        )
        self.state = self.state if same else now

    def _place(
        self, key: keys.ObjectKey, before: records.Record | None, now: records.Record | None
    ) -> bool:
        """Keep the workloads in order; tell whether they changed."""
        old, new = _workload(before), _workload(now)
        if old == new:
            return False
        name = (key.namespace, key.name)
        at = bisect.bisect_left(self._order, name)
        if old is not None:
            del self._order[at], self._workloads[at]
        if new is not None:
            self._order.insert(at, name)
            self._workloads.insert(at, new)
        return True


def _workload(record: records.Record | None) -> services.Workload | None:
    pod = _running(record)
    return pod.workload if pod else None


def _running(record: records.Record | None) -> records.PodRecord | None:
    """A pod, unless its containers have ended for good: its address may be another one's by now."""
    return record if isinstance(record, records.PodRecord) and not record.finished else None


def _patched(before: Mapping[K, V], changed: Mapping[K, V | None]) -> Mapping[K, V]:
    """The mapping with changes, in key order; the same object when nothing is different."""
    news = {key: value for key, value in changed.items() if before.get(key) != value}
    if not news:
        return before
    patched = dict(before)
    for key, value in news.items():
        if value is None:
            del patched[key]
        else:
            patched[key] = value
    return patched if all(key in before for key in news) else dict(sorted(patched.items()))


class _Users:
    """Which services use a name. Most names have one user, so its tuple is shared."""

    def __init__(self) -> None:
        self._users: dict[str, tuple[str, ...]] = {}
        self._alone: dict[str, tuple[str, ...]] = {}

    def of(self, name: str) -> tuple[str, ...]:
        return self._users.get(name, ())

    def add(self, name: str, user: str) -> None:
        now = (*self._users.get(name, ()), user)
        self._users[name] = now if len(now) > 1 else self._alone.setdefault(user, now)

    def remove(self, name: str, user: str) -> None:
        now = list(self._users[name])
        now.remove(user)
        if now:
            self._users[name] = tuple(now)
        else:
            del self._users[name]
            self._alone.pop(user, None)


class _Namespace:
    """The records of one namespace, and who uses what."""

    def __init__(self) -> None:
        self.services: dict[str, records.ServiceRecord] = {}
        self._slices: dict[str, dict[str, records.SliceRecord]] = defaultdict(dict)
        """By service, then by name."""
        self._pods = endpoints.Pods()
        self._by_selector: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Services by the first label that they select."""
        self._of_pods = _Users()
        self._of_addresses = _Users()
        """Services whose slices name a pod, or an address."""

    def endpoints_of(self, record: records.ServiceRecord) -> tuple[services.Endpoint, ...]:
        slices = self._slices.get(record.key.name, {})
        return endpoints.of(
            record, slices=[one for _, one in sorted(slices.items())], pods=self._pods
        )

    def users(self, record: records.Record) -> set[keys.ServiceKey]:
        """The services whose endpoints depend on a record, by what is known of the others."""
        match record:
            case records.ServiceRecord():
                return {record.service.key}
            case records.SliceRecord():
                return {keys.ServiceKey(record.key.namespace, record.service)}
            case records.PodRecord():
                namespace = record.key.namespace
                return {keys.ServiceKey(namespace, name) for name in self._users_of_pod(record)}

    def _users_of_pod(self, pod: records.PodRecord) -> Iterator[str]:
        yield from self._of_pods.of(pod.workload.name)
        for address in pod.workload.addresses:
            yield from self._of_addresses.of(address)
        for pair in pod.workload.labels:
            for name in self._by_selector.get(pair, ()):
                if keys.selects(self.services[name].service.selector, pod.workload.labels):
                    yield name

    def replace(self, before: records.Record | None, now: records.Record | None) -> None:
        """Forget a record, and take in another one of the same key."""
        self._forget(before)
        self._take(now)

    def _forget(self, record: records.Record | None) -> None:
        match record:
            case records.ServiceRecord():
                del self.services[record.key.name]
                if record.service.selector:
                    self._by_selector[record.service.selector[0]].discard(record.key.name)
            case records.SliceRecord():
                del self._slices[record.service][record.key.name]
                if not self._slices[record.service]:
                    del self._slices[record.service]
                for pod, addresses in _named(record):
                    if pod:
                        self._of_pods.remove(pod, record.service)
                    for address in addresses:
                        self._of_addresses.remove(address, record.service)
            case records.PodRecord() if not record.finished:
                self._pods.remove(record)

    def _take(self, record: records.Record | None) -> None:
        match record:
            case records.ServiceRecord():
                self.services[record.key.name] = record
                if record.service.selector:
                    self._by_selector[record.service.selector[0]].add(record.key.name)
            case records.SliceRecord():
                self._slices[record.service][record.key.name] = record
                for pod, addresses in _named(record):
                    if pod:
                        self._of_pods.add(pod, record.service)
                    for address in addresses:
                        self._of_addresses.add(address, record.service)
            case records.PodRecord() if not record.finished:
                self._pods.add(record)


def _named(record: records.SliceRecord) -> Iterable[tuple[str, tuple[str, ...]]]:
    return ((one.pod, one.addresses) for one in record.endpoints)
