# SPDX-License-Identifier: Apache-2.0
"""Which texts of manifests are IP addresses."""

import ipaddress

import pytest


@pytest.mark.parametrize("text", ["0.0.0.0", "255.255.255.255", "10.1.20.199", "fd00::1"])
def test_addresses_are_read_as_the_standard_library_does(text):
    """In canonical form, whatever way they are read."""
    family = "IPv6" if ":" in text else "IPv4"
    state, problems = read(service(), slice_("s", f"[{{addresses: ['{text}']}}]", family=family))
    assert problems == ()
    assert [one[0] for one in addresses(state)] == [str(ipaddress.ip_address(text))]


@pytest.mark.parametrize(
    "text",
    ["256.1.1.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.4 ", "1.2.3.-4", "\u0661.2.3.4", "a"],
)
def test_what_is_no_address_for_the_standard_library_is_none(text):
    """Leading zeros, other digits and everything else included."""
    with pytest.raises(ValueError, match="does not appear to be"):
        ipaddress.ip_address(text)
    _, problems = read(service(), slice_("s", f"[{{addresses: ['{text}']}}]"))
    assert [one.message for one in problems] == [
        f"endpoints[0].addresses[0]: must be an IP address, is {text!r}"
    ]
