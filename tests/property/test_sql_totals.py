"""Plain totals are made without DuckDB: they have its answers, names and types, in statements and in queries."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tests.sql_tables import refused
from tidewheel.read import aggregate
from tidewheel.read.rows import parts_of
from tidewheel.read.totals import folded
from tidewheel.read.totals.parse import read, type_of
from tidewheel.read.totals.sums import _double
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.sql_result import SqlResult

DAY = dt.datetime(2026, 1, 1)
Make = Callable[[random.Random], Any]


def _whole(bits: int, signed: bool) -> Make:
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda rng: rng.choice([least, greatest, least + 1, 0, 1, 7, rng.randint(least, greatest), rng.randint(least, greatest)])


def _float(rng: random.Random) -> float:
    """Mostly quarters of small numbers: their sums are the same in any order."""
    odd = [math.nan, math.inf, -math.inf, -0.0, 0.0] if rng.random() < 0.05 else []
    return rng.choice([*odd, rng.randrange(-1000, 1000) / 4, rng.randrange(-(2**20), 2**20) / 4])


def _moment(rng: random.Random) -> dt.datetime:
    return DAY + dt.timedelta(seconds=rng.randrange(-(10**9), 10**9), microseconds=rng.choice([0, 1, 999_999]))


COLUMNS: dict[str, tuple[pa.DataType, Make]] = {
    "i1": (pa.int8(), _whole(8, True)), "i2": (pa.int16(), _whole(16, True)), "i4": (pa.int32(), _whole(32, True)),
    "i8": (pa.int64(), _whole(64, True)), "u1": (pa.uint8(), _whole(8, False)), "u2": (pa.uint16(), _whole(16, False)),
    "u4": (pa.uint32(), _whole(32, False)), "u8": (pa.uint64(), _whole(64, False)), "f4": (pa.float32(), _float),
    "f8": (pa.float64(), _float), "s": (pa.string(), lambda rng: rng.choice(["", "a", "ab", "B", "é", "\uffff", "\U0001f600", "b" * 20])),
    "b": (pa.binary(), lambda rng: rng.choice([b"", b"a", b"\xff"])), "ok": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "day": (pa.date32(), lambda rng: _moment(rng).date()), "ms": (pa.timestamp("ms"), lambda rng: _moment(rng).replace(microsecond=0)),
    "ns": (pa.timestamp("ns"), _moment), "utc": (pa.timestamp("us", "UTC"), _moment), "select": (pa.int64(), _whole(64, True)),
    "Odd name": (pa.int32(), _whole(32, True)),
}  # fmt: skip
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()), pa.field("ts", pa.timestamp("us")), pa.field("sure", pa.int32(), nullable=False),
        *(pa.field(name, type_) for name, (type_, _) in COLUMNS.items()),
    ]
)  # fmt: skip
FUNCTIONS = ("count", "sum", "min", "max", "avg")


def _rows(rng: random.Random, n: int, nulls: float) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for _ in range(n):
        columns["k"].append(rng.randrange(60))
        columns["ts"].append(DAY + dt.timedelta(seconds=rng.randrange(3600)))
        columns["sure"].append(rng.randrange(-5, 100))
        for name, (_, make) in COLUMNS.items():
            columns[name].append(None if rng.random() < nulls else make(rng))
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any]]:
    """Tables with no nulls, some, nothing else; half in chunks, half in memory, in long runs and short ones. And an empty one."""
    rng = random.Random(11)
    duck = duckdb.connect()
    duck.execute("SET GLOBAL TimeZone = 'UTC'")
    with tw.open(tmp_path_factory.mktemp("totals") / "wh", settings=tw.Settings(leaf_rows=16)) as wh:
        for name, nulls, n in (("whole", 0.0, 2400), ("holes", 0.3, 800), ("nulls", 1.0, 60), ("empty", 0.0, 0)):
            table = wh.create_table(name, SCHEMA, time="ts", key="k")
            rows = _rows(rng, n, nulls)
            if n:
                table.insert(rows.slice(0, n // 2))
                table.flush()
                table.insert(rows.slice(n // 2, n // 2 - 20))
                for at in range(n - 20, n, 5):
                    table.insert(rows.slice(at, 5))
            duck.register(name, rows)
        yield wh, duck


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name != "select" else f'"{name}"'


def _is_number(column: str) -> bool:
    type_ = SCHEMA.field(column).type
    return pa.types.is_integer(type_) or pa.types.is_floating(type_)


def _total(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return rng.choice(["count(*)", "count()", "COUNT( * )", "count(*)::BIGINT"])
    what, column = rng.choice(FUNCTIONS), rng.choice(["k", "ts", "sure", *COLUMNS])
    while what in ("sum", "avg") and not _is_number(column) and rng.random() < 0.95:
        column = rng.choice(["k", "sure", *COLUMNS])
    said = f"{what}({_quoted(column)})"
    if what in ("sum", "count") and rng.random() < 0.25:
        said += rng.choice(["::DOUBLE", "::BIGINT", "::bigint"])
    return said if rng.random() < 0.8 else f"{what.upper()}( {_quoted(column)} )"


def _condition(rng: random.Random) -> str:
    a, b = sorted(rng.randrange(-5, 66) for _ in range(2))
    t0, t1 = sorted(DAY + dt.timedelta(seconds=rng.randrange(-60, 3700)) for _ in range(2))
    return rng.choice(
        [
            f"k BETWEEN {a} AND {b}", f"ts BETWEEN TIMESTAMP '{t0}' AND '{t1}'", f"k = {a}", f"k IN ({a}, {b}, 7)", f"k <> {a}",
            f"(k < {a} OR k > {b})", f"sure >= {a}", f"f8 < {a}.5", f"NOT i4 > {a}", "s = 'a'", "i8 IS NULL", "u8 IS NOT NULL", "k = 1000",
        ]
    )  # fmt: skip


def _statement(rng: random.Random) -> str:
    totals = [_total(rng) + (f" AS {name}" if rng.random() < 0.6 else "") for name in "abcde"[: rng.choice([1, 2, 3, 5])]]
    where = " AND ".join(_condition(rng) for _ in range(rng.choice([0, 1, 1, 2])))
    table = rng.choice(["whole", "holes", "holes", "nulls", "empty"])
    return f"SELECT {', '.join(totals)} FROM {table}" + (f" WHERE {where}" if where else "")


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or one != one and other != other)


def _assert_same(ours: pa.Table, theirs: pa.Table, said: str) -> None:
    assert ours.schema.equals(theirs.schema), (said, ours.schema, theirs.schema)
    for mine, right in zip(ours.columns, theirs.columns, strict=True):
        times = pa.types.is_temporal(mine.type)
        a, b = (one[0].value if times and one[0].is_valid else one[0].as_py() for one in (mine, right))
        assert len(mine) == len(right) == 1 and _same(a, b), (said, ours.to_pylist(), theirs.to_pylist())


def test_statements_have_the_answers_of_duckdb(filled: tuple[tw.Warehouse, Any]) -> None:
    wh, duck = filled
    rng = random.Random(23)
    short = long = 0
    for _ in range(examples(400)):
        said = _statement(rng)
        try:
            theirs = duck.sql(said).to_arrow_table()
        except duckdb.Error:
            with pytest.raises(tw.QueryError):
                wh.sql(said).to_arrow()
            continue
        result = wh.sql(said)
        short, long = short + isinstance(result, DirectResult), long + isinstance(result, SqlResult)
        _assert_same(result.to_arrow(), theirs, said)
        _assert_same(result.to_arrow(), theirs, f"{said}, read again")
        assert len(result) == 1 and (result.stats.rows_returned == 1 or not isinstance(result, DirectResult))
    assert short > 2 * long > 0 and short > examples(200)


def test_the_short_way_is_the_long_way(filled: tuple[tw.Warehouse, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wh, _ = filled
    rng = random.Random(29)
    for _ in range(examples(80)):
        said = _statement(rng)
        with monkeypatch.context() as patched:
            patched.setattr("tidewheel.sql.direct.Prepared.asked", refused)
            try:
                long = wh.sql(said).to_arrow()
            except tw.QueryError:
                continue
        _assert_same(wh.sql(said).to_arrow(), long, said)


@pytest.mark.parametrize("where", [None, "f8 < 100", lambda batch: batch["k"].is_valid()])
def test_queries_have_the_answers_of_duckdb(filled: tuple[tw.Warehouse, Any], where: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wh, _ = filled
    rng = random.Random(31)
    plain = 0
    for _ in range(examples(60)):
        asked = {name: _total(rng) for name in "abcde"[: rng.choice([1, 2, 5])]}
        table = wh.table(rng.choice(["whole", "holes", "nulls", "empty"]))
        bounds: dict[str, Any] = {"key": (rng.randrange(-5, 30), rng.choice([None, 40]))} if rng.random() < 0.7 else {}
        with monkeypatch.context() as patched:
            patched.setattr(aggregate, "_totals", lambda *_: None)
            patched.setattr(aggregate, "grouping_of", lambda *_: None)
            try:
                theirs = table.query(aggregate=asked, where=where, **bounds).to_arrow()
            except tw.QueryError:
                theirs = None
        if theirs is None:
            with pytest.raises(tw.QueryError):
                table.query(aggregate=asked, where=where, **bounds).to_arrow()
            continue
        plain += all((total := read(one, SCHEMA.names)) is not None and type_of(total, SCHEMA) is not None for one in asked.values())
        _assert_same(table.query(aggregate=asked, where=where, **bounds).to_arrow(), theirs, str(asked))
        _assert_same(table.query(aggregate=asked, where=where, order_by="a", limit=3, **bounds).to_arrow(), theirs, f"{asked}, ordered")
    assert plain > 5


def test_floats_are_added_up_but_for_their_order(filled: tuple[tw.Warehouse, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    wh, duck = filled
    rng = random.Random(37)
    rows = pa.table(
        {"k": range(5000), "ts": [DAY] * 5000, "x": [rng.uniform(-1, 1000) for _ in range(5000)]},
        schema=pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64())]),
    )
    table = wh.create_table("floats", rows.schema, time="ts", key="k")
    table.insert(rows.slice(0, 3000))
    table.flush()
    table.insert(rows.slice(3000))
    duck.register("floats", rows)
    said = "SELECT sum(x) AS s, avg(x) AS a FROM floats WHERE k >= 17"
    (ours,), (theirs,) = wh.sql(said).to_pylist(), duck.sql(said).to_arrow_table().to_pylist()
    assert all(math.isclose(ours[name], theirs[name], rel_tol=1e-12) for name in "sa")


def test_sums_beyond_64_bits(filled: tuple[tw.Warehouse, Any]) -> None:
    wh, duck = filled
    said = "SELECT sum(u8) AS s FROM whole"
    total = wh.sql(said).to_pylist()[0]["s"]
    assert total == duck.sql(said).to_arrow_table().to_pylist()[0]["s"] > 2**64
    for asked in (lambda: wh.sql("SELECT sum(u8)::BIGINT FROM whole"), lambda: wh.table("whole").query(aggregate={"s": "sum(u8)::BIGINT"})):
        with pytest.raises(tw.QueryError, match=str(total)):
            asked().to_arrow()


def test_totals_have_limits_and_end_when_they_are_cancelled(filled: tuple[tw.Warehouse, Any]) -> None:
    wh, _ = filled
    said = "SELECT sum(i4) AS s, max(ts) AS t FROM whole WHERE k > 3"
    assert isinstance(wh.sql(said), DirectResult)
    with pytest.raises(tw.LimitError, match="timeout"):
        wh.sql(said, timeout=0).to_arrow()
    with pytest.raises(tw.LimitError, match="more than 0 rows"):
        wh.sql(said, max_rows=0).to_arrow()
    result = wh.sql(said, max_bytes=1000)
    assert result.to_arrow().num_rows == 1 and result.stats.regions_read > 0 and "whole" in result.explain()
    result.cancel()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    result = wh.table("whole").query(aggregate={"s": "sum(i4)"})
    result.cancel()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    assert wh.sql("SELECT statement FROM system.queries WHERE state = 'done' ORDER BY id DESC LIMIT 1").to_pylist() == [{"statement": said}]


def test_totals_are_cancelled_in_the_middle(filled: tuple[tw.Warehouse, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wh, _ = filled
    parts = 0

    def some(*given: Any, **named: Any) -> Iterator[Any]:
        nonlocal parts
        for part in parts_of(*given, **named):
            parts += 1
            result.cancel()
            yield part

    monkeypatch.setattr(folded, "parts_of", some)
    monkeypatch.setattr(folded, "MOST_ROWS", 100)
    for asked in (
        lambda: wh.sql("SELECT sum(i4) AS s FROM whole WHERE k > 3"),
        lambda: wh.table("whole").query(aggregate={"s": "sum(i4)"}),
    ):
        result, parts = asked(), 0
        with pytest.raises(tw.CancelledError):
            result.to_arrow()
        assert parts == 1
    with pytest.raises(tw.LimitError, match="more than 0 rows"):
        wh.table("whole").query(aggregate={"s": "sum(i4)"}, max_rows=0).to_arrow()


def test_no_column_is_read_to_count_what_is_never_null(filled: tuple[tw.Warehouse, Any]) -> None:
    wh, _ = filled
    result = wh.sql("SELECT count(*) AS n, count(sure) AS m FROM whole WHERE k < 30")
    (row,) = result.to_pylist()
    assert row["n"] == row["m"] == len(wh.table("whole").query(key=(None, 29)))
    assert isinstance(result, DirectResult) and [scan.columns for scan in result.scans] == [[]]
    assert [scan.stats.bytes for scan in result.scans] == [0]


def test_sums_become_the_floats_that_duckdb_takes() -> None:
    rng = random.Random(41)
    sums = [rng.choice([1, -1]) * rng.getrandbits(rng.randrange(1, 95)) for _ in range(2000)]
    sums += [sign * (1 << bits) + more for bits in (52, 53, 54, 63, 64, 65) for sign in (1, -1) for more in range(-3, 4)]
    duck = duckdb.connect()
    theirs = duck.execute("SELECT v::HUGEINT::DOUBLE FROM (SELECT unnest(?::VARCHAR[]) AS v)", [[str(one) for one in sums]]).fetchall()
    assert [_double(one) for one in sums] == [one for (one,) in theirs]
