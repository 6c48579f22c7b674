"""The checksums of a column's blocks (docs/chunk-format.md, Checksums): what they are made of is found once for all blocks."""

from __future__ import annotations

import pyarrow as pa
import xxhash

from tidewheel.model.pieces import BITS, BLOCK_ROWS, FIXED, OTHER, column_kind

_NOTHING = memoryview(b"")


class Blocks:
    """The bytes of a column that starts at offset 0, as it does in a chunk. It holds on to the memory that they lie in.

    Never fails, whatever the bytes are: what lies outside of a buffer is left out, and makes another checksum.
    """

    __slots__ = ("_data", "_other", "_rows", "_validity", "_values", "_width", "kind")

    def __init__(self, array: pa.Array) -> None:
        self.kind, self._width = column_kind(array.type)
        self._rows = len(array)
        self._other = array if self.kind == OTHER else None
        buffers: list[pa.Buffer | None] = [] if self.kind == OTHER else array.buffers()
        validity, values, data = [*buffers, None, None, None][:3]
        self._validity = _bytes(validity) if self.kind != OTHER and array.null_count else None
        self._values, self._data = _bytes(values), _bytes(data)

    def checksum(self, block: int) -> int:
        """xxh3 of one block: its validity, if the column has nulls, its values, the bytes of its texts, each seeded by the one before."""
        lo = block * BLOCK_ROWS
        hi = min(lo + BLOCK_ROWS, self._rows)
        values, width, digest = self._values, self._width, 0
        if self.kind == OTHER:
            return xxhash.xxh3_64_intdigest(_serialised(self._other)) if block == 0 else 0
        if self._validity is not None:
            digest = xxhash.xxh3_64_intdigest(self._validity[lo // 8 : (hi + 7) // 8], digest)
        if self.kind == BITS:
            return xxhash.xxh3_64_intdigest(values[lo // 8 : (hi + 7) // 8], digest)
        if self.kind == FIXED:
            return xxhash.xxh3_64_intdigest(values[lo * width : hi * width], digest)
        digest = xxhash.xxh3_64_intdigest(values[lo * width : (hi + 1) * width], digest)
        first = int.from_bytes(values[lo * width : (lo + 1) * width], "little", signed=True)
        last = int.from_bytes(values[hi * width : (hi + 1) * width], "little", signed=True)
        if 0 <= first < last <= len(self._data):
            digest = xxhash.xxh3_64_intdigest(self._data[first:last], digest)
        return digest


def _bytes(buffer: pa.Buffer | None) -> memoryview:
    return _NOTHING if buffer is None else memoryview(buffer)


def _serialised(array: pa.Array) -> pa.Buffer:
    """A column as Arrow would send it: the same bytes before writing and after reading."""
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()
