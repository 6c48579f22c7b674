"""Programs of conditions beside what Arrow finds for the same rows: over all types, nulls, NaN, both zeros, ends of types, empty lists.

A failure says its seed; TIDEWHEEL_SEED asks for that one alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tidewheel.model.conditions import Both, Comparison, Condition, Either, HasText, IsNull, Negation, OneOf
from tidewheel.model.kernels import column_slots
from tidewheel.model.pieces import COLUMNS, PERM, ROWS, SLOTS, address_of, column_kind
from tidewheel.read.condition_mask import mask
from tidewheel.read.filters.kernels import keep_where, places_of
from tidewheel.read.filters.program import Program, divided, program_of
from tidewheel.read.filters.step_codes import BLOCK, ROOM
from tidewheel.read.materialise import copy
from tidewheel.testing.values import PREFIX, build, column, one

OPS = ("=", "!=", "<", "<=", ">", ">=")

TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("ms"), pa.decimal128(18, 3), pa.decimal128(5, 0)),
    *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC")),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
]

SEEDS = [int(os.environ["TIDEWHEEL_SEED"])] if "TIDEWHEEL_SEED" in os.environ else range(3000 if SOAK else 150)


def values(type_: pa.DataType, rng: random.Random, n: int) -> pa.Array:
    found = column(type_, rng, n, rng.choice([0.0, 0.25, 1.0, 0.02]))
    if pa.types.is_floating(type_) and rng.random() < 0.7:
        numbers = found.to_pylist()
        for i in range(n):
            if numbers[i] is not None and rng.random() < 0.2:
                numbers[i] = rng.choice([float("nan"), -0.0, 0.0])
        found = pa.array(numbers, type_)
    return found


def some_of(column: pa.Array, rng: random.Random, count: int) -> pa.Array:
    """Constants: values of the column, and others. None of them null."""
    type_ = column.type
    raw = build([one(type_, rng) for _ in range(count)], type_)
    known = column.drop_null()
    picked = [raw[i] if not len(known) or rng.random() < 0.4 else known[rng.randrange(len(known))] for i in range(count)]
    if pa.types.is_floating(type_) and rng.random() < 0.2:
        picked[:1] = [pa.scalar(float("nan"), type_)] * min(count, 1)
    return pa.array(picked, type_) if picked else pa.array([], type_)


def leaf(batch: pa.RecordBatch, rng: random.Random) -> Condition:
    number = rng.randrange(batch.num_columns)
    name, held = batch.schema.names[number], batch.column(number)
    text = pa.types.is_string(held.type) or pa.types.is_large_string(held.type)
    match rng.randrange(10):
        case 0:
            return IsNull(name)
        case 1 | 2:
            return OneOf(name, some_of(held, rng, rng.choice([0, 1, 2, 5, 40])))
        case 3 | 4 | 5 if text:
            given = some_of(held, rng, 1)[0].as_py()
            a, b = sorted((rng.randint(0, len(given)), rng.randint(0, len(given))))
            return HasText(name, rng.choice(["begin", "end", "inside"]), rng.choice([given[a:b], given[:b], given[a:], given, PREFIX[:5]]))
    return Comparison(name, rng.choice(OPS), some_of(held, rng, 1)[0])


def condition_over(batch: pa.RecordBatch, rng: random.Random, depth: int) -> Condition:
    kind = rng.random() if depth else 1.0
    if kind < 0.3:
        return Both(condition_over(batch, rng, depth - 1), condition_over(batch, rng, depth - 1))
    if kind < 0.6:
        return Either(condition_over(batch, rng, depth - 1), condition_over(batch, rng, depth - 1))
    if kind < 0.75:
        return Negation(condition_over(batch, rng, depth - 1))
    return leaf(batch, rng)


def piece_of(batch: pa.RecordBatch, order: np.ndarray | None) -> np.ndarray:
    """The descriptor of a piece with these rows, in this order."""
    kinds, widths = np.array([column_kind(type_) for type_ in batch.schema.types], np.int64).reshape(-1, 2).T.copy()
    row = np.zeros(COLUMNS + SLOTS * batch.num_columns, np.int64)
    capsule = batch.__arrow_c_array__()[1]
    assert column_slots(address_of(capsule, b"arrow_array"), kinds, widths, row[COLUMNS:]) < 0
    row[ROWS] = batch.num_rows
    row[PERM] = 0 if order is None else order.ctypes.data
    return row


def rows_where(program: Program, row: np.ndarray, cuts: list[int]) -> list[int]:
    """What the program finds, block by block."""
    room, places, found = np.full(ROOM, 7, np.uint8), np.full(BLOCK, 9, np.uint32), list[int]()
    for a, b in pairwise(cuts):
        for first in range(a, b, BLOCK):
            count = places_of(row, program.steps, first, min(b - first, BLOCK), room, places)
            found += places[:count].tolist()
    return found


def some_rows(rng: random.Random, types: list[pa.DataType]) -> pa.RecordBatch:
    n = rng.choice([1, 7, 30, 300, 1024, 2500])
    front, back = rng.choice([0, 0, 1, 9]), rng.choice([0, 3])
    batch = pa.record_batch({f"c{i}": values(type_, rng, n + front + back) for i, type_ in enumerate(types)})
    return batch.slice(front, n)


def check(batch: pa.RecordBatch, condition: Condition, rng: random.Random, expected: list[bool | None]) -> None:
    program = program_of(condition, batch.schema)
    assert program is not None
    n = batch.num_rows
    order = np.array(rng.sample(range(n), n), np.uint32) if rng.random() < 0.5 else None
    cuts = sorted({0, n, *(rng.randrange(n) for _ in range(3))})
    wanted = [r for r in (range(n) if order is None else order.tolist()) if expected[r]]
    row = piece_of(batch, order)
    assert rows_where(program, row, cuts) == wanted
    places = range(n) if order is None else order.tolist()
    assert positions_where(program, row, shredded(n, rng)) == [p for p, r in enumerate(places) if expected[r]]


def shredded(n: int, rng: random.Random) -> np.ndarray:
    """Segments of all rows, short and long ones, some of them marked."""
    longest = rng.choice([1, 3, 100, 2000])
    ends = [0]
    while ends[-1] < n:
        ends.append(min(n, ends[-1] + rng.randint(1, rng.choice([1, longest]))))
    return np.array([(0, a, b - a, rng.randrange(2)) for a, b in pairwise(ends)], np.int64)


def positions_where(program: Program, row: np.ndarray, segments: np.ndarray) -> list[int]:
    """What is kept of segments: once with and once without a look at their marks."""
    rows = int(segments[:, 2].sum())
    out = np.empty((rows // 2 + len(segments) + 1, 4), np.int64)
    count, kept = keep_where(row.reshape(1, -1), segments, program.steps, out, 0)
    found = [p for _, a, length, _ in out[:count].tolist() for p in range(a, a + length)]
    assert kept == len(found)
    count, _ = keep_where(row.reshape(1, -1), segments, program.steps, out, 1)
    sure = {p for _, a, length, mark in segments.tolist() for p in range(a, a + length) if not mark}
    marked = [p for _, a, length, _ in out[:count].tolist() for p in range(a, a + length)]
    assert marked == sorted(marked) and set(marked) == sure | set(found)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_find_the_rows_that_arrow_finds(seed: int) -> None:
    rng = random.Random(seed)
    batch = some_rows(rng, rng.choices(TYPES, k=rng.randint(1, 5)))
    for _ in range(8):
        condition = condition_over(batch, rng, rng.choice([0, 1, 2, 4]))
        expected = mask(condition, batch).to_pylist()
        try:
            check(batch, condition, rng, expected)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {condition}") from e


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_type(type_: pa.DataType) -> None:
    rng = random.Random(str(type_))
    for _ in range(25):
        batch = some_rows(rng, [type_])
        given = some_of(batch.column(0), rng, 1)[0]
        for op in OPS:
            for condition in (Comparison("c0", op, given), Negation(Comparison("c0", op, given))):
                check(batch, condition, rng, mask(condition, batch).to_pylist())
        for count in (0, 1, 3, 100):
            listed = OneOf("c0", some_of(batch.column(0), rng, count))
            for condition in (listed, Negation(listed)):
                check(batch, condition, rng, mask(condition, batch).to_pylist())


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 9])
def test_texts_of_one_length(type_: pa.DataType, size: int) -> None:
    """Where all texts of a block have it, and where one has not; lists of short texts, and of others."""
    rng = random.Random(size)
    some = ["".join(rng.choice("ab\0") for _ in range(size)) for _ in range(5)]
    others = ["", "a", "a\0", "b" * 8, "ab" * 5, *(text[:-1] for text in some), *(text + "a" for text in some)]
    for n, odd in ((1, 0), (7, 0), (300, 0), (2500, 0), (2500, 1), (2500, 800)):
        texts = [rng.choice(some) for _ in range(n)]
        for _ in range(odd):
            texts[rng.randrange(n)] = rng.choice(others)
        front = rng.choice([0, 1, 9])
        batch = pa.record_batch({"c0": pa.array(["a"] * front + texts, type_)}).slice(front)
        for given in (*some[:2], *rng.sample(others, 3)):
            wanted = [text == given for text in texts]
            check(batch, Comparison("c0", "=", pa.scalar(given, type_)), rng, wanted)
            check(batch, Comparison("c0", "!=", pa.scalar(given, type_)), rng, [not is_it for is_it in wanted])
        for listed in ([some[0]], [*some[:2], ""], [*some, *others[:3]], [*some[:2], "ab" * 5], [*some, *others]):
            check(batch, OneOf("c0", pa.array(listed, type_)), rng, [text in listed for text in texts])


def test_constants_of_other_types() -> None:
    rng = random.Random(5)
    pairs: list[tuple[pa.DataType, Any]] = [
        (pa.int8(), pa.scalar(300)), (pa.int8(), pa.scalar(-129)), (pa.int8(), pa.scalar(5)), (pa.int32(), pa.scalar(2.5)),
        (pa.int16(), pa.scalar(-3.0)), (pa.float32(), pa.scalar(0.1)), (pa.float32(), pa.scalar(1e300)), (pa.float32(), pa.scalar(-1e300)),
        (pa.float32(), pa.scalar(5e-324)), (pa.float32(), pa.scalar(-5e-324)), (pa.float64(), pa.scalar(3)), (pa.float32(), pa.scalar(3)),
        (pa.timestamp("us"), pa.scalar(1_000_000_007, pa.timestamp("ns"))), (pa.timestamp("s"), pa.scalar(-7, pa.timestamp("ms"))),
        (pa.float64(), pa.scalar(float("inf"))), (pa.float64(), pa.scalar(float("-inf"))), (pa.float32(), pa.scalar(float("nan"))),
        (pa.uint8(), pa.scalar(-1)), (pa.uint32(), pa.scalar(1 << 40)),
    ]  # fmt: skip
    for type_, given in pairs:
        for _ in range(5):
            raw = [None if rng.random() < 0.1 else one(type_, rng) for _ in range(200)]
            if pa.types.is_timestamp(type_):
                raw = [None if v is None else v % 2_000_000_000 - 1_000_000_000 for v in raw]
            batch = pa.record_batch({"c0": build(raw, type_)})
            for op in OPS:
                condition = Comparison("c0", op, given)
                check(batch, condition, rng, mask(condition, batch).to_pylist())


def test_what_is_not_for_the_kernels_stays_apart() -> None:
    schema = pa.schema([("a", pa.int32()), ("d", pa.dictionary(pa.int8(), pa.string())), ("w", pa.decimal128(38, 2)), ("n", pa.null())])
    ours = Comparison("a", "<", pa.scalar(3, pa.int32()))
    for other in (
        Comparison("d", "=", pa.scalar("x")), IsNull("d"), IsNull("n"), Comparison("w", "=", pa.scalar(1)),
        Comparison("a", "=", pa.scalar(float("nan"))), OneOf("a", pa.array([1, None], pa.int32())), HasText("a", "begin", "1"),
    ):  # fmt: skip
        assert program_of(other, schema) is None
        assert program_of(Either(ours, other), schema) is None
        program, rest = divided(Both(ours, other), schema)
        assert rest == other and program.reads == ("a",) and len(program.steps) == 1


def test_many_parts() -> None:
    """More than fit into a block's masks, and more steps than a program has."""
    rng = random.Random(3)
    batch = some_rows(rng, [pa.int32(), pa.int32(), pa.string()])
    some = [leaf(batch, rng) for _ in range(40)]
    chain: Condition = some[0]
    for n, one_ in enumerate(some[1:]):
        chain = (Both if n % 2 else Either)(one_, chain)
    check(batch, chain, rng, mask(chain, batch).to_pylist())
    wide = some[0]
    for _ in range(14):
        wide = Either(wide, wide)
    program, rest = divided(Both(wide, some[1]), batch.schema)
    assert rest == wide and len(program.steps) == 1


