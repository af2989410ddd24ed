# SPDX-License-Identifier: Apache-2.0
"""Objects that stand in each other's way."""

import pytest

from pilothouse.config import conflicts, objects, validation
from pilothouse.model import keys
from tests.support import configs


def refused(text: str) -> dict[str, str]:
    """Reason and message of each object that gives way, by its key."""
    found = validation.cross_check(configs.read_all(text))
    assert list(found) == sorted(found)
    return {
        str(key): f"{condition.reason}: {condition.message}"
        for key, (condition,) in found.items()
        if (condition.type, condition.status) == ("Accepted", False)
    }


def several(kind: str, *parts: str) -> str:
    """Documents of one kind, each given as ``NAME CREATED SPEC``."""
    documents = []
    for part in parts:
        name, created, spec = part.split(" ", 2)
        namespace, _, name = name.rpartition("/")
        time = "" if created == "-" else f"creationTimestamp: {created}-01-01T00:00:00Z, "
        documents.append(
            f"apiVersion: pilothouse.dev/v1alpha1\nkind: {kind}\n"
            f"metadata: {{{time}name: {name}, namespace: {namespace or 'default'}}}\n"
            f"spec: {spec}\n"
        )
    return "---\n".join(documents)


@pytest.mark.parametrize(
    ("policies", "loser", "winner"),
    [
        (("a 2001 {service: s}", "b 2002 {service: s}"), "b", "a"),
        (("a 2002 {service: s}", "b 2001 {service: s}"), "a", "b"),
        (("b - {service: s}", "a - {service: s}"), "b", "a"),
        (("b - {service: s}", "a 2001 {service: s}"), "a", "b"),
        (("a 2001 {service: s, namespace: default}", "b 2002 {service: s}"), "b", "a"),
        (("a - {service: s, labels: {x: y}}", "b - {service: s, labels: {x: y}}"), "b", "a"),
    ],
)
def test_of_two_policies_for_one_service_and_label_set_the_older_wins(
    policies: tuple[str, ...], loser: str, winner: str
):
    """Without a time an object is older than any; names decide between equals."""
    ((key, message),) = refused(several("DestinationPolicy", *policies)).items()
    assert key == f"DestinationPolicy/default/{loser}"
    assert message.startswith("Conflicted: service default/s")
    assert message.endswith(f"is taken by DestinationPolicy/default/{winner}")


def test_of_two_policies_for_one_external_service_the_older_wins():
    """As for services."""
    policies = ("a 2001 {externalService: s}", "b 2002 {externalService: s, namespace: default}")
    (message,) = refused(several("DestinationPolicy", *policies)).values()
    assert message == (
        "Conflicted: external service default/s is taken by DestinationPolicy/default/a"
    )


@pytest.mark.parametrize(
    "policies",
    [
        ("a - {service: s}", "b - {service: t}"),
        ("a - {service: s}", "b - {service: s, labels: {x: y}}"),
        ("a - {service: s, labels: {x: y}}", "b - {service: s, labels: {x: z}}"),
        ("a - {service: s}", "b - {service: s, namespace: other}"),
        ("a - {service: s}", "b - {externalService: s}"),
        ("other/a - {service: s, namespace: default}", "b - {service: s}"),
    ],
)
def test_policies_for_different_uses_get_along(policies: tuple[str, ...]):
    """Other labels, another service, or other clients: those of the policy's own namespace."""
    assert refused(several("DestinationPolicy", *policies)) == {}


def test_the_older_external_service_keeps_a_host_in_whatever_case():
    """In any namespace; the younger object is refused as a whole, and each host is named."""
    assert refused(
        several(
            "ExternalService",
            "x/young 2002 {hosts: [A.com, b.com, C.com]}",
            "y/old 2001 {hosts: [a.com, c.com]}",
        )
    ) == {
        "ExternalService/x/young": "Conflicted: host A.com is taken by ExternalService/y/old;"
        " host C.com is taken by ExternalService/y/old"
    }


def test_an_object_that_lost_takes_nothing_away():
    """Only what is in force has claims."""
    assert list(
        refused(
            several(
                "ExternalService",
                "a 2001 {hosts: [a.com]}",
                "b 2002 {hosts: [a.com, b.com]}",
                "c 2003 {hosts: [b.com]}",
            )
        )
    ) == ["ExternalService/default/b"]


def test_only_the_default_mesh_config_of_the_root_namespace_is_used():
    """Any other is told so."""
    found = refused(
        several("MeshConfig", "default - {}", "pilothouse-system/b - {}")
        + "---\n"
        + several("MeshConfig", "pilothouse-system/default - {}")
    )
    message = "NotUsed: only the MeshConfig default in pilothouse-system is used"
    assert found == {
        "MeshConfig/default/default": message,
        "MeshConfig/pilothouse-system/b": message,
    }


