"""Files that can only be read by range: an object store, or any other `pyarrow.fs.FileSystem`.

A request costs a round trip however little it asks for, so ranges that lie close together are read as one, and requests
of one call run side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tidewheel.env.store import Range
from tidewheel.errors import CorruptionError, StorageError

GAP = 64 << 10
"""Bytes between two ranges that are rather read in vain than asked around: about what passes in one round trip's time on
a slow link, and less than a block, so unrelated blocks stay apart."""

THREADS = 8


def coalesce(ranges: Sequence[Range], gap: int) -> list[tuple[int, int, list[int]]]:
    """Requests (offset, size, numbers of the ranges inside) that cover all ranges; empty ranges are in none."""
    requests: list[tuple[int, int, list[int]]] = []
    for number in sorted((i for i in range(len(ranges)) if ranges[i][1]), key=lambda i: ranges[i]):
        offset, size = ranges[number]
        if requests:
            at, length, inside = requests[-1]
            if offset <= at + length + gap:
                requests[-1] = (at, max(length, offset + size - at), [*inside, number])
                continue
        requests.append((offset, size, [number]))
    return requests


class RangeFiles:
    """Files below a root, by their name relative to it. Safe to use from several threads; `close` ends the threads it made.

    Opening a file in an object store is a request of its own (its size is looked up), which is not counted here.
    """

    def __init__(self, filesystem: Any, root: str, gap: int = GAP, threads: int = THREADS) -> None:
        from pyarrow import fs

        self.root = root
        self._filesystem = filesystem
        self._gap = gap
        # files written in Python keep a position that two readers would fight over
        self._threads = 1 if isinstance(filesystem, fs.PyFileSystem) else threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self.requests = 0
        self.bytes = 0

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def size(self, name: str) -> int:
        from pyarrow import fs

        try:
            info = self._filesystem.get_file_info(self.path(name))
        except OSError as e:
            raise StorageError(f"cannot look up {self.path(name)}: {e}") from e
        if info.type == fs.FileType.NotFound:
            raise CorruptionError(f"{self.path(name)} is missing: restore the file from a backup")
        return int(info.size)

    def read_ranges(self, name: str, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of each range. They are views into what was read; keep copies, not views, or neighbours stay in memory."""
        requests = coalesce(ranges, self._gap)
        parts: list[memoryview] = [memoryview(b"")] * len(ranges)
        if not requests:
            return parts
        path = self.path(name)
        try:
            with self._filesystem.open_input_file(path) as file:
                read = list(self._map(lambda request: file.read_at(request[1], request[0]), requests))
        except FileNotFoundError as e:
            raise CorruptionError(f"{path} is missing: restore the file from a backup") from e
        except OSError as e:
            raise StorageError(f"cannot read {path}: {e}") from e
        with self._lock:
            self.requests += len(requests)
            self.bytes += sum(len(data) for data in read)
        for (at, length, inside), data in zip(requests, read, strict=True):
            if len(data) != length:
                raise CorruptionError(f"{path} ends at byte {at + len(data)}, not behind {at + length}: restore the file from a backup")
            whole = memoryview(data)
            for number in inside:
                offset, size = ranges[number]
                parts[number] = whole[offset - at : offset - at + size]
        return parts

    def remove(self, name: str) -> None:
        """Remove a file that nothing points to any more. It may be gone already."""
        try:
            self._filesystem.delete_file(self.path(name))
        except FileNotFoundError:
            return
        except OSError as e:
            raise StorageError(f"cannot remove {self.path(name)}: {e}") from e

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _map(self, read: Any, requests: list[tuple[int, int, list[int]]]) -> Any:
        if len(requests) == 1 or self._threads == 1:
            return map(read, requests)
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "tidewheel-fetch")
            pool = self._pool
        return pool.map(read, requests)
