"""A chunk's file from outside: where the parts of it lie, how to damage them, and whether it is gone."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

BLOCK_ROWS = 1 << 14

PATIENCE = 30.0


def chunks_left(folder: Path, expected: int = 0) -> list[Path]:
    """The chunks' files in it, as soon as they are no more than expected. The file of a chunk that left is deleted when the last version
    that has it is dropped, and a thread that writes or looks after tables may hold one for a moment."""
    give_up = time.monotonic() + PATIENCE
    while len(found := list(folder.rglob("*.arrow"))) > expected and time.monotonic() < give_up:
        time.sleep(0.01)
    return found


class ChunkFile:
    """One chunk, read without Tidewheel before it is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = path.read_bytes()
        whole = pa.py_buffer(self.bytes)
        self.batch = pa.ipc.open_file(whole).get_batch(0)
        self._at = whole.address
        header = json.loads(self.batch.schema.metadata[b"tidewheel.chunk"])
        index = base64.b64decode(self.batch.schema.metadata[b"tidewheel.index"])
        self.rows = self.batch.num_rows
        self.starts = np.frombuffer(index, "<u4", header["leaves"] + 1).astype(np.int64)

    def place(self, column: str, buffer: int, at: int = 0) -> int:
        """Where byte `at` of a column's buffer lies in the file."""
        return self.batch.column(column).buffers()[buffer].address - self._at + at

    def buffers(self, column: str) -> list[tuple[int, int]]:
        """(first byte, size) of every buffer of a column."""
        return [(b.address - self._at, b.size) for b in self.batch.column(column).buffers() if b is not None and b.size]

    @property
    def body(self) -> tuple[int, int]:
        """From the first to the last byte of any column."""
        spans = [s for name in self.batch.schema.names for s in self.buffers(name)]
        return min(at for at, _ in spans), max(at + size for at, size in spans)

    def flip(self, at: int, by: int = 0xFF) -> None:
        """Change one byte of the file."""
        with open(self.path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ by]))

    def lost(self, block: int) -> np.ndarray:
        """Which rows lie in leaves that a block touches."""
        lo, hi = block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, self.rows)
        out = np.zeros(self.rows, bool)
        for a, b in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            out[a:b] = a < hi and b > lo
        return out
