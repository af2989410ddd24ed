# SPDX-License-Identifier: Apache-2.0
"""Service, EndpointSlice and Pod manifests, each read on its own.

An object with a malformed field is refused whole, with every violation named; it costs no other
object anything.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from typing import NamedTuple

from pilothouse.config import documents, objects
from pilothouse.kubernetes import fields, manifests, protocols
from pilothouse.model import keys, services

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
_REGION_LABEL = "topology.kubernetes.io/region"
_ZONE_LABEL = "topology.kubernetes.io/zone"
_TRANSPORTS = ("TCP", "UDP", "SCTP")
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_FINISHED = ("Succeeded", "Failed")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord:
    """A Service."""

    key: keys.ObjectKey
    service: services.Service
    ip_family: str
    """``IPv4`` or ``IPv6``: preferred for a workload that has both."""
    publish_not_ready: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPort:
    """A port that a container declares."""

    name: str
    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """A Pod."""

    key: keys.ObjectKey
    workload: services.Workload
    ports: tuple[ContainerPort, ...]
    locality: services.Locality
    ready: bool
    terminating: bool
    finished: bool
    """Its containers have ended for good; its address may be another pod's by now."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlicePort:
    """A port of an EndpointSlice; ``number`` None stands for the service's target port."""

    name: str
    number: int | None


