"""Bytes that will be synced start on their way to the disk at once, while others are still made: the sync then has less to wait for.

A hint, and no promise: nothing is safe for it. Where the system has no such call, nothing is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache

_WRITE = 2
"""SYNC_FILE_RANGE_WRITE: begin to write all pages that are not being written, and wait for none."""


def begin_writing_out(descriptor: int) -> None:
    """The whole file behind a descriptor. May be called from any thread."""
    if (call := _sync_file_range()) is not None:
        call(descriptor, 0, 0, _WRITE)


@lru_cache(maxsize=1)
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):  # another C library
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call
