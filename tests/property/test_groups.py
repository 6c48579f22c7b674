"""Groups that are made where the rows lie are DuckDB's: the same rows, names and types, whatever the keys and the aggregates."""

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
from tidewheel.model.conditions import Comparison, Condition, IsNull, Negation
from tidewheel.model.query import Query
from tidewheel.read.groups import gathering, groups_found, text_marks
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.grouping import Grouping
from tidewheel.testing.probe import Probe

DAY = dt.datetime(2026, 1, 1)
Make = Callable[[random.Random], Any]
UNEVEN = 0.7390851332151607
"""What a number is multiplied by before it is rounded: many that are compared lie half way between two that are round, on either side."""


def _whole(bits: int, signed: bool) -> Make:
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    some = [least, greatest, least + 1, 0, 1, 2, 3, 5, 7]
    return lambda rng: rng.choice(some) if rng.random() < 0.9 else rng.randint(least, greatest)


def _float(rng: random.Random) -> float:
    """Mostly quarters of small numbers: their sums are the same in any order."""
    odd = [math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0] if rng.random() < 0.1 else []
    return rng.choice([*odd, rng.randrange(-10, 10) / 4, rng.randrange(-(2**20), 2**20) / 4])


def _moment(rng: random.Random) -> dt.datetime:
    near = DAY + dt.timedelta(seconds=rng.randrange(-(10**5), 10**5), microseconds=rng.choice([0, 1, 999_999]))
    far = dt.datetime(rng.randrange(1700, 2250), rng.randrange(1, 13), rng.randrange(1, 29), rng.randrange(24), 59, 59, 999_999)
    return near if rng.random() < 0.8 else far


COLUMNS: dict[str, tuple[pa.DataType, Make]] = {
    "i1": (pa.int8(), _whole(8, True)), "i2": (pa.int16(), _whole(16, True)), "i4": (pa.int32(), _whole(32, True)),
    "i8": (pa.int64(), _whole(64, True)), "u1": (pa.uint8(), _whole(8, False)), "u2": (pa.uint16(), _whole(16, False)),
    "u4": (pa.uint32(), _whole(32, False)), "u8": (pa.uint64(), _whole(64, False)), "f4": (pa.float32(), _float),
    "f8": (pa.float64(), _float),
    "s": (pa.string(), lambda rng: rng.choice(["", "a", "ab", "é", "12345678", "123456789", "b" * 20, "b" * 21])),
    "b": (pa.binary(), lambda rng: rng.choice([b"", b"a", b"\xff", b"\0", b"\0" * 9])), "ok": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "d": (pa.date32(), lambda rng: _moment(rng).date()), "t": (pa.timestamp("us"), _moment),
    "ss": (pa.timestamp("s"), lambda rng: _moment(rng).replace(microsecond=0)),
    "ms": (pa.timestamp("ms"), lambda rng: _moment(rng).replace(microsecond=0)), "ns": (pa.timestamp("ns"), _moment),
    "utc": (pa.timestamp("us", "UTC"), _moment),
    "small": (pa.int32(), lambda rng: rng.randrange(-20, 20)),
}  # fmt: skip
SCHEMA = pa.schema(
    [pa.field("k", pa.int64()), pa.field("ts", pa.timestamp("us")), *(pa.field(name, type_) for name, (type_, _) in COLUMNS.items())]
)
NUMBERS = ("k", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "small")
WHOLES = ("k", "i1", "i2", "i4", "i8", "small")
TIMES = ("ts", "d", "t", "ss", "ms", "ns", "utc")
UNITS = ("microsecond", "ms", "second", "minutes", "HOUR", "day", "week", "month", "quarter", "year")
PARTS = (
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "ms",
    "microseconds",
    "quarter",
    "dow",
    "isodow",
    "doy",
    "week",
    "isoyear",
    "yearweek",
)
WIDTHS = ("1 second", "7 minutes", "5 hours", "1 day", "3 days", "1 week", "2 weeks", "1 month", "5 months", "1 year", "100 years")


