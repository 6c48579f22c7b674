"""The smallest cases of what the property tests found, or a reader of the code suspected."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.model.arrays import unified
from tidewheel.model.pieces import BLOCK_ROWS
from tidewheel.testing.oracle import OracleTable, plain, rows_of, same_rows, value_type
from tidewheel.testing.probe import Probe
from tidewheel.testing.strategies import KEY, KEY_TYPES, PAYLOADS, SERIAL, SIGN, TIME, VIEWS, BatchStream, TableCase
from tidewheel.testing.values import build, limits

TINY = tw.Settings(leaf_rows=4, chunk_bytes=4096, zero_copy_rows=8)


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path, settings=TINY) as warehouse:
        yield warehouse


def times(values: Any, unit: str = "us") -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp(unit))


def case_of(key: pa.DataType, *more: pa.DataType) -> TableCase:
    fields = [(SERIAL, pa.int64()), (SIGN, pa.int8()), (TIME, pa.timestamp("us")), (KEY, key), *((f"p{i}", t) for i, t in enumerate(more))]
    return TableCase(pa.schema(fields), TIME, KEY, "1 hour")


def round_trip(wh: tw.Warehouse, case: TableCase) -> None:
    """Batches, single rows, filters and flushes of one table, all against the oracle."""
    import random

    stream, oracle = BatchStream(case, random.Random(7)), OracleTable(case.schema, case.time, case.key)
    table = wh.create_table("t", case.schema, time=case.time, key=case.key)
    for rows in (30, *[1] * 40, 60):
        batch = stream.batch(rows, spare=rows % 2)
        table.insert(batch)
        oracle.insert(batch)
    for _ in range(2):
        same_rows(table.query().to_arrow(), oracle.query())
        kept = table.query(where=lambda b: b[SERIAL].to_numpy() % 3 == 1)
        same_rows(list(kept), oracle.query(where=lambda r: r[SERIAL] % 3 == 1))
        ordered = rows_of(table.query(order_by=f"{SERIAL} desc", limit=5).to_arrow())
        assert [r[SERIAL] for r in ordered] == sorted((r[SERIAL] for r in oracle.query()), reverse=True)[:5]
        for _ in range(20):
            asked = stream.key_bounds()["key"]
            bounds = asked if isinstance(asked, tuple) else (asked, asked)
            same_rows(table.query(key=asked).to_arrow(), oracle.query(key=bounds))
        table.flush()


@pytest.mark.parametrize("type_", [*PAYLOADS, pa.run_end_encoded(pa.int32(), pa.string())], ids=str)
def test_every_payload(wh: tw.Warehouse, type_: pa.DataType) -> None:
    if pa.types.is_run_end_encoded(type_):
        schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("p", type_)])
        table = wh.create_table("t", schema, time="ts", key="k")
        batch = pa.record_batch(
            [times(range(8)), pa.array([8, 1, 7, 2, 6, 3, 5, 4]), pa.RunEndEncodedArray.from_arrays([3, 8], ["a", "b"], type_)],
            schema=schema,
        )
        table.insert(batch)
        same_rows(table.query(key=(2, 6)).to_arrow(), [r for r in rows_of(batch) if 2 <= r["k"] <= 6])
        table.flush()
        same_rows(table.query(key=(2, 6)).to_arrow(), [r for r in rows_of(batch) if 2 <= r["k"] <= 6])
        return
    round_trip(wh, case_of(pa.int64(), type_))


@pytest.mark.parametrize("type_", KEY_TYPES, ids=str)
def test_every_key(wh: tw.Warehouse, type_: pa.DataType) -> None:
    round_trip(wh, case_of(type_))


@pytest.mark.parametrize("type_", KEY_TYPES, ids=str)
def test_order_by_every_key(wh: tw.Warehouse, type_: pa.DataType) -> None:
    import random

    case = case_of(type_)
    stream, oracle = BatchStream(case, random.Random(3)), OracleTable(case.schema, case.time, case.key)
    table = wh.create_table("t", case.schema, time=case.time, key=case.key)
    batch = stream.batch(50)
    table.insert(batch)
    oracle.insert(batch)
    found = rows_of(table.query(order_by=f"{KEY} desc, {SERIAL}").to_arrow())
    assert [r[SERIAL] for r in found] == [r[SERIAL] for r in oracle.query(order_by=[(KEY, True), (SERIAL, False)])]


def test_a_leaf_cut_by_time_is_read_for_every_interval_of_a_box(wh: tw.Warehouse) -> None:
    """One template leaf holds many z-order keys and is cut by time: each part may lie in other intervals than the part before."""
    schema = pa.schema([("ts", pa.timestamp("us")), ("x", pa.float64()), ("y", pa.float64())])
    table = wh.create_table("t", schema, time="ts", key=tw.zorder("x", "y", bounds=(0.0, 0.0, 1.0, 1.0)))
    # the first batch has one point, so all bounds of the template are alike; then a chunk's only leaf is cut by time
    table.insert(pa.record_batch([times([0]), pa.array([0.0]), pa.array([0.0])], schema=schema))
    n = 64
    x = np.linspace(0, 1, n, endpoint=False)[::-1].copy()
    table.insert(pa.record_batch([times(range(1, n + 1)), pa.array(x), pa.array(x)], schema=schema))
    box = (0.1, 0.1, 0.6, 0.6)  # eighteen intervals
    expected = int(((x >= 0.1) & (x <= 0.6)).sum())
    assert len(table.query(box=box)) == expected
    table.flush()
    assert len(table.query(box=box)) == expected


@pytest.mark.parametrize("type_", [pa.float16(), pa.float32(), pa.int64()], ids=str)
def test_boxes_compare_exactly(wh: tw.Warehouse, type_: pa.DataType) -> None:
    """Coordinates are compared as numbers, not after rounding the box to the column's type."""
    schema = pa.schema([("ts", pa.timestamp("us")), ("x", type_), ("y", pa.float64())])
    table = wh.create_table("t", schema, time="ts", key=tw.zorder("x", "y", bounds=(-1e6, -1e6, 1e6, 1e6)))
    value, bound = (build([0.1], type_)[0].as_py(), 0.1) if pa.types.is_floating(type_) else ((1 << 53) + 1, float(1 << 53))
    table.insert(pa.record_batch([times([0]), build([value], type_), pa.array([0.0])], schema=schema))
    assert len(table.query(box=(None, None, bound, None))) == (value <= bound)
    assert len(table.query(box=(bound, None, None, None))) == (value >= bound)
    assert len(table.query(box=(-1e300, None, 1e300, None))) == 1


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_times_beyond_int64_hold_nothing(wh: tw.Warehouse, unit: str) -> None:
    schema = pa.schema([("ts", pa.timestamp(unit)), ("k", pa.timestamp("ns"))])
    table = wh.create_table("t", schema, time="ts", key="k")
    least, most = limits(pa.int64())
    table.insert(pa.record_batch([times([least, most], unit), times([least, most], "ns")], schema=schema))
    assert len(table.query(time=(2**70, None))) == 0
    assert len(table.query(time=(None, -(2**70)))) == 0
    assert len(table.query(key=(dt.datetime(9999, 1, 1), None))) == 0
    assert len(table.query(key=(None, dt.datetime(1, 1, 1)))) == 0
    if unit == "ns":
        assert len(table.query(time=(dt.datetime(9999, 1, 1), None))) == 0