WORLD_TYPES = {"k": pa.int64(), "p": pa.int32(), "u": pa.uint64(), "v": pa.float64(), "s": pa.string(), "b": pa.bool_()}
WORLD = pa.schema({"ts": pa.timestamp("us"), **WORLD_TYPES})


def world(rng: random.Random, n: int) -> pa.Table:
    floats = [rng.choice([None, float("nan"), -0.0, 0.0, float("inf"), rng.uniform(-5, 5), 1.5]) for _ in range(n)]
    return pa.table(
        [
            pa.array([rng.randrange(10**9) for _ in range(n)], pa.int64()).view(pa.timestamp("us")),
            [rng.randrange(50) for _ in range(n)],
            pa.array([rng.choice([None, rng.randrange(20), -(1 << 31), (1 << 31) - 1]) for _ in range(n)], pa.int32()),
            pa.array([rng.choice([None, rng.randrange(9), (1 << 64) - 1, 1 << 63]) for _ in range(n)], pa.uint64()),
            floats,
            [rng.choice([None, "", "city-1", "city-2", "city-12", "ä"]) for _ in range(n)],
            [rng.choice([None, True, False]) for _ in range(n)],
        ],
        schema=WORLD,
    )


WHERES = [
    "p = 7", "p <> 7", "p < -5 OR p > 15", "p IN (1, 2, 3, 19)", "p NOT IN (1, 2)", "u > 100", "v > 1e0", "v <= 1.5", "v = 0",
    "NOT (v < 0)", "s = 'city-1'",
    "s >= 'city-1' AND s < 'city-2'", "s IN ('city-12', 'ä')", "s <> ''", "s IS NULL", "p IS NOT NULL AND v IS NULL",
    "p BETWEEN 3 AND 9 AND k < 25", "k = 7 AND p > 2", "s LIKE 'city%' AND p < 10", "length(s) > 5 AND p = 3", "p + 1 = 8 AND v > 0", "b",
    "(p = 3 OR s = 'ä') AND NOT (u < 5 AND v > 0)", "p = 3 AND p > 4", "p >= 2 AND p <= 6 AND p <> 4",
    "s LIKE 'city-1%'", "s NOT LIKE '%2'", "s LIKE '%ty%'", "s LIKE 'ä'", "s LIKE ''", "s LIKE '%'", "s NOT LIKE '%%'", "s LIKE 'c_ty%'",
    "s LIKE 'c%1'", "starts_with(s, 'city-1') AND p = 3", "prefix(s, '')", "s ^@ 'ä'", "NOT contains(s, '-')", "suffix(s, '2')",
    "ends_with(s, '-1') OR v IS NULL", "s LIKE '\\%'", "s LIKE 'city\\%' ESCAPE '\\'",
]  # fmt: skip