class SliceEndpoint(NamedTuple):
    """An endpoint of an EndpointSlice. There are more of them than of anything else."""

    addresses: tuple[str, ...]
    ready: bool
    serving: bool
    terminating: bool
    zone: str
    pod: str
    """Name of the pod behind it; empty when the slice does not say."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SliceRecord:
    """An EndpointSlice."""

    key: keys.ObjectKey
    service: str
    ports: tuple[SlicePort, ...]
    endpoints: tuple[SliceEndpoint, ...]


Record = ServiceRecord | PodRecord | SliceRecord
KINDS = frozenset({"Service", "EndpointSlice", "Pod"})


def read(
    document: documents.RawDocument,
) -> tuple[Record | None, tuple[objects.Problem, ...]]:
    """Read a Service, EndpointSlice or Pod.

    Returns:
        The record, and no problem; or None, and a problem for each violation. (None, ()) for every
        other object.
    """
    kind = manifests.known_kind(document)
    if kind not in KINDS:
        return None, ()
    root = fields.Field(document.manifest)
    record: Record
    match kind:
        case "Service":
            record = _service(root)
        case "Pod":
            record = _pod(root)
        case _:
            record = _slice(root)
    if root.violations:
        return None, fields.problems(document, root, manifests.key_of(document))
    return record, ()


def _service(root: fields.Field) -> ServiceRecord:
    head = fields.head(root)
    spec = root["spec"]
    external = None
    if spec.text_at("type") == "ExternalName":
        external = spec["externalName"].required().lower().rstrip(".")
    addresses = _cluster_ips(spec)
    headless = spec["clusterIP"].value == "None"
    ports = _service_ports(spec["ports"])
    if not spec.has("ports") and external is None and not headless:
        spec["ports"].refuse("is required")
    families = spec["ipFamilies"].texts()
    return ServiceRecord(
        key=head.key,
        service=services.Service(
            key=keys.ServiceKey(head.key.namespace, head.key.name),
            ports=ports,
            cluster_ips=tuple(sorted(addresses)),
            selector=() if external is not None else spec["selector"].pairs(),
            external_name=external,
        ),
        ip_family=(*families, *(family(address) for address in addresses), "IPv4")[0],
        publish_not_ready=spec.flag_at("publishNotReadyAddresses") or False,
    )


def family(address: str) -> str:
    """``IPv4`` or ``IPv6``, of an IP literal."""
    return "IPv6" if ":" in address else "IPv4"


def _cluster_ips(spec: fields.Field) -> list[str]:
    single = spec["clusterIP"]
    several = [item for item in spec["clusterIPs"].each() if item.text() not in ("", "None")]
    if not several and single.text() not in ("", "None"):
        several = [single]
    return [address for item in several if (address := _ip(item))]


def _ip(item: fields.Field) -> str:
    """The canonical form of an IP literal; empty when it is none, which is noted."""
    text = item.required()
    if _PLAIN_IPV4.fullmatch(text):
        return text  # canonical as it is, and told in a twentieth of the time
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError:
        item.refuse(f"must be an IP address, is {text!r}")
        return ""


def _service_ports(listed: fields.Field) -> tuple[services.Port, ...]:
    ports: list[services.Port] = []
    names: set[str] = set()
    items = tuple(listed.each())
    for item in items:
        name = item.text_at("name")
        if len(items) > 1 and not name:
            item["name"].refuse("is required when there are several ports")
        elif name and name in names:
            item["name"].refuse(f"{name!r} is the name of another port too")
        names.add(name)
        number = item["port"].number(low=1, high=65535)
        transport = _transport(item)
        if number is None:
            if not item["port"].present:
                item["port"].refuse("is required")
            continue
        if transport == "SCTP":
            continue  # legal, and nothing that a proxy here can carry
        ports.append(
            services.Port(
                number=number,
                name=name,
                protocol=protocols.of_port(
                    transport=transport, app_protocol=item.text_at("appProtocol"), name=name
                ),
                target_port=_target_port(item["targetPort"]),
            )
        )
    return tuple(sorted(ports, key=_port_order))


def _port_order(port: services.Port) -> tuple[int, bool, str]:
    return (port.number, port.protocol is services.AppProtocol.UDP, port.name)


def _transport(port: fields.Field) -> str:
    transport = port.text_at("protocol", "TCP")
    if transport not in _TRANSPORTS:
        port["protocol"].refuse(f"must be TCP, UDP or SCTP, is {transport!r}")
    return transport


def _target_port(item: fields.Field) -> int | str | None:
    if isinstance(item.value, str):
        return item.value or None
    return item.number(low=1, high=65535)


def _pod(root: fields.Field) -> PodRecord:
    head = fields.head(root)
    spec, status = root["spec"], root["status"]
    addresses = [_ip(item["ip"]) for item in status["podIPs"].each() if item["ip"].text()]
    if not addresses and status["podIP"].text():
        addresses = [_ip(status["podIP"])]
    labels = dict(head.labels)
    return PodRecord(
        key=head.key,
        workload=services.Workload(
            namespace=head.key.namespace,
            name=head.key.name,
            addresses=tuple(addresses),
            labels=head.labels,
            service_account=spec["serviceAccountName"].text() or spec["serviceAccount"].text(),
        ),
        ports=_container_ports(spec),
        locality=services.Locality(
            region=labels.get(_REGION_LABEL, ""), zone=labels.get(_ZONE_LABEL, "")
        ),
        ready=_is_ready(status["conditions"]),
        terminating=head.deleting,
        finished=status["phase"].text() in _FINISHED,
    )


def _container_ports(spec: fields.Field) -> tuple[ContainerPort, ...]:
    containers = [
        *spec["containers"].each(),
        # Only sidecars (KEP-753) among these go on running.
        *(
            item
            for item in spec["initContainers"].each()
            if item["restartPolicy"].value == "Always"
        ),
    ]
    ports: list[ContainerPort] = []
    for container in containers:
        for item in container["ports"].each():
            number = item["containerPort"].number(low=1, high=65535)
            if number is not None:
                ports.append(ContainerPort(name=item["name"].text(), number=number))
    return tuple(ports)


def _is_ready(conditions: fields.Field) -> bool:
    """The Ready condition; a pod that says nothing about it, as one in a folder may, is ready."""
    for condition in conditions.each():
        if condition["type"].text() == "Ready":
            return condition["status"].text() == "True"
    return True


def _slice(root: fields.Field) -> SliceRecord:
    head = fields.head(root)
    service = dict(head.labels).get(SERVICE_NAME_LABEL, "")
    if not service:
        root["metadata"]["labels"].entry(SERVICE_NAME_LABEL).refuse("is required")
    address_type = root["addressType"].required()
    if address_type not in ("", "IPv4", "IPv6"):
        root["addressType"].refuse(f"must be IPv4 or IPv6, is {address_type!r}")
        return SliceRecord(key=head.key, service=service, ports=(), endpoints=())
    return SliceRecord(
        key=head.key,
        service=service,
        ports=tuple(
            SlicePort(name=item.text_at("name"), number=item["port"].number(low=1, high=65535))
            for item in root["ports"].each()
        ),
        endpoints=tuple(_slice_endpoint(item, address_type) for item in root["endpoints"].each()),
    )


def _slice_endpoint(item: fields.Field, address_type: str) -> SliceEndpoint:
    addresses = _slice_addresses(item, address_type)
    ready, serving, terminating = _conditions(item)
    pod = ""
    if item.has("targetRef"):
        target = item["targetRef"]
        pod = target.text_at("name") if target.text_at("kind") == "Pod" else ""
    return SliceEndpoint(
        addresses=addresses,
        ready=ready,
        serving=serving,
        terminating=terminating,
        zone=item.text_at("zone"),
        pod=pod,
    )


def _slice_addresses(item: fields.Field, address_type: str) -> tuple[str, ...]:
    plain = item.plain_texts_at("addresses")
    if plain and address_type == "IPv4" and all(map(_PLAIN_IPV4.fullmatch, plain)):
        return tuple(plain)  # as nearly all are
    addresses: list[str] = []
    for field in item["addresses"].each():
        address = _ip(field)
        if address and address_type and family(address) != address_type:
            field.refuse(f"must be an {address_type} address, is {address!r}")
        addresses.append(address)
    if not addresses:
        item["addresses"].refuse("at least one address is required")
    return tuple(addresses)


def _conditions(item: fields.Field) -> tuple[bool, bool, bool]:
    """Ready, serving and terminating.

    As the API has it: a ready or serving that is not said means true, a terminating false.
    """
    if not item.has("conditions"):
        return True, True, False
    conditions = item["conditions"]
    ready = conditions.flag_at("ready") is not False
    serving = conditions.flag_at("serving")
    terminating = conditions.flag_at("terminating") or False
    return ready, ready if serving is None else serving, terminating
