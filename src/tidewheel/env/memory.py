"""Memory: how much there is, how many mappings of files, and what is never given back."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache

_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says what a container may have: new and old."""


@cache
def machine_memory() -> int:
    """Bytes of memory that this process can have at most: the machine's, or its container's."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CONTAINER:
        with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            sizes.append(int(file.read()))
    return min(sizes)


def keep_for_good(thing: object) -> None:
    """Never destroy it, also not when the interpreter ends: what it would do then must not be done."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@cache
def mappings_for_chunks() -> int:
    """Chunks that a process may have mapped: a quarter of what Linux allows for everything in it; elsewhere a number that is plenty."""
    with suppress(OSError, ValueError), open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
        return max(1, int(file.read()) // 4)
    return 16384
