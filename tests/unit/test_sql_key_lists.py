"""A list of keys in a statement that is one query: rows are found by the list itself, whatever kind of key it is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.sql.direct_result import DirectResult

START = dt.datetime(2026, 1, 1)
KEYS: dict[str, tuple[pa.DataType, list[Any], list[str]]] = {
    "text": (pa.string(), ["", "a", "a\0", "ab", "host_1", "host_12", "host_123456789012", "host_123456789013", "ö"],
             ["'a'", "'host_12'", "'host_123456789013'", "'ö'", "''", "'none'", "'a'"]),
    "binary": (pa.binary(), [b"", b"a", b"a\0", b"ab", b"host_123456789012", b"host_123456789013", b"\xff"],
               ["'a'::BLOB", "'host_123456789013'::BLOB", "'none'::BLOB"]),
    "number": (pa.int64(), [-5, 0, 3, 4, 9, 1 << 62], ["3", "9", "9", "-5", "77", str(1 << 62)]),
    "small": (pa.uint8(), [0, 3, 4, 255], ["3", "255", "0", "-1", "300"]),
    "decimal": (pa.decimal128(9, 2), [Decimal(n) / 100 for n in (-150, 0, 1, 250, 251)], ["2.5", "2.51", "-1.50", "7", "2.505"]),
    "float": (pa.float64(), [-1.5, -0.0, 0.0, 2.25, 3.0], ["0.0", "2.25", "3", "8.5"]),
    "moment": (pa.timestamp("s"), [START, START + dt.timedelta(seconds=1), START + dt.timedelta(days=1)],
               ["TIMESTAMP '2026-01-01 00:00:01'", "TIMESTAMP '2026-01-02'", "TIMESTAMP '2026-01-01 00:00:01.5'"]),
    "day": (pa.date32(), [dt.date(2026, 1, day) for day in (1, 2, 3, 9)], ["DATE '2026-01-02'", "DATE '2026-01-09'", "DATE '2030-01-01'"]),
    "yes": (pa.bool_(), [False, True], ["true", "false"]),
}  # fmt: skip
TAKEN = ("text", "number")
"""Keys whose lists leave nothing to be asked of rows."""
MORE = ("", " AND ts >= TIMESTAMP '2026-01-01 00:01:00' AND ts < TIMESTAMP '2026-01-01 00:03:30'", " AND v > 40", " OR v = 5")
ASKED = (
    "SELECT date_trunc('minute', ts) AS m, count(*) AS n, max(v) AS v FROM t WHERE {} GROUP BY m ORDER BY m",
    "SELECT k, count(*) AS n, sum(v) AS v FROM t WHERE {} GROUP BY k ORDER BY k",
    "SELECT k, ts, v FROM t WHERE {} ORDER BY v DESC LIMIT 12",
    "SELECT k, ts, v FROM t WHERE {} ORDER BY v OFFSET 3",
    "SELECT DISTINCT ON (k) k, ts, v FROM t WHERE {} ORDER BY k, ts DESC",
    "SELECT count(*) AS n, min(v) AS a FROM t WHERE {}",
)


@pytest.fixture(scope="module", params=list(KEYS))
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any, str]]:
    type_, values, _ = KEYS[request.param]
    schema = pa.schema([pa.field("k", type_, nullable=False), pa.field("ts", pa.timestamp("us"), nullable=False), ("v", pa.int64())])
    rows = pa.Table.from_pylist(
        [{"k": values[n % len(values)], "ts": START + dt.timedelta(seconds=n), "v": n * 37 % 300} for n in range(300)], schema
    )
    with tw.open(tmp_path_factory.mktemp("lists") / "wh", settings=tw.Settings(leaf_rows=16)) as wh, duckdb.connect() as duck:
        table = wh.create_table("t", schema, time="ts", key="k")
        table.insert(rows.slice(0, 120))
        table.flush()
        table.insert(rows.slice(120, 90))
        table.flush()
        table.insert(rows.slice(210))
        duck.register("held", rows)
        duck.execute("CREATE TABLE t AS SELECT * FROM held")
        yield wh, duck, request.param


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("asked", ASKED)
def test_rows_of_a_list_of_keys_are_those_of_duckdb(filled: tuple[tw.Warehouse, Any, str], asked: str, more: str) -> None:
    wh, duck, kind = filled
    listed = KEYS[kind][2]
    for count in (1, 2, len(listed)):
        text = asked.format(f"k IN ({', '.join(listed[:count])}){more}")
        assert wh.sql(text).fetchall() == duck.sql(text).fetchall(), text


def test_a_list_of_keys_alone_is_not_asked_of_rows_again(filled: tuple[tw.Warehouse, Any, str]) -> None:
    wh, _, kind = filled
    listed = ", ".join(KEYS[kind][2][:2])
    result = wh.sql(ASKED[0].format(f"k IN ({listed}){MORE[1]}"))
    if kind in TAKEN:
        assert isinstance(result, DirectResult)
        assert "filtered" not in result.scans[0].how
    other = wh.sql(ASKED[0].format(f"k IN ({listed}){MORE[2]}"))
    if kind in TAKEN:
        assert isinstance(other, DirectResult) and "filtered" in other.scans[0].how