Doors = tuple[tw.Warehouse, duckdb.DuckDBPyConnection]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Doors]:
    """Half of its rows in chunks, half in memory; and the same rows in DuckDB."""
    rng = random.Random(11)
    rows = [world(rng, 3000), world(rng, 3000)]
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=64, zero_copy_rows=128)) as wh:
        made = wh.create_table("t", WORLD, time="ts", key="k")
        made.insert(rows[0])
        made.flush()
        made.insert(rows[1])
        with duckdb.connect() as con:
            con.register("given", pa.concat_tables(rows))
            con.execute("CREATE TABLE t AS SELECT * FROM given")
            yield wh, con


def test_conditions_of_every_door(table: Doors) -> None:
    wh, con = table
    for where in WHERES:
        try:
            same_as_duckdb(wh, con, where)
        except AssertionError as e:
            raise AssertionError(where) from e


def same_as_duckdb(wh: tw.Warehouse, con: duckdb.DuckDBPyConnection, where: str) -> None:
    totals = {"n": "count(*)", "c": "count(v)", "s": "sum(p)", "lo": "min(p)", "hi": "max(s)", "t": "min(ts)", "u": "sum(u)"}
    asked = ", ".join(f"{one} AS {name}" for name, one in totals.items())
    expected = con.execute(f"SELECT {asked} FROM t WHERE {where}").fetchall()
    assert wh.sql(f"SELECT {asked} FROM t WHERE {where}").fetchall() == expected
    assert wh.table("t").query(where=where, aggregate=totals).fetchall() == expected
    names = "ts, k, p, s"
    rows = sorted(con.execute(f"SELECT {names} FROM t WHERE {where}").fetchall(), key=repr)
    assert sorted(wh.sql(f"SELECT {names} FROM t WHERE {where}").fetchall(), key=repr) == rows
    found = wh.table("t").query(where=where, columns=names.split(", "))
    assert sorted(found.fetchall(), key=repr) == rows
    assert sorted((row for batch in found for row in zip(*batch.to_pydict().values(), strict=True)), key=repr) == rows
    assert len(wh.table("t").query(where=where)) == len(rows)
    assert len(wh.table("t").query(where=where, limit=5).fetchall()) == min(5, len(rows))


