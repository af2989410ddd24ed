# SPDX-License-Identifier: Apache-2.0
"""Which listeners of which gateways a proxy opens, and what the others are told."""

import pytest

from pilothouse.routing import gateway_ports
from tests.support import meshes

TLS = "tls: {certificates: [{secret: s}]}"
SECURE = f"port: 443, protocol: HTTPS, {TLS}"
PASSED = "port: 443, protocol: TLS, tls: {mode: PASSTHROUGH}"


def gateway(name: str, *listeners: str, selector: str = "{app: edge}", created: int = 0):
    """A gateway whose listeners are named l0, l1 and so on."""
    shown = ", ".join(f"{{name: l{index}, {one}}}" for index, one in enumerate(listeners))
    spec = f"{{selector: {selector}, listeners: [{shown}]}}"
    return meshes.gateway(name, spec, created=created)


def told(*gateways) -> dict[str, str]:
    """What each gateway is told, by name."""
    whole = meshes.mesh(*gateways)
    found = {}
    for one in gateways:
        for key in one:
            condition = meshes.condition(whole, "MeshGateway", key.name, "Conflicted")
            if condition is not None:
                found[key.name] = condition.message
    return found


OLD = "MeshGateway/default/old"


@pytest.mark.parametrize(
    ("old", "young", "text"),
    [
        ("port: 80, protocol: HTTP", "port: 80, protocol: HTTP", ""),
        (f"{SECURE}, hosts: [a.b]", f"{PASSED}, hosts: ['*.b']", ""),
        ("port: 9, protocol: UDP", "port: 9, protocol: TCP", ""),
        ("port: 9, protocol: TCP", "port: 9, protocol: TCP", f"is not opened: {OLD} has its port"),
        ("port: 9, protocol: UDP", "port: 9, protocol: UDP", f"is not opened: {OLD} has its port"),
        (
            "port: 443, protocol: TCP",
            SECURE,
            f"is not opened: {OLD} speaks another protocol on its port",
        ),
        (
            f"{SECURE}, hosts: [a.b]",
            f"{PASSED}, hosts: [c.d, a.b]",
            f"does not serve host a.b: {OLD} does on its port",
        ),
        (
            "port: 80, protocol: HTTP, httpsRedirect: true, hosts: [a.b]",
            "port: 80, protocol: HTTP, hosts: [a.b, c.d]",
            f"does not serve host a.b: {OLD} does on its port",
        ),
        (
            "port: 80, protocol: HTTP, clientAddress: {trustedHops: 1}",
            "port: 80, protocol: HTTP",
            f"is not opened: {OLD} takes the addresses of clients from elsewhere on its port",
        ),
        (
            "port: 80, protocol: HTTP, address: 10.0.0.1",
            "port: 80, protocol: HTTP, address: 10.0.0.2",
            f"is not opened: {OLD} opens its port at another address",
        ),
        (
            "port: 9, protocol: UDP, address: 10.0.0.1",
            "port: 9, protocol: TCP, address: 10.0.0.2",
            "",
        ),
        (
            f"{SECURE}, hosts: [a.b], http3: true",
            f"{SECURE}, hosts: [c.d]",
            f"is not opened: {OLD} serves HTTP/3 on its port, for which it must be alone",
        ),
        (
            f"{SECURE}, hosts: [a.b]",
            f"{SECURE}, hosts: [c.d], http3: true",
            f"does not serve HTTP/3: {OLD} has its port too",
        ),
        (
            f"{SECURE}, http3: true",
            "port: 443, protocol: UDP",
            f"is not opened: {OLD} serves HTTP/3 on its port",
        ),
        (
            "port: 443, protocol: UDP",
            f"{SECURE}, http3: true",
            f"does not serve HTTP/3: {OLD} has its port too",
        ),
    ],
)
def test_the_younger_does_without(old: str, young: str, text: str):
    """And is told; whichever is written first."""
    both = (gateway("old", old, created=1), gateway("young", young, created=2))
    expected = {"young": f"listener l0 {text}"} if text else {}
    assert told(*both) == told(*reversed(both)) == expected


def test_only_who_shares_proxies_is_told():
    """Selectors of which one contains the other; others meet at single proxies, if at all."""
    wide = gateway("old", "port: 9, protocol: TCP", created=1)
    narrow = gateway("young", "port: 9, protocol: TCP", selector="{app: edge, zone: a}", created=2)
    other = gateway("other", "port: 9, protocol: TCP", selector="{zone: b}", created=3)
    assert told(wide, narrow, other) == {"young": f"listener l0 is not opened: {OLD} has its port"}


def test_what_is_not_opened_takes_nothing_from_others():
    """The second is refused by the first, so the third has its port."""
    first = gateway("old", "port: 1, protocol: TCP", created=1)
    second = gateway("second", "port: 1, protocol: HTTP", "port: 2, protocol: TCP", created=2)
    third = gateway("third", "port: 1, protocol: HTTP", "port: 3, protocol: TCP", created=3)
    why = f"listener l0 is not opened: {OLD} speaks another protocol on its port"
    assert told(first, second, third) == {"second": why, "third": why}


@pytest.mark.parametrize(
    ("host", "whose"),
    [
        ("a.b.c", "exact"),
        ("x.b.c", "narrow"),
        ("x.y.b.c", "narrow"),
        ("b.c", "wide"),
        ("*.y.b.c", "narrow"),
        ("*.b.c", "narrow"),
        ("*.c", "wide"),
        ("c", "all"),
        ("*", "all"),
        ("*.d", "all"),
    ],
)
def test_a_host_is_his_that_has_the_narrowest_pattern_around_it(host: str, whose: str):
    """Also a pattern, of which all must be his."""
    patterns = {"exact": "a.b.c", "narrow": "*.b.c", "wide": "*.c", "all": "*"}
    owners = {pattern: name for name, pattern in patterns.items()}
    assert gateway_ports.owner(owners, host) == whose
    del owners["*"]
    assert gateway_ports.owner(owners, "d") is None
