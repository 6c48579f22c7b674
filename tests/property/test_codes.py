"""Codes rise with values, intervals lose nothing, values decide exactly: for every key type, against Python's own order."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tidewheel.errors import CorruptionError, SchemaError
from tidewheel.model.coders import key_coder
from tidewheel.model.codes import ALL, EXACT, TIES
from tidewheel.model.schema import KeyRule, ip, make_spec, zorder
from tidewheel.model.text.division import described, parsed
from tidewheel.model.text_codes import MANY, BytesCoder, text_codes
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.model.zorder_codes import ZOrderCoder
from tidewheel.testing.oracle import OracleTable, plain, value_type
from tidewheel.testing.strategies import KEY, KEY_TYPES, SERIAL, SIGN, TIME, BatchStream, TableCase
from tidewheel.testing.values import build, one

seeds = st.integers(0, 2**32)


def stream(type_: pa.DataType, seed: int, rule: KeyRule | str = KEY) -> BatchStream:
    schema = pa.schema([(SERIAL, pa.int64()), (SIGN, pa.int8()), (TIME, pa.timestamp("us")), (KEY, type_)])
    return BatchStream(TableCase(schema, TIME, rule, "1 hour"), random.Random(seed))


def check(case: TableCase, coder: Any, batch: pa.RecordBatch, bounds: list[tuple[Any, Any]]) -> None:
    oracle = OracleTable(case.schema, case.time, case.key)
    oracle.insert(batch)
    keys = [row.key for row in oracle.rows]
    codes = coder.encode(batch)
    assert codes.dtype == np.int64 and len(codes) == len(keys)
    in_order = sorted(range(len(keys)), key=lambda i: keys[i])
    for a, b in pairwise(in_order):
        assert codes[a] <= codes[b], f"{keys[a]!r} <= {keys[b]!r}, but their codes are {codes[a]} > {codes[b]}"
        if keys[a] == keys[b]:
            assert codes[a] == codes[b], f"{keys[a]!r} == {keys[b]!r}, but their codes are {codes[a]} and {codes[b]}"
    for lo, hi in bounds:
        wanted = [(lo is None or k >= oracle.bound(lo)) and (hi is None or k <= oracle.bound(hi)) for k in keys]
        found = coder.intervals(lo, hi)
        assert list(found.lo) == sorted(found.lo) and (found.lo <= found.hi).all()
        within = np.zeros(len(keys), bool)
        on_end = np.zeros(len(keys), bool)
        for a, b in zip(found.lo, found.hi, strict=True):
            within |= (codes >= a) & (codes <= b)
            on_end |= (codes == a) | (codes == b)
        # values are asked only where codes are not sure
        matches = coder.matches(batch, lo, hi) if found.check != EXACT else None
        for i, want in enumerate(wanted):
            sure = found.check == EXACT or found.check == TIES and not on_end[i]
            what = f"{keys[i]!r} in [{lo!r}, {hi!r}]"
            assert within[i] or not want, f"{what} has code {codes[i]}, which is in no interval of {found}"
            assert want or not (within[i] and sure), f"{what} is false, but the interval {found} is sure of code {codes[i]}"
            if matches is not None and within[i] and not sure:
                assert bool(matches[i]) == want, f"matches() says {matches[i]} to {what}"


@pytest.mark.parametrize("type_", KEY_TYPES, ids=str)
def test_column_keys(type_: pa.DataType) -> None:
    @settings(max_examples=examples(12))
    @given(seed=seeds, rows=st.sampled_from([1, 5, 60]), spare=st.sampled_from([0, 3]))
    def run(seed: int, rows: int, spare: int) -> None:
        source = stream(type_, seed)
        batch = source.batch(rows, spare=spare)
        coder = key_coder(make_spec("t", source.case.schema, time=TIME, key=KEY))
        assert coder.refuse(batch) is None
        bounds = [b if isinstance(b, tuple) else (b, b) for b in (source.key_bounds()["key"] for _ in range(12))]
        check(source.case, coder, batch, bounds)

    run()


@pytest.mark.parametrize("type_", [t for t in KEY_TYPES if "string" in str(t) or "binary" in str(t)], ids=str)
def test_prefixes(type_: pa.DataType) -> None:
    """Under any prefix, values outside it included, codes keep their order."""

    @settings(max_examples=examples(15))
    @given(
        seed=seeds,
        prefix=st.binary(max_size=4) | st.sampled_from([b"https://example.org/a/long", b"prefix--", b"\xff", b"\xff" * 9, b"\x00"]),
        most=st.sampled_from([0, 1, 2, 5]),
    )
    def run(seed: int, prefix: bytes, most: int) -> None:
        source = stream(type_, seed)
        batch = source.batch(40)
        coder = key_coder(make_spec("t", source.case.schema, time=TIME, key=KEY))
        coder = coder.with_prefix(coder.learned([batch.column(KEY)], most) if most else prefix)
        bounds = [b if isinstance(b, tuple) else (b, b) for b in (source.key_bounds()["key"] for _ in range(12))]
        check(source.case, coder, batch, bounds)

    run()


pieces = st.sampled_from(
    [b"", b"\0", b"\0\0\0\0\0\0", b"\xff", b"\xff" * 6, b"a", b"ab", b"dev-A-", b"dev-B-", b"https://a.org/", "Жя".encode(), b"x" * 300]
)
nasty = st.lists(pieces, max_size=5).map(b"".join)
"""Keys of few pieces: they share beginnings, are beginnings of others, end in zeros, are empty."""


@settings(max_examples=examples(150))
@given(keys=st.lists(nasty, min_size=1, max_size=40), others=st.lists(nasty, max_size=20), most=st.integers(1, 4), hot=st.integers(0, 9))
def test_learned_divisions(keys: list[bytes], others: list[bytes], most: int, hot: int) -> None:
    """Whatever keys a coder was learned from: order is kept, also of other keys; codes tell between which keys they lie."""
    keys = keys + keys[:1] * hot
    first = BytesCoder(KEY, pa.binary())
    description = first.learned([pa.array(keys, pa.binary())], most)
    node = parsed(description)
    assert described(node) == description
    coder = first.with_prefix(description, 1)
    everything = sorted({*keys, *others})
    codes = coder.codes(pa.array(everything, pa.binary()))
    assert (codes[1:] >= codes[:-1]).all()
    again = MANY // len(everything) + 1  # so many that another kernel walks the division
    assert (coder.codes(pa.array(everything * again, pa.binary())) == np.tile(codes, again)).all()
    greatest = coder.codes(pa.array(everything, pa.binary()), greatest=True)
    assert (greatest >= codes).all() and (greatest[1:] >= codes[:-1]).all()
    for key, code, last in zip(everything, codes.tolist(), greatest.tolist(), strict=True):
        assert text_codes([first, coder], key)[1] == code
        low, high = coder.keys_of(code)
        assert low <= key and (high is None or key[: len(high)] <= high)
        assert all(code_ <= last for other, code_ in zip(everything, codes.tolist(), strict=True) if other.startswith(key))
    known = dict(zip(everything, codes.tolist(), strict=True))
    sharing: dict[int, list[bytes]] = {}
    for key in keys:
        extreme = key[len(coder.shared) :][:8].ljust(8, b"\0") in (b"\0" * 8, b"\xff" * 8)  # it shares its code with what lies outside
        assert coder.shared == b"" or extreme or known[key] not in (INT64_MIN, INT64_MAX), "a key that it was learned from lies outside"
        assert key.startswith(coder.shared)
        sharing.setdefault(known[key], []).append(key)
    for code, same in sharing.items():
        if len(same) > most:  # then there is one key, but for zeros at its end
            assert len({key.rstrip(b"\0") for key in same}) == 1
            assert coder.tells(code, pa.array(same)) or len(set(same)) > 1 or same[0].endswith(b"\0")


@pytest.mark.parametrize(
    "damage", [b"\x01\x05" + b"\0" * 254, b"\x02" + b"\0" * 255, b"\x01\0\x02bbbbbbaaaaaa" + b"\0" * 256, b"\x01" + b"\xff" * 255]
)
def test_a_damaged_description_is_refused(damage: bytes) -> None:
    coder = BytesCoder(KEY, pa.binary(), damage)
    if damage[1] != 5:
        with pytest.raises(CorruptionError):
            coder.address  # noqa: B018
    else:
        assert coder.shared == b"\0" * 5


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_ip(type_: pa.DataType) -> None:
    @settings(max_examples=examples(15))
    @given(seed=seeds)
    def run(seed: int) -> None:
        source = stream(type_, seed, ip(KEY))
        batch = source.batch(40, spare=1)
        coder = key_coder(make_spec("t", source.case.schema, time=TIME, key=ip(KEY)))
        assert coder.refuse(batch) is None
        check(source.case, coder, batch, [source.key_bounds()["key"] for _ in range(12)])

    run()


@pytest.mark.parametrize(
    "text", ["", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "1.2.3.4 ", "a.b.c.d", "1..2.3", ":::", "1.2.3.-4", "12345::"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    coder = key_coder(make_spec("t", pa.schema([(TIME, pa.timestamp("us")), (KEY, pa.string())]), time=TIME, key=ip(KEY)))
    refused = coder.refuse(pa.record_batch([pa.array(["1.2.3.4", text, "::1"])], [KEY]))
    assert refused is not None and refused[0].tolist() == [False, True, False]


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.float64(), pa.dictionary(pa.int32(), pa.float64())], ids=str)
def test_nan_is_refused(type_: pa.DataType) -> None:
    coder = key_coder(make_spec("t", pa.schema([(TIME, pa.timestamp("us")), (KEY, type_)]), time=TIME, key=KEY))
    refused = coder.refuse(pa.record_batch([build([1.0, float("nan"), -0.0], type_)], [KEY]))
    assert refused is not None and refused[0].tolist() == [False, True, False]


coordinates = st.sampled_from([pa.float64(), pa.float32(), pa.float16(), pa.int8(), pa.int64(), pa.uint64()])
limits = st.sampled_from([(-10.0, 10.0), (0.0, 1.0), (-1e300, 1e300), (0.0, 1e-300), (-(2.0**63), 2.0**63), (39.4, 41.1)])


@settings(max_examples=examples(150))
@given(types=st.lists(coordinates, min_size=2, max_size=4), bounds=limits, seed=seeds)
def test_zorder(types: list[pa.DataType], bounds: tuple[float, float], seed: int) -> None:
    """A box is covered by at most 64 rising, disjoint intervals; the coordinates themselves decide."""
    rng = random.Random(seed)
    names = [f"c{i}" for i in range(len(types))]
    rule = zorder(*names, bounds=(bounds[0],) * len(types) + (bounds[1],) * len(types))
    schema = pa.schema([(SERIAL, pa.int64()), (SIGN, pa.int8()), (TIME, pa.timestamp("us")), *zip(names, types, strict=True)])
    source = BatchStream(TableCase(schema, TIME, rule, "1 hour"), rng)
    batch = source.batch(50, spare=1)
    coder = ZOrderCoder(rule.columns, rule.bounds)
    codes = coder.encode(batch)
    points = list(zip(*(plain(batch.column(n)) for n in names), strict=True))
    for _ in range(10):
        box = source.key_bounds()["box"]
        lo, hi = box[: len(types)], box[len(types) :]
        found = coder.intervals(lo, hi)
        assert len(found.lo) <= 64 and (not len(found.lo) or found.check == ALL)
        assert (found.lo <= found.hi).all() and (found.lo[1:] > found.hi[:-1]).all()
        matches = coder.matches(batch, lo, hi)
        for i, point in enumerate(points):
            want = all((a is None or x >= a) and (b is None or x <= b) for x, a, b in zip(point, lo, hi, strict=True))
            assert not want or ((codes[i] >= found.lo) & (codes[i] <= found.hi)).any(), f"{point} in {box} is in no interval"
            assert bool(matches[i]) == want, f"matches() says {matches[i]} to {point} in {box}"


@settings(max_examples=examples(100))
@given(st.integers(2, 4), st.data())
def test_zorder_intervals_are_tight(dims: int, data: st.DataObject) -> None:
    """In small spaces, the cover of a box is no more than its cells where 64 intervals suffice."""
    from tidewheel.model.kernels import zorder_intervals

    size = 3 if dims == 2 else 2
    cells = [sorted(data.draw(st.tuples(*[st.integers(0, (1 << size) - 1)] * 2))) for _ in range(dims)]
    out = np.empty((2, 64), np.int64)
    n = zorder_intervals(np.array([c[0] for c in cells]), np.array([c[1] for c in cells]), size, out[0], out[1])
    covered = {code for a, b in zip(out[0, :n].tolist(), out[1, :n].tolist(), strict=True) for code in range(a, b + 1)}
    inside = set()
    for code in range(1 << (size * dims)):
        cell = [sum(((code >> (b * dims + d)) & 1) << b for b in range(size)) for d in range(dims)]
        if all(c[0] <= x <= c[1] for x, c in zip(cell, cells, strict=True)):
            inside.add(code)
    assert inside <= covered
    if dims == 2:
        assert inside == covered


ALL_TYPES = (
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.timestamp("s"), pa.time32("s"), pa.time64("us"), pa.duration("s"),
    pa.month_day_nano_interval(), pa.decimal32(7, 2), pa.decimal64(18, 0), pa.decimal128(38, 0), pa.decimal256(76, 20), pa.string(),
    pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3), pa.list_(pa.int64()),
    pa.large_list(pa.int64()), pa.list_(pa.int64(), 2), pa.list_view(pa.int64()), pa.struct([("a", pa.int64())]),
    pa.map_(pa.string(), pa.int64()), pa.dictionary(pa.int32(), pa.string()), pa.run_end_encoded(pa.int32(), pa.int64()),
)  # fmt: skip
"""One of every kind that Arrow has."""


@pytest.mark.parametrize("type_", ALL_TYPES, ids=str)
def test_every_key_type_has_a_case(type_: pa.DataType) -> None:
    """These tests try every kind of type that `create_table` accepts as a key, with values that it holds."""
    try:
        make_spec("t", pa.schema([(TIME, pa.timestamp("us")), (KEY, type_)]), time=TIME, key=KEY)
    except SchemaError:
        assert type_.id not in {known.id for known in KEY_TYPES}
    else:
        assert type_.id in {known.id for known in KEY_TYPES}
        assert build([one(value_type(type_), random.Random(0))], type_).null_count == 0
