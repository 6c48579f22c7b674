"""Conditions on columns of all types that are decided without DuckDB: as DuckDB decides them, in statements and in where=."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left
from tidewheel.sql.direct_result import DirectResult

DAY = dt.datetime(2026, 1, 1)
SCHEMA = pa.schema(
    [
        ("k", pa.int64()), ("ts", pa.timestamp("ns")), ("f4", pa.float32()), ("ok", pa.bool_()), ("u8", pa.uint64()),
        ("d", pa.decimal128(10, 2)), ("d38", pa.decimal128(38, 2)), ("tod", pa.time64("us")), ("s", pa.timestamp("s")),
        ("ms", pa.timestamp("ms")), ("t", pa.string()), ("lt", pa.large_string()), ("i4", pa.int32()),
    ]
)  # fmt: skip


def _row(rng: random.Random) -> dict[str, Any]:
    values = {
        "f4": rng.choice([0.1, 1.5, float("nan"), -0.0, 0.0, 2.0**24, rng.random()]), "ok": rng.random() < 0.5,
        "u8": rng.choice([0, 5, 2**64 - 1, 2**63]), "d": Decimal(rng.randrange(-500, 500)) / 100, "d38": Decimal(rng.randrange(-5, 5)),
        "tod": dt.time(rng.randrange(24), rng.randrange(60)), "s": DAY + dt.timedelta(seconds=rng.randrange(9)),
        "ms": DAY + dt.timedelta(milliseconds=rng.choice([0, 500, 1000, 1500, rng.randrange(2000)])), "t": rng.choice("abc"),
        "lt": rng.choice("abc"), "i4": rng.randrange(-9, 9),
    }  # fmt: skip
    at = DAY + dt.timedelta(milliseconds=rng.choice([3_600_000, rng.randrange(10**7)]))
    return {"k": rng.randrange(20), "ts": at} | {name: None if rng.random() < 0.1 else value for name, value in values.items()}


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any]]:
    rng = random.Random(5)
    rows = pa.Table.from_pylist([_row(rng) for _ in range(2000)], SCHEMA)
    with tw.open(tmp_path_factory.mktemp("types") / "wh") as wh, duckdb.connect() as duck:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows.slice(0, 1000))
        table.flush()
        table.insert(rows.slice(1000))
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("held", rows)
        duck.execute("CREATE TABLE t AS SELECT * FROM held")
        yield wh, duck


OURS: list[tuple[str, Any]] = [
    *((text, None) for text in (
        "f4 > 1.5", "f4 > 0.1", "f4 = 0.1", "f4 >= 0.1e0", "f4 < 1", "f4 IN (0.1, 1.5)", "f4 IN (1, 0.1e0)", "f4 BETWEEN 0 AND 0.1",
        "f4 = 0", "NOT f4 > 0.3", "f4 >= 16777216", "0.1 < f4", "ok", "NOT ok", "ok = true", "ok <> true", "ok IS TRUE", "ok IS NOT TRUE",
        "ok IS FALSE", "ok IS NOT FALSE", "ok IN (true)", "ok OR t = 'a'", "i4 > 3 AND ok", "u8 > 5", "u8 >= 9223372036854775808",
        "u8 IN (0, 5)", "d > 1", "d > 1.25", "d = 2.50", "d IN (1, 2.5, -0.07)", "d BETWEEN -1 AND 1.5", "d38 > 1", "tod > '12:00'",
        "tod > '12:00:00.5'", "tod = TIME '10:30:00'", "s > '2026-01-01 00:00:05'", "s >= TIMESTAMP '2026-01-01 00:00:05'",
        "s > DATE '2026-01-01'", "ms > '2026-01-01 00:00:00.5'", "ms >= TIMESTAMP '2026-01-01 00:00:01'",
        "ms BETWEEN '2026-01-01' AND TIMESTAMP '2026-01-01 00:00:01.5'", "ts > '2026-01-01 01:00:00'", "ts = '2026-01-01 01:00:00'",
        "ts > '2026-01-01 01:00:00.000000001'", "ts >= TIMESTAMP '2026-01-01 01:00:00'",
        "ts BETWEEN DATE '2026-01-01' AND '2026-01-01 00:30:00'", "lt = 'a'", "lt > 'a'", "lt LIKE 'a%'", "lt IN ('a', 'c')",
        "t IS NOT DISTINCT FROM 'a'", "t IS DISTINCT FROM 'a'", "i4 IS DISTINCT FROM 3",
    )),
    ("f4 > ?", [0.1]), ("f4 > ?", [1]), ("f4 BETWEEN ? AND 1e0", [0.1]), ("ok = ?", [True]), ("u8 >= ?", [2**63]), ("d > ?", [1]),
    ("tod > ?", [dt.time(12)]), ("ts > ?", [DAY + dt.timedelta(hours=1)]), ("s > ?", [DAY + dt.timedelta(seconds=3)]),
    ("ms > ?", [(DAY + dt.timedelta(seconds=1)).replace(tzinfo=dt.UTC)]), ("lt = ?", ["a"]),
]  # fmt: skip

DUCKDBS: list[tuple[str, Any]] = [
    *((text, None) for text in (
        "f4 IN (0.1, 1e0)", "f4 > 0.123456789", "f4 <> 16777217", "ok > false", "u8 > -1", "d >= 1.255", "d > 123456789012", "d38 >= 1.5",
        "d > 1e0", "tod > '24:00:00'", "s > TIMESTAMP '2026-01-01 00:00:05.5'", "s > '2026-01-01 00:00:05.5'",
        "ms > '2026-01-01 00:00:00.0005'", "ts > TIMESTAMP '2026-01-01 01:00:00.000000001'", "t = 5::VARCHAR",
    )),
    ("f4 BETWEEN ? AND 0.1", [0.1]), ("d > ?", [1.5]), ("d > ?", [Decimal("1.25")]), ("s > ?", [DAY + dt.timedelta(seconds=3.5)]),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "values", "ours"), [(*one, True) for one in OURS] + [(*one, False) for one in DUCKDBS])
def test_a_condition_means_what_it_means_to_duckdb(beside: tuple[tw.Warehouse, Any], condition: str, values: Any, ours: bool) -> None:
    wh, duck = beside
    text = f"SELECT t, count(*) AS n, sum(i4) AS s FROM t WHERE {condition} GROUP BY t ORDER BY t"
    result, expected = wh.sql(text, values), duck.sql(text, params=values).fetchall()
    assert result.fetchall() == expected
    assert isinstance(result, DirectResult) == ours
    (plan, *_) = wh.sql(f"EXPLAIN {text}", values).to_pylist()
    assert ("answered   by DuckDB" in plan["explain_value"]) == (not ours)
    assert wh.table("t").query(where=condition, params=values).to_arrow().num_rows == sum(n for _, n, _ in expected)


@pytest.mark.parametrize(
    ("condition", "values"), [("ts > '9999-01-01'", None), ("ts > ?", [DAY.replace(tzinfo=dt.UTC)]), ("ok > 'x'", None)]
)
def test_what_duckdb_refuses_is_refused(beside: tuple[tw.Warehouse, Any], condition: str, values: Any) -> None:
    wh, duck = beside
    text = f"SELECT count(*) FROM t WHERE {condition}"
    with pytest.raises(duckdb.Error):
        duck.sql(text, params=values).fetchall()
    with pytest.raises(tw.QueryError):
        wh.sql(text, values).to_arrow()
