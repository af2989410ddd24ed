# SPDX-License-Identifier: Apache-2.0
"""Which texts of manifests are IP addresses."""

import ipaddress

import pytest

from pilothouse.config import documents
from pilothouse.kubernetes import services as kubernetes

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}]}
"""


def read(text, family="IPv4"):
    """A service with an endpoint at this address."""
    found, problems = documents.load(
        f"{SERVICE}---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"
        "metadata: {name: s, labels: {kubernetes.io/service-name: web}}\n"
        f"addressType: {family}\nports: [{{name: http, port: 8080}}]\n"
        f"endpoints: [{{addresses: ['{text}']}}]\n",
        location="web.yaml",
    )
    assert problems == ()
    return kubernetes.registry_state(found)


@pytest.mark.parametrize("text", ["0.0.0.0", "255.255.255.255", "10.1.20.199", "fd00::1"])
def test_addresses_are_read_as_the_standard_library_does(text):
    """In canonical form, whatever way they are read."""
    state, problems = read(text, "IPv6" if ":" in text else "IPv4")
    assert problems == ()
    (endpoints,) = state.endpoints.values()
    assert [one.address for one in endpoints] == [str(ipaddress.ip_address(text))]


@pytest.mark.parametrize(
    "text",
    ["256.1.1.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.4 ", "1.2.3.-4", "\u0661.2.3.4", "a"],
)
def test_what_is_no_address_for_the_standard_library_is_none(text):
    """Leading zeros, other digits and everything else included."""
    with pytest.raises(ValueError, match="does not appear to be"):
        ipaddress.ip_address(text)
    _, problems = read(text)
    assert [one.message for one in problems] == [
        f"endpoints[0].addresses[0]: must be an IP address, is {text!r}"
    ]