def _key(rng: random.Random) -> str:
    times, wholes = rng.choice(TIMES), rng.choice(WHOLES)
    return rng.choice(
        [
            rng.choice(["k", "ts", *COLUMNS]),
            rng.choice(["k", "small", *COLUMNS]),
            f"date_trunc('{rng.choice(UNITS)}', {times})",
            f"date_part('{rng.choice(PARTS)}', {times})",
            f"time_bucket(INTERVAL '{rng.choice(WIDTHS)}', {times})",
            f"{wholes} // {rng.randrange(1, 100)}",
            f"{wholes} % {rng.randrange(1, 100)}",
            f"small {rng.choice('+-*')} {rng.randrange(-50, 50)}",
            f"{rng.choice(['small', 'i2', 'u4', 'f8', 'k'])} / {rng.choice(['3', '2.5', '-4'])}",
            f"floor({rng.choice(['small', 'f4', 'f8', 'u2'])})",
            f"floor(small / {rng.randrange(1, 9)})::{rng.choice(['INTEGER', 'BIGINT', 'TINYINT'])}",
            f"small::{rng.choice(['TINYINT', 'BIGINT', 'DOUBLE'])}",
            f"{times}::DATE",
            f"hour({times}) // 6",
            "(f8 * 2.5) + 1",
            "ok::INTEGER",
        ]
    )  # fmt: skip


def _aggregate(rng: random.Random) -> str:
    column = rng.choice(["k", "ts", *COLUMNS])
    number = rng.choice(NUMBERS)
    return rng.choice(
        [
            "count(*)", f"count({column})", f"sum({number})", f"avg({number})", f"min({column})", f"max({column})",
            f"count(DISTINCT {column})",
            f"count(DISTINCT {rng.choice(WHOLES)} % 7)", f"{rng.choice(['bool_and', 'bool_or'])}(ok)", "sum(small)::BIGINT",
            "sum(i4)::DOUBLE",
            f"{rng.choice(['stddev', 'var_pop', 'variance', 'stddev_pop'])}({rng.choice(['small', 'i1', 'u2', 'k', 'u8', 'i8', 'u4'])})",
            f"{rng.choice(['first', 'last'])}({column} ORDER BY ts)", f"{rng.choice(['arg_min', 'arg_max'])}({column}, ts)",
            "sum(small * 3)", "max(hour(t))", "min(f8 / 4)",
        ]
    )  # fmt: skip