@pytest.mark.parametrize("type_", [pa.time64("ns"), pa.duration("ns"), pa.duration("s"), pa.time32("ms")], ids=str)
def test_whole_numbers_and_scalars_are_bounds_of_time_like_keys(wh: tw.Warehouse, type_: pa.DataType) -> None:
    case = case_of(type_)
    least, most = limits(type_)
    values = [least, least + 1, 1001, 5, 0, most]
    array = build(values, type_)
    table = wh.create_table("t", case.schema, time=TIME, key=KEY)
    table.insert(pa.record_batch([pa.array(range(6), pa.int64()), pa.nulls(6, pa.int8()), times(range(6)), array], schema=case.schema))
    for i, value in enumerate(values):
        expected = sorted(v for v in values if v >= value)
        assert sorted(plain(table.query(key=(value, None)).to_arrow()[KEY].combine_chunks())) == expected
        assert sorted(plain(table.query(key=(array[i], None)).to_arrow()[KEY].combine_chunks())) == expected


@pytest.mark.parametrize("rows", [100, 1], ids=["batches", "single rows"])
def test_dictionaries_that_outgrow_their_index_type(wh: tw.Warehouse, rows: int) -> None:
    """Every batch fits dictionary<int8>, all of them together do not."""
    type_ = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("p", type_)])
    table = wh.create_table("t", schema, time="ts", key="k")
    oracle = OracleTable(schema, "ts", "k")
    for i in range(300 // rows):
        data = build([f"{i}-{j}" for j in range(rows)], type_)
        batch = pa.record_batch([times(range(rows)), pa.array(range(rows), pa.int64()), data], schema=schema)
        table.insert(batch)
        oracle.insert(batch)
    same_rows(table.query().to_arrow(), oracle.query())
    table.flush()
    same_rows(table.query().to_arrow(), oracle.query())


def test_an_empty_fixed_size_binary_key_does_not_crash(tmp_path: Path) -> None:
    """byte_codes takes width 0 for 'offsets of 32 bits', at address 0."""
    script = f"""
import pyarrow as pa, tidewheel as tw
schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.binary(0))])
with tw.open({str(tmp_path / "wh")!r}) as wh:
    table = wh.create_table("t", schema, time="ts", key="k")
    times = pa.array([1, 2], pa.int64()).view(pa.timestamp("us"))
    table.insert(pa.record_batch([times, pa.array([b"", b""], pa.binary(0))], schema=schema))
    assert len(table.query(key=(b"", b""))) == 2
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ), timeout=60)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"


def test_a_package_is_remembered_when_another_insert_comes_between(tmp_path: Path) -> None:
    """Its generation is the one it was published with, not the one that was next when it was accepted."""
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64())])
    options = tw.Settings(indexing_servers=2)
    with tw.open(tmp_path, settings=options) as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        table.insert(pa.record_batch([times(range(100)), pa.array(range(100))], schema=schema))
        table.flush()
        publisher = Probe(table).publisher
        place = publisher.place

        def slowly(batch: pa.RecordBatch, *more: Any) -> Any:
            publisher.place = place
            table.insert(pa.record_batch([times([200]), pa.array([99])], schema=schema))
            table.flush()
            return place(batch, *more)

        publisher.place = slowly
        table.insert(pa.record_batch([times([200]), pa.array([1])], schema=schema), package="p")
        table.insert(pa.record_batch([times([200]), pa.array([99])], schema=schema))  # the other server's: two trees are sealed
        rows = table.rows
    with tw.open(tmp_path, settings=options) as wh:
        table = wh.table("t")
        assert table.rows == rows
        assert table.insert(pa.record_batch([times([200]), pa.array([1])], schema=schema), package="p").duplicate


def test_many_blocks(wh: tw.Warehouse) -> None:
    """More rows than one checksummed block holds, strings and nulls at block ends included."""
    n = BLOCK_ROWS + 2000
    rng = np.random.default_rng(5)
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("l", pa.list_(pa.int32()))])
    keys, texts = rng.integers(0, 1000, n), [None if i % 7 == 0 else "x" * (i % 5) for i in range(n)]
    flags, lists = [None if i % 3 == 0 else i % 2 == 0 for i in range(n)], [[i] * (i % 3) for i in range(n)]
    batch = pa.record_batch([times(rng.integers(0, 10**6, n)), keys, texts, flags, lists], schema=schema)
    table = wh.create_table("t", schema, time="ts", key="k")
    table.insert(batch)
    table.flush()
    for lo, hi, t0, t1 in ((0, 999, 0, 10**6), (100, 110, 0, 10**6), (5, 5, 1000, 900_000), (0, 999, 500_000, 500_500)):
        mask = (
            (keys >= lo) & (keys <= hi) & (batch["ts"].cast(pa.int64()).to_numpy() >= t0) & (batch["ts"].cast(pa.int64()).to_numpy() <= t1)
        )
        same_rows(table.query(key=(lo, hi), time=(t0, t1)).to_arrow(), rows_of(batch.filter(pa.array(mask))))


@pytest.mark.parametrize("type_", [pa.int64(), pa.dictionary(pa.int16(), pa.string())], ids=str)
def test_keys_are_divided_anew_over_servers(tmp_path: Path, type_: pa.DataType) -> None:
    """The first batch says little about the stream: after 65,536 rows one server has nearly all of them."""
    schema = pa.schema([("ts", pa.timestamp("us")), ("k", type_)])

    def batch(first: int, rows: int) -> pa.RecordBatch:
        keys = [first + i % 1000 for i in range(rows)]
        return pa.record_batch(
            [times(range(rows)), build(keys if type_ == pa.int64() else [f"{k:06}" for k in keys], type_)], schema=schema
        )

    with tw.open(tmp_path, settings=tw.Settings(indexing_servers=2)) as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        table.insert(batch(0, 100))
        before = Probe(table).publisher.placing.dispatch
        for i in range(3):
            table.insert(batch(1000 * (i + 1), 30_000))
        table.flush()
        assert Probe(table).publisher.placing.dispatch is not before
        table.insert(batch(0, 10))
        assert table.rows == len(table.query()) == 90_110
    with tw.open(tmp_path, settings=tw.Settings(indexing_servers=2)) as wh:
        assert wh.table("t").rows == 90_110


def test_views_are_key_types() -> None:
    assert all(value_type(v) in KEY_TYPES for v in VIEWS[:2])


def test_joining_rows_leaves_the_callers_batch_as_it_is() -> None:
    """Arrow unifies dictionaries that lie deep by changing its input, which another thread may be reading: that was a crash."""
    type_ = pa.list_(pa.struct([("y", pa.dictionary(pa.int32(), pa.string()))]))
    parts = [pa.array([[{"y": text}]], type_) for text in "ab"]
    joined = unified(pa.chunked_array(parts, type_))
    assert joined.to_pylist() == [[{"y": "a"}], [{"y": "b"}]]
    again = [pa.Array._import_from_c_capsule(*part.__arrow_c_array__()) for part in parts]
    assert [part.values.field(0).dictionary.to_pylist() for part in again] == [["a"], ["b"]]
    assert joined.chunk(0).values.field(0).dictionary.to_pylist() == ["a", "b"]