def _gateway(name: str, selector: str, protocol: str, port: int = 80) -> str:
    listeners = f"[{{name: l, port: {port}, protocol: {protocol}}}]"
    return f"{name} - {{selector: {selector}, listeners: {listeners}}}"


@pytest.mark.parametrize("selector", ["{a: b}", "{a: b, c: d}", "{a: b, c: e}"])
def test_two_gateways_cannot_speak_two_protocols_on_one_port_of_a_proxy(selector: str):
    """Whose selectors pick the same proxies; the older gateway keeps the port."""
    text = several(
        "MeshGateway", _gateway("one", selector, "HTTP"), _gateway("two", "{a: b}", "HTTPS")
    )
    assert refused(text) == {
        "MeshGateway/default/two": "Conflicted: port 80 has another protocol in"
        " MeshGateway/default/one, which serves the same proxies"
    }


@pytest.mark.parametrize(
    "other",
    [
        _gateway("two", "{a: b}", "HTTP"),
        _gateway("two", "{a: b}", "HTTPS", port=443),
        _gateway("two", "{a: c}", "HTTPS"),
        _gateway("two", "{c: d}", "HTTPS"),
        _gateway("other/two", "{a: b}", "HTTPS"),
    ],
)
def test_gateways_that_do_not_meet_get_along(other: str):
    """The same protocol, another port, or proxies that need not be the same."""
    assert refused(several("MeshGateway", _gateway("one", "{a: b}", "HTTP"), other)) == {}


def _tls(name: str, *listeners: str) -> str:
    shown = ", ".join(f"{{name: l{index}, {each}}}" for index, each in enumerate(listeners))
    return f"{name} - {{selector: {{a: b}}, listeners: [{shown}]}}"


def _https(*hosts: str, more: str = "") -> str:
    shown = f", hosts: [{', '.join(hosts)}]" if hosts else ""
    return f"port: 443, protocol: HTTPS, tls: {{certificates: [{{secret: s}}]}}{shown}{more}"


PASSED = "port: 443, protocol: TLS, tls: {mode: PASSTHROUGH}"


@pytest.mark.parametrize(
    ("one", "two", "why"),
    [
        (_https("a.b"), _https("c.d"), ""),
        (_https("a.b"), f"{PASSED}, hosts: ['*.b']", ""),
        (_https("a.b", "c.d"), _https("e.f", "C.d"), "host c.d at port 443 is taken by"),
        (_https(), PASSED, "host * at port 443 is taken by"),
        ("port: 80, protocol: HTTP", "port: 80, protocol: HTTP, hosts: [a.b]", ""),
        ("port: 9, protocol: TCP", "port: 9, protocol: TCP", "port 9 is taken by"),
        ("port: 9, protocol: UDP", "port: 9, protocol: UDP", "port 9 is taken by"),
        ("port: 9, protocol: UDP", "port: 9, protocol: TCP", ""),
        ("port: 9, protocol: TCP", "port: 9, protocol: HTTP", "port 9 has another protocol in"),
        (
            _https("a.b", more=", clientAddress: {proxyProtocol: true}"),
            _https("c.d"),
            "port 443 takes the addresses of clients from elsewhere in",
        ),
        (
            _https("a.b", more=", address: '::1'"),
            _https("c.d", more=", address: '0::1'"),
            "",
        ),
        (
            "port: 80, protocol: HTTP, address: 10.0.0.1",
            "port: 80, protocol: HTTP",
            "port 80 is opened at another address by",
        ),
        (_https("a.b", more=", http3: true"), _https("c.d"), "port 443 serves HTTP/3 for"),
        (
            _https("a.b", more=", http3: true"),
            "port: 443, protocol: UDP",
            "port 443 serves HTTP/3 for",
        ),
    ],
)
def test_what_two_gateways_cannot_both_have_of_a_proxy(one: str, two: str, why: str):
    """The older has it, and the younger is told."""
    found = refused(several("MeshGateway", _tls("one", one), _tls("two", two)))
    told = f"Conflicted: {why} MeshGateway/default/one, which serves the same proxies"
    assert found == ({"MeshGateway/default/two": told} if why else {})


def test_the_order_of_the_objects_decides_nothing():
    """Age is what counts, and age is total."""
    read = configs.read_all(
        several("ExternalService", *(f"{name} - {{hosts: [a.com]}}" for name in "dacb"))
    )
    turned: dict[keys.ObjectKey, objects.Config] = dict(reversed(read.items()))
    assert conflicts.cross_check(read) == conflicts.cross_check(turned)
    assert [config.key.name for config in conflicts.by_age(turned.values())] == list("abcd")
