"""Arrow data that is not what it claims to be: single faults by name, and random ones by seed.

Arrow checks much when arrays are made and nothing when their memory changes later, so the faults are made behind its back: an array over
memory of ours is made good, and then the memory is changed. Bytes of an IPC stream are changed before they are read, too: that also
changes lengths, types and schemas.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa

ODD = [0, 1, -1, 2, 7, 8, 127, 255, 1000, 1 << 20, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63)]
"""Numbers that lengths and offsets do not expect."""


def _bytes(data: bytes) -> pa.Buffer:
    return pa.py_buffer(data)


def _text(type_: pa.DataType, offsets: list[int], wrong: list[int], data: bytes = b"abcdef") -> pa.Array:
    memory = np.array(offsets, np.int64 if pa.types.is_large_string(type_) else np.int32)
    array = pa.Array.from_buffers(type_, len(offsets) - 1, [None, pa.py_buffer(memory), _bytes(data)])
    memory[:] = wrong
    return array


def _indices(wrong: list[int]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(wrong, pa.int32()), pa.array(["a", "b"]), safe=False)


def _view(wrong: list[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.string_view(), 3, [None, pa.py_buffer(np.array(wrong * 3, np.int32)), _bytes(b"x" * 10)])


def _lists(wrong: list[int]) -> pa.Array:
    memory = np.array([0, 1, 2, 3], np.int32)
    array = pa.Array.from_buffers(pa.list_(pa.int32()), 3, [None, pa.py_buffer(memory)], children=[pa.array([1, 2, 3], pa.int32())])
    memory[:] = wrong
    return array


def _runs(wrong: list[int]) -> pa.Array:
    memory = np.array([1, 2, 3], np.int32)
    ends = pa.Array.from_buffers(pa.int32(), 3, [None, pa.py_buffer(memory)])
    array = pa.RunEndEncodedArray.from_arrays(ends, pa.array([1, 2, 3], pa.int64()))
    memory[:] = wrong
    return array


def _views_of_lists(offsets: list[int], sizes: list[int]) -> pa.Array:
    return pa.ListViewArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(sizes, pa.int32()), pa.array([1, 2, 3], pa.int32()))


def _deep() -> pa.Array:
    """A dictionary inside a struct inside a list."""
    inner = pa.StructArray.from_arrays([_indices([0, 7_000_000, 1])], ["d"])
    return pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), inner)


def _nulls() -> pa.Array:
    """A count of nulls that its bits do not have."""
    memory = np.array([0b101], np.uint8)
    array = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(memory), _bytes(bytes(24))])
    assert array.null_count == 1
    memory[:] = 0
    return array


FAULTS: dict[str, Callable[[], pa.Array]] = {
    "offsets past the data": lambda: _text(pa.string(), [0, 2, 4, 6], [0, 2, 4, 9000]),
    "offsets far past the data": lambda: _text(pa.string(), [0, 2, 4, 6], [0, 2, 4, 2**31 - 1]),
    "an offset past the data in the middle": lambda: _text(pa.string(), [0, 2, 4, 6], [0, 2**30, 4, 6]),
    "offsets that decrease": lambda: _text(pa.string(), [0, 2, 4, 6], [0, 5, 1, 6]),
    "negative offsets": lambda: _text(pa.string(), [0, 2, 4, 6], [-4096, 2, 4, 6]),
    "wide offsets past the data": lambda: _text(pa.large_string(), [0, 2, 4, 6], [0, 2, 4, 2**40]),
    "an index past the dictionary": lambda: _indices([0, 1, 99_999_999]),
    "a negative index": lambda: _indices([0, 1, -5]),
    "an index past a dictionary deep inside": _deep,
    "a view of no buffer": lambda: _view([50, 0, 7, 0]),
    "a view past its buffer": lambda: _view([50, 0, 0, 1_000_000]),
    "a view of negative length": lambda: _view([-50, 0, 0, 0]),
    "lists past their values": lambda: _lists([0, 1, 2, 30_000_000]),
    "lists that decrease": lambda: _lists([0, 3, 1, 3]),
    "views of lists past their values": lambda: _views_of_lists([0, 500, 1], [1, 70_000_000, 1]),
    "runs that decrease": lambda: _runs([3, 1, 2]),
    "runs that end early": lambda: _runs([1, 1, 1]),
    "a type that a union does not have": lambda: pa.UnionArray.from_sparse(pa.array([0, 9, 0], pa.int8()), [pa.array([1, 2, 3])]),
    "a place that a union does not have": lambda: pa.UnionArray.from_dense(
        pa.array([0, 0, 0], pa.int8()), pa.array([0, 1, 90_000_000], pa.int32()), [pa.array([1, 2, 3])]
    ),
    "a wrong count of nulls": _nulls,
    "negative start": lambda: pa.Array.from_buffers(pa.int64(), 3, [None, _bytes(bytes(80))], offset=-2),
    "a day that is none": lambda: pa.array([0, 5, 0], pa.int64()).view(pa.date64()),
    "a time of no day": lambda: pa.array([0, -5, 0], pa.int64()).view(pa.time64("us")),
    "a decimal that is too large": lambda: pa.Array.from_buffers(pa.decimal128(3, 1), 3, [None, _bytes(b"\x7f" * 48)]),
    "text that is not UTF-8, in a dictionary deep inside": lambda: pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()),
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array([b"\xff"]).view(pa.string())),
    ),
}  # fmt: skip
"""Columns of three rows."""


def ipc(batch: pa.RecordBatch, compression: str | None = None) -> bytearray:
    """A batch as an IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as out:
        out.write_batch(batch)
    return bytearray(sink.getvalue().to_pybytes())


def mutate(data: bytearray, rng: random.Random, resize: bool = True) -> None:
    """Change some bytes, or numbers, and with `resize` also where things are."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        match rng.choice(["byte", "int", "long", "cut", "gap"] if resize else ["byte", "int", "long"]):
            case "byte":
                data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            case "int" if len(data) >= 8:
                struct.pack_into("<I", data, rng.randrange(0, len(data) - 4) // 4 * 4, rng.choice(ODD) % 2**32)
            case "long" if len(data) >= 16:
                struct.pack_into("<Q", data, rng.randrange(0, len(data) - 8) // 8 * 8, rng.choice(ODD) % 2**64)
            case "cut" if len(data) > 1:
                del data[rng.randrange(1, len(data)) :]
            case "gap":
                at = rng.randrange(len(data))
                data[at:at] = bytes(rng.choice([1, 8]))


def poisoned(batch: pa.RecordBatch, rng: random.Random) -> list[pa.RecordBatch]:
    """The batch with other bytes in its buffers, behind Arrow's back. Often they are good all the same."""
    data = ipc(batch)
    found = list(pa.ipc.open_stream(pa.py_buffer(data)))
    mutate(data, rng, resize=False)
    return found


def reread(batch: pa.RecordBatch, rng: random.Random) -> list[pa.RecordBatch]:
    """The batch as a reader makes it of changed bytes; nothing if that cannot be read at all."""
    data = ipc(batch, rng.choice([None, None, None, "lz4", "zstd"]))
    mutate(data, rng)
    try:
        return list(pa.ipc.open_stream(pa.py_buffer(bytes(data))))
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return []


def is_good(batch: pa.RecordBatch) -> bool:
    """What Arrow itself says after the closest look."""
    try:
        batch.validate(full=True)
    except pa.ArrowException:
        return False
    return True