def test_totals_with_a_condition_copy_no_row(table: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    wh, con = table
    copied: list[int] = []

    def counted(found: Any, segments: Any, *more: Any) -> pa.RecordBatch:
        copied.append(int(segments[:, 2].sum()))
        return copy(found, segments, *more)

    monkeypatch.setattr("tidewheel.read.rows.copy", counted)
    where = "p < 10 AND s = 'city-1'"
    ((expected,),) = con.execute(f"SELECT count(*) FROM t WHERE {where}").fetchall()
    assert wh.sql(f"SELECT count(*) FROM t WHERE {where}").fetchall() == [(expected,)]
    assert wh.table("t").query(where=where, aggregate={"n": "count(*)", "s": "sum(p)"}).fetchall()[0][0] == expected
    assert not copied
    assert len(wh.table("t").query(where=where, columns=["k"]).fetchall()) == expected
    assert sum(copied) == expected  # of rows, those that are asked for and no others


def test_parameters_of_a_where(table: Doors) -> None:
    wh, con = table
    for where, params in (("p = ? AND s = ?", [7, "city-1"]), ("v > ?", [0.5]), ("p < $most OR b = $b", {"most": 3, "b": True})):
        expected = con.execute(f"SELECT count(*), sum(p) FROM t WHERE {where}", params).fetchall()
        assert wh.table("t").query(where=where, params=params, aggregate={"n": "count(*)", "s": "sum(p)"}).fetchall() == expected
