# SPDX-License-Identifier: Apache-2.0
"""What the C library does with memory that was freed, and when Python looks for more.

When a thousand proxies connect at once, each is sent all clusters: hundreds of kilobytes, for a
moment, a thousand times. glibc raises its own idea of a large block as such blocks are freed, and
from then on keeps them: 100 to 250 KB more for each idle proxy were seen. With a fixed limit they
go back to the system, which leaves 70 to 90 KB.

Python looks for unreachable cycles after every 700 new objects, which a change to a thousand
streams makes a hundred times over, and there are next to none: messages and snapshots are freed at
their last reference. With 1,000 services and 600 streams that was 100 us of 400 for each stream.
Going through a large mesh, all of which is in use, holds everything up: with 10,000 services 0.2 to
0.5 s were seen. So nothing is searched while something is built, and what a build has added is left
out of searches whenever it made the process larger than it ever was, or made so much that the first
search would hold everything up (23 ms were seen). Cycles that are left out by that are never found.
So where little is new it is searched once before: gRPC leaves a cycle behind at each call. The rest
happens only where thousands of services change at once, and concerns next to nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
import sys
from collections.abc import Iterator

# From glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE = 64 * 1024
"""Bytes from which a block is mapped on its own."""
_TRIM = 1024 * 1024
"""Unused bytes at the end of the heap that are kept."""
_ARENAS = 2
"""Heaps of their own that threads get; Python's lock lets one of them work at a time anyway."""
_COLLECT_AFTER = (20_000, 50, 100)
"""New objects, and collections of each younger kind, before a collection."""
_MANY = 2 * _COLLECT_AFTER[0]
"""New objects that are not searched any more; so many take 5 to 8 ms."""
_NEVER = 1_000_000
_GROWTH = 1.05
"""Times its former size from which a process counts as grown."""


def collect_less() -> None:
    """Look for unreachable cycles more seldom; what has no references is freed at once anyway.

    And, until `settle` is called, among new objects only.
    """
    gc.set_threshold(_COLLECT_AFTER[0], _NEVER, _NEVER)


def settle() -> None:
    """What is there has come to stay: never look for unreachable cycles in it."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


class Undisturbed:
    """Has long work go on without searches, and settles what it has made."""

    def __init__(self) -> None:
        """Nothing was done yet."""
        self._most = 0
        """Blocks of memory that were in use at most."""

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Around a piece of work; for one thread at a time."""
        gc.disable()
        try:
            yield
        finally:
            blocks, young = sys.getallocatedblocks(), gc.get_count()[0]
            if blocks > self._most * _GROWTH or young > _MANY:
                if young <= _COLLECT_AFTER[0]:
                    gc.collect(1)
                self._most = max(self._most, blocks)
                settle()
            gc.enable()


def give_back() -> bool:
    """Have large freed blocks go back to the system; False where the C library is another one."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    wishes = ((_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _TRIM), (_ARENA_MAX, _ARENAS))
    return all(mallopt(option, value) == 1 for option, value in wishes)
