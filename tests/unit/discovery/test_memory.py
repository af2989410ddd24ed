# SPDX-License-Identifier: Apache-2.0
"""Memory that was freed goes back to the system."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
from pilothouse_discovery import memory

def resident():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096

assert memory.give_back()
for _ in range(3):
    blocks = [bytes(range(256)) * 1200 for _ in range(200)]
    pins = [bytes(100_000) for _ in range(200)]
    full = resident()
    del blocks
    assert full - resident() > 200 * 256 * 1200 * 0.9, (full, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_large_blocks_are_given_back_whatever_lies_between_them():
    """What was freed is not resident any more, also when other blocks were made after it."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