def _rows(rng: random.Random, n: int, nulls: float, first: int) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for i in range(n):
        columns["k"].append(rng.randrange(60))
        columns["ts"].append(DAY + dt.timedelta(seconds=rng.randrange(3600), microseconds=first + i))  # each of its own
        for name, (_, make) in COLUMNS.items():
            columns[name].append(None if rng.random() < nulls else make(rng))
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any]]:
    """Tables with no nulls, some, nothing else; in chunks and in memory, in long runs and short ones, with late rows, and with a part that
    was replaced. And an empty one."""
    rng = random.Random(12)
    duck = duckdb.connect()
    duck.execute("SET GLOBAL TimeZone = 'UTC'")
    with tw.open(tmp_path_factory.mktemp("groups") / "wh", settings=tw.Settings(leaf_rows=32)) as wh:
        for name, nulls, n in (("whole", 0.0, 6000), ("holes", 0.3, 1500), ("nulls", 1.0, 60), ("empty", 0.0, 0)):
            table = wh.create_table(name, SCHEMA, time="ts", key="k")
            rows = _rows(rng, n, nulls, 0)
            if n:
                table.insert(rows.slice(0, n // 2))
                table.flush()
                table.insert(rows.slice(n // 2, n // 2 - 20))
                for at in range(n - 20, n, 5):
                    table.insert(rows.slice(at, 5))
            if name == "holes":
                bounds = (DAY + dt.timedelta(seconds=1000), DAY + dt.timedelta(seconds=1300))
                new = _rows(rng, 100, nulls, 700_000)
                table.replace(new.filter(_within(new, bounds)), time=bounds)
                rows = pa.concat_tables([rows.filter(pa.compute.invert(_within(rows, bounds))), new.filter(_within(new, bounds))])
            duck.register(name, rows)
            assert len(table.query()) == rows.num_rows
        yield wh, duck


def _within(rows: pa.Table, bounds: tuple[dt.datetime, dt.datetime]) -> Any:
    lo, hi = (pa.scalar(bound, pa.timestamp("us")) for bound in bounds)
    return pa.compute.and_(pa.compute.greater_equal(rows["ts"], lo), pa.compute.less(rows["ts"], hi))


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


def _plain(value: Any, close: bool) -> Any:
    """A value that is equal to another one if DuckDB calls them the same."""
    if isinstance(value, float):
        return "nan" if value != value else f"{value * UNEVEN:.9e}" if close else value + 0.0
    return value


def _set(table: pa.Table) -> dict[Any, int]:
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        type_ = column.type
        plain = column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(type_) else column.to_pylist()
        columns.append([_plain(value, name.startswith("close")) for value in plain])
    found: dict[Any, int] = {}
    for row in zip(*columns, strict=True):
        found[row] = found.get(row, 0) + 1
    return found


def _assert_same(ours: pa.Table, theirs: pa.Table, said: str) -> None:
    assert ours.schema.equals(theirs.schema), (said, ours.schema, theirs.schema)
    one, other = _set(ours), _set(theirs)
    assert one == other, (said, [row for row in one if row not in other][:3], [row for row in other if row not in one][:3])


def _asked(rng: random.Random) -> tuple[list[str], dict[str, str]]:
    keys = [f"{_key(rng)} AS g{n}" for n in range(rng.choice([0, 1, 1, 1, 1, 2, 2, 3]))]
    texts = [_aggregate(rng) for _ in range(rng.choice([1, 1, 2, 4]))]
    aggregates = {f"{'close' if text[:3] in ('std', 'var') else 'a'}{n}": text for n, text in enumerate(texts)}
    return keys, ({} if keys and rng.random() < 0.15 else aggregates)


def _duck_says(duck: Any, table: str, keys: list[str], aggregates: dict[str, str], where: str) -> pa.Table | None:
    items = [*keys, *(f"{text} AS {name}" for name, text in aggregates.items())]
    said = f"SELECT {', '.join(items)} FROM {table}{where}"
    if keys:
        said += f" GROUP BY {', '.join(str(n + 1) for n in range(len(keys)))}"
    try:
        return duck.sql(said).to_arrow_table()
    except duckdb.Error:
        return None


def _is_ours(result: Any) -> bool:
    return isinstance(result._pipeline._aggregation, Grouping)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_groups_are_duckdbs(filled: tuple[tw.Warehouse, Any], seed: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wh, duck = filled
    rng = random.Random(10 * threads + seed)
    monkeypatch.setattr(gathering, "cores", lambda: threads)
    monkeypatch.setattr(gathering, "SHARED_ROWS", 50)
    ours = 0
    for _ in range(examples(60)):
        keys, aggregates = _asked(rng)
        name = rng.choice(["whole", "holes", "holes", "nulls", "empty"])
        lo, hi = sorted(rng.randrange(-5, 66) for _ in range(2))
        bounds, where = rng.choice(
            [({}, ""), ({}, ""), ({"key": (lo, hi)}, f" WHERE k BETWEEN {lo} AND {hi}"), ({"key": lo}, f" WHERE k = {lo}")]
        )
        said = f"seed {seed}, {threads} threads: {name} {keys} {aggregates} {bounds}"
        theirs = _duck_says(duck, name, keys, aggregates, where)
        if theirs is None:
            with pytest.raises(tw.QueryError):
                wh.table(name).query(aggregate=aggregates or None, group_by=keys or None, **bounds).to_arrow()
            continue
        result = wh.table(name).query(aggregate=aggregates or None, group_by=keys or None, **bounds)
        ours += _is_ours(result)
        _assert_same(result.to_arrow(), theirs, said)
        _assert_same(result.to_arrow(), theirs, f"{said}, read again")
    assert ours > examples(60) // 3


CONDITIONS: list[tuple[Condition, str]] = [
    (Comparison("small", ">", pa.scalar(3, pa.int32())), "small > 3"),
    (Comparison("s", "=", pa.scalar("ab")), "s = 'ab'"),
    (Negation(IsNull("f8")), "f8 IS NOT NULL"),
    (Comparison("f8", "<", pa.scalar(1000.0)), "f8 < 1000"),
    (Comparison("small", "=", pa.scalar(1000, pa.int32())), "small = 1000"),
]


@pytest.mark.parametrize("seed", range(2))
def test_groups_of_the_rows_that_satisfy_a_condition(filled: tuple[tw.Warehouse, Any], seed: int) -> None:
    wh, duck = filled
    rng = random.Random(100 + seed)
    for _ in range(examples(40)):
        keys, aggregates = _asked(rng)
        name = rng.choice(["whole", "holes", "nulls", "empty"])
        condition, where = rng.choice(CONDITIONS)
        theirs = _duck_says(duck, name, keys, aggregates, f" WHERE {where}")
        if theirs is None:
            continue
        query = Query(aggregate=aggregates or None, group_by=keys or None, condition=condition)
        _assert_same(Probe(wh.table(name)).query(query).to_arrow(), theirs, f"seed {seed}: {name} {keys} {aggregates} {where}")


def test_order_and_limit_are_of_the_groups(filled: tuple[tw.Warehouse, Any]) -> None:
    wh, duck = filled
    asked: dict[str, Any] = {"aggregate": {"n": "count(*)", "s": "sum(small)"}, "group_by": ["k"]}
    ours = wh.table("whole").query(**asked, order_by="n desc, k", limit=5).to_pylist()
    said = "SELECT k, count(*) AS n, sum(small) AS s FROM whole GROUP BY k ORDER BY n DESC, k LIMIT 5"
    assert ours == duck.sql(said).to_arrow_table().to_pylist()


@pytest.mark.parametrize("patched", [{}, {"WINDOW_BITS": 7, "WIDEST_BITS": 7}, {"WINDOW_BITS": 3, "WIDEST_BITS": 12}])
def test_windows_are_left_and_tables_grow(
    filled: tuple[tw.Warehouse, Any], monkeypatch: pytest.MonkeyPatch, patched: dict[str, int]
) -> None:
    wh, duck = filled
    for name, value in patched.items():
        monkeypatch.setattr(layout, name, value)
    for key in ("small", "k", "t", "f8", "i8", "u8", "s", "date_trunc('second', ts)"):
        theirs = _duck_says(duck, "holes", [f"{key} AS g"], {"n": "count(*)", "d": "count(DISTINCT t)"}, "")
        assert theirs is not None
        _assert_same(
            wh.table("holes").query(aggregate={"n": "count(*)", "d": "count(DISTINCT t)"}, group_by=[f"{key} AS g"]).to_arrow(), theirs, key
        )


def test_many_groups(tmp_path: Any) -> None:
    n = 60_000
    rng = random.Random(5)
    numbers = [rng.randrange(-(2**62), 2**62) for _ in range(n // 2)] * 2
    rows = pa.table(
        {"k": range(n), "ts": [DAY] * n, "x": numbers, "s": [f"text {v}" for v in numbers], "y": [1] * n},
        schema=pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.int64()), ("s", pa.string()), ("y", pa.int32())]),
    )
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", rows.schema, time="ts", key="k")
        table.insert(rows)
        for keys in (["x"], ["s"], ["x", "s"]):
            result = table.query(aggregate={"n": "sum(y)", "d": "count(DISTINCT k)"}, group_by=keys)
            assert _is_ours(result)
            found = result.to_arrow()
            assert found.num_rows == n // 2 and set(found["n"].to_pylist()) == set(found["d"].to_pylist()) == {2}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("first", "most"), [(64, 1 << 24), (1, 1 << 24), (1, 1 << 18), (1, 1 << 12)])
def test_different_texts_are_counted(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, first: int, most: int, threads: int) -> None:
    """By marks that have room, that grow, and that are given up: when the two parts are joined, and before."""
    monkeypatch.setattr(text_marks, "_FIRST", first)
    monkeypatch.setattr(text_marks, "MOST", most)
    monkeypatch.setattr(gathering, "cores", lambda: threads)
    monkeypatch.setattr(gathering, "SHARED_ROWS", 50)
    monkeypatch.setattr(gathering, "MOST_ROWS", 4096)
    n, rng = 30_000, random.Random(first + most)
    texts = [None if rng.random() < 0.1 else f"text {i // 20 + rng.randrange(40)}" for i in range(n)]
    rows = pa.table(
        {
            "k": range(n), "ts": [DAY] * n, "g": [rng.randrange(1 + i // 200) for i in range(n)], "s": texts,
            "b": [rng.choice([b"", b"a", b"ab", None]) for _ in range(n)],
        },
        schema=pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("g", pa.int32()), ("s", pa.string()), ("b", pa.binary())]),
    )  # fmt: skip
    asked = {"d": "count(DISTINCT s)", "e": "count(DISTINCT b)", "f": "count(DISTINCT k % 100)", "n": "count(s)"}
    duck = duckdb.connect()
    duck.register("t", rows)
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", rows.schema, time="ts", key="k")
        table.insert(rows.slice(0, n // 3))
        table.flush()
        table.insert(rows.slice(n // 3))
        for keys in ([], ["g"], ["s"], ["g", "b"]):
            result = table.query(aggregate=asked, group_by=keys or None)
            assert _is_ours(result)
            theirs = _duck_says(duck, "t", keys, asked, "")
            assert theirs is not None
            _assert_same(result.to_arrow(), theirs, f"{keys} {first} {most} {threads}")


def _refused(*_: Any) -> None:
    raise AssertionError("these groups are not for DuckDB")


def test_what_is_too_much_or_not_sure_is_done_by_duckdb(filled: tuple[tw.Warehouse, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wh, duck = filled
    asked = {"aggregate": {"n": "count(*)"}, "group_by": ["t AS g"]}
    theirs = _duck_says(duck, "whole", ["t AS g"], {"n": "count(*)"}, "")
    assert theirs is not None
    with monkeypatch.context() as patched:
        patched.setattr(gathering, "Aggregation", _refused)
        _assert_same(wh.table("whole").query(**asked).to_arrow(), theirs, "ours")
        patched.setattr(groups_found, "MOST", 4096)
        with pytest.raises(AssertionError, match="not for DuckDB"):
            wh.table("whole").query(**asked).to_arrow()
        with pytest.raises(AssertionError, match="not for DuckDB"):
            wh.table("whole").query(**asked, max_bytes=100_000).to_arrow()
        with pytest.raises(AssertionError, match="not for DuckDB"):  # it may be too large for an INTEGER
            wh.table("whole").query(aggregate={"n": "count(*)"}, group_by=["i4 * 2 AS g"]).to_arrow()
    monkeypatch.setattr(groups_found, "MOST", 4096)
    _assert_same(wh.table("whole").query(**asked).to_arrow(), theirs, "DuckDB's")
    with pytest.raises(tw.QueryError, match="[Oo]verflow"):
        wh.table("whole").query(aggregate={"n": "count(*)"}, group_by=["i4 * 2 AS g"]).to_arrow()


def test_groups_have_limits_and_end_when_they_are_cancelled(filled: tuple[tw.Warehouse, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wh, _ = filled
    asked: dict[str, Any] = {"aggregate": {"n": "count(*)"}, "group_by": ["small"]}
    with pytest.raises(tw.LimitError, match="timeout"):
        wh.table("whole").query(**asked, timeout=0).to_arrow()
    with pytest.raises(tw.LimitError, match="max_rows"):
        wh.table("whole").query(**asked, max_rows=3).to_arrow()
    result = wh.table("whole").query(**asked)
    monkeypatch.setattr(gathering, "MOST_ROWS", 100)
    parts, plain = 0, gathering.parts_of

    def some(*given: Any, **named: Any) -> Iterator[Any]:
        nonlocal parts
        for part in plain(*given, **named):
            parts += 1
            result.cancel()
            yield part

    monkeypatch.setattr(gathering, "parts_of", some)
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    assert parts == 1
