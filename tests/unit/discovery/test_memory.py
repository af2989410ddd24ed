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


SETTLED = """
import gc
from pilothouse_discovery import memory

class Node:
    pass

def cycle():
    node = Node()
    node.itself = node

def cycles():
    return sum(isinstance(one, Node) for one in gc.get_objects())

memory.collect_less()
mesh = [Node() for _ in range(1_000)]
memory.settle()
assert gc.get_freeze_count() > 1_000
mesh.clear()
frozen = gc.get_freeze_count()
for _ in range(10):
    cycle()
assert cycles() == 10  # the mesh is gone: frozen is not kept
gc.collect()
assert cycles() == 0
assert gc.get_freeze_count() <= frozen
assert gc.get_threshold()[1] < 100
"""


def test_what_has_come_to_stay_is_not_searched_and_what_is_new_is() -> None:
    """After the start cycles are still found, among what was made since."""
    subprocess.run([sys.executable, "-c", SETTLED], check=True, timeout=60)


UNDISTURBED = """
import gc
from pilothouse_discovery import memory

class Node:
    pass

undisturbed = memory.Undisturbed()
kept = []

def work(objects):
    with undisturbed():
        assert not gc.isenabled()
        kept.extend(Node() for _ in range(objects))
    assert gc.isenabled()

memory.collect_less()
work(10)
frozen = gc.get_freeze_count()
assert frozen
assert gc.get_threshold()[1] < 100
work(10)
assert gc.get_freeze_count() == frozen  # next to nothing came
work(300_000)
grown = gc.get_freeze_count()
assert grown > frozen + 300_000
kept.clear()
work(1_000)
assert gc.get_freeze_count() < grown  # smaller than it was: what is new is searched
frozen = gc.get_freeze_count()
work(100_000)
assert gc.get_freeze_count() > frozen + 100_000  # smaller still, but too much to be searched
try:
    with undisturbed():
        raise ValueError
except ValueError:
    assert gc.isenabled()
"""


def test_work_is_not_disturbed_and_what_makes_the_process_larger_is_not_searched() -> None:
    """Collections are off meanwhile; what was added stays out of them only if it was much."""
    subprocess.run([sys.executable, "-c", UNDISTURBED], check=True, timeout=60)


PENDING = """
import gc
from pilothouse_discovery import memory

class Node:
    pass

def pending():
    return sum(isinstance(one, Node) for one in gc.get_objects())

undisturbed = memory.Undisturbed()
memory.collect_less()
with undisturbed():
    pass
frozen = gc.get_freeze_count()
for _ in range(100):
    node = Node()
    node.itself = node
del node
assert pending() == 100
more = [object() for _ in range(500_000)]  # memory in which nothing is searched
with undisturbed():
    pass
assert gc.get_freeze_count() != frozen  # as the process has grown
gc.unfreeze()
assert pending() == 0
"""


def test_what_nobody_needs_is_not_kept_because_the_process_has_grown() -> None:
    """A cycle that waits to be found is found before what is there is left out of searches."""
    subprocess.run([sys.executable, "-c", PENDING], check=True, timeout=60)
