"""What the kernels of texts say, beside Python's own: whether bytes are UTF-8, which texts lie within bounds, and copies of them."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from tidewheel.model.pieces import COLUMNS, DATA, PERM, SLOTS, VALUES
from tidewheel.model.text import division
from tidewheel.model.text.division import parsed, paths
from tidewheel.model.text_codes import BytesCoder
from tidewheel.read.texts.kernels import copy_bytes, copy_ends, within
from tidewheel.write.sound.kernels import is_utf8
from tidewheel.write.soundness import SoundnessCheck

ODD = [b"a", b"\x7f", b"\x80", b"\x8f", b"\x90", b"\x9f", b"\xa0", b"\xbf", b"\xc0", b"\xc1", b"\xc2", b"\xdf", b"\xe0", b"\xec", b"\xed"]
ODD += [b"\xee", b"\xef", b"\xf0", b"\xf1", b"\xf4", b"\xf5", b"\xff"]
GOOD = [text.encode() for text in ("a", "é", "Ж", "日", "\ud7ff", "\ue000", "😀", "\U0010ffff")]


def is_text(given: bytes) -> bool:
    try:
        given.decode()
    except UnicodeDecodeError:
        return False
    return True


def says(given: bytes) -> bool:
    memory = np.frombuffer(given + b"\x80", np.uint8).copy()  # what lies behind does not count
    return bool(is_utf8(memory.ctypes.data, len(given)))


def test_utf8_is_what_python_says_it_is() -> None:
    for size in (0, 1, 2, 3):
        for parts in product(ODD, repeat=size):
            given = b"".join(parts)
            assert says(given) == is_text(given), given
    rng = random.Random(1)
    found = {False: 0, True: 0}
    for _ in range(20_000):
        given = b"".join(rng.choices(ODD + GOOD, [1] * len(ODD) + [20] * len(GOOD), k=rng.randrange(4, 60)))
        found[is_text(given)] += 1
        assert says(given) == is_text(given), given
    assert min(found.values()) > 1000


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
def test_texts_that_are_cut_inside_a_character(type_: pa.DataType) -> None:
    """All bytes together are UTF-8, and yet these are no texts."""
    look = SoundnessCheck(pa.schema([("c", type_)]))
    offset = np.int32 if type_ == pa.string() else np.int64
    for ends, good in [((0, 2, 4, 4), True), ((0, 1, 4, 4), False), ((0, 2, 3, 4), False), ((0, 4, 4, 4), True), ((0, 0, 0, 4), True)]:
        buffers = [None, pa.py_buffer(np.array(ends, offset)), pa.py_buffer("éЖ".encode())]
        column = pa.Array.from_buffers(type_, 3, buffers)
        batch = pa.RecordBatch.from_struct_array(pa.StructArray.from_arrays([column], names=["c"]))
        assert look.is_sound(batch) is good, ends


def test_a_division_that_is_too_large_to_be_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = pa.array([f"{'https://a.org/' if i % 2 else 'http://b.org/'}{'xy'[i % 3 % 2]}/items/{i // 4:05d}/{i}" for i in range(600)])
    coder = BytesCoder("k", pa.string())
    description = coder.learned([keys], 8)
    assert paths(parsed(description)) is not None
    codes = coder.with_prefix(description, 1).codes(keys)
    monkeypatch.setattr(division, "MOST_PATH_BYTES", 100)
    assert paths(parsed(description)) is None
    assert (coder.with_prefix(description, 2).codes(keys) == codes).all() and len(set(codes.tolist())) > 75


def piece(column: pa.Array, order: list[int] | None) -> tuple[np.ndarray, list[object]]:
    """The descriptor of a piece with this column alone, its rows in this order; and what it needs."""
    row = np.zeros(COLUMNS + SLOTS, np.int64)
    _, offsets, data = column.buffers()
    row[COLUMNS + VALUES], row[COLUMNS + DATA] = offsets.address, data.address if data is not None else 0
    numbers = np.array(order if order is not None else [], np.uint32)
    row[PERM] = numbers.ctypes.data if order is not None else 0
    return row, [column, numbers]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()], ids=str)
def test_texts_of_segments(type_: pa.DataType) -> None:
    rng = random.Random(str(type_))
    wide = int(type_ == pa.large_binary())
    for number in range(150):
        keys = rng.sample([b"", b"\0", b"a", b"ab", b"ab\0", b"dev-A-01", b"dev-A-02", b"dev-A-0", b"x" * 20, b"x" * 21, b"\xff" * 9], 4)
        pieces, kept, segments, wanted = [], [], [], []
        for q in range(3):
            many = rng.random() < 0.5  # stretches of one key, as they are in leaves
            texts = [key for key in rng.choices(keys, k=12) for _ in range(rng.randrange(1, 30) if many else 1)]
            order = None if q == 0 else [*range(len(texts))] if q == 1 else rng.sample(range(len(texts)), len(texts))
            row, needed = piece(pa.array(texts, type_), order)
            pieces.append(row)
            kept.append(needed)
            for _ in range(2):
                first = rng.randrange(len(texts))
                length = rng.randrange(len(texts) - first + 1)
                segments.append((q, first, length, 1))
                wanted += [texts[order[i] if order else i] for i in range(first, first + length)]
        matrix, found = np.array(pieces), np.array(segments, np.int64)
        ends = np.empty(len(wanted) + 1, np.int64 if wide else np.int32)
        total = copy_ends(matrix, found, COLUMNS, wide, ends.ctypes.data)
        data = np.empty(total, np.uint8)
        copy_bytes(matrix, found, COLUMNS, wide, data)
        copied = pa.Array.from_buffers(type_, len(wanted), [None, pa.py_buffer(ends), pa.py_buffer(data)])
        assert copied.to_pylist() == wanted
        one = rng.choice(keys)
        for lo, hi in ((one, one), (min(keys), one), (None, one), (one, None), (one + b"\0", one + b"\0"), (None, None)):
            keep = np.empty(len(wanted), np.uint8)
            first, last = (np.frombuffer(bound or b"", np.uint8).copy() for bound in (lo, hi))
            count = within(matrix, found, COLUMNS, wide, first, int(lo is not None), last, int(hi is not None), keep)
            expected = [(lo is None or text >= lo) and (hi is None or text <= hi) for text in wanted]
            assert keep.tolist() == expected and count == sum(expected), (number, lo, hi)
        del kept
