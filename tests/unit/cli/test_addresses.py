# SPDX-License-Identifier: Apache-2.0
"""Blocks of loopback addresses are held by one mesh at a time."""

import ipaddress

import pytest

from pilothouse.cli.local import addresses

NUMBER = 211


def test_a_held_block_is_not_taken_twice() -> None:
    """The second one is told; once given back it is free again."""
    held = addresses.HeldBlock.take(NUMBER)
    try:
        with pytest.raises(addresses.NoBlockError, match=r"127\.211\.0\.0/16"):
            addresses.HeldBlock.take(NUMBER)
    finally:
        held.close()
    addresses.HeldBlock.take(NUMBER).close()


def test_all_addresses_are_loopback_and_different() -> None:
    """Nothing a mesh on one machine listens on is reachable from outside."""
    block = addresses.Block(number=NUMBER)
    found = [block.control, block.ingress, block.egress]
    found += [block.pod(i) for i in range(300)] + [block.application(i) for i in range(300)]

    assert len(set(found)) == len(found)
    assert all(ipaddress.ip_address(address).is_loopback for address in found)
