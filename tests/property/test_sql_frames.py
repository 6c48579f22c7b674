"""Random frames beside a table: every statement has the rows that DuckDB alone has of the same data, however often frames change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.conftest import examples

N = 6_000
DAY = dt.datetime(2026, 1, 1)
TAXI = pa.table(
    {
        "id": pa.array(np.arange(N) * 7919 % 200, pa.int32()),
        "ts": pa.array(np.arange(N) * 1_000_000 + 1_767_225_600_000_000, pa.timestamp("us")),
        "v": pa.array(np.arange(N) % 97, pa.float64()),
    }
)
STATEMENTS = (
    "SELECT * FROM f",
    "SELECT count(*), count(id), count(x) FROM f",
    "SELECT id FROM f WHERE id > 50",
    "SELECT taxi.id, x, sum(v) FROM taxi JOIN f USING (id) GROUP BY ALL",
    "SELECT taxi.id, count(*) FROM taxi JOIN f ON taxi.id = f.id WHERE v < 40 GROUP BY ALL",
    "SELECT taxi.id, count(x) FROM taxi LEFT JOIN f USING (id) WHERE taxi.id < 30 GROUP BY ALL",
    "SELECT id, ts FROM taxi WHERE id IN (SELECT id FROM f) AND v > 90",
    "SELECT id, ts FROM taxi WHERE EXISTS (SELECT 1 FROM f WHERE f.id = taxi.id AND f.x IS NOT NULL) AND v > 90",
    "SELECT count(*) FROM taxi WHERE id NOT IN (SELECT id FROM f WHERE id IS NOT NULL)",
    "SELECT count(*), max(v) FROM taxi WHERE id >= (SELECT min(id) FROM f)",
    "WITH g AS (SELECT id, count(*) AS n FROM f GROUP BY id) SELECT taxi.id, n, count(*) FROM taxi JOIN g USING (id) GROUP BY ALL",
    "SELECT id FROM f UNION SELECT id FROM taxi WHERE v = 3",
)
IDS = st.lists(st.none() | st.integers(-5, 220), max_size=30)
TYPES = st.sampled_from([pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.uint32()])
XS: dict[str, Any] = {
    "text": lambda i: f"x{i % 3}",
    "time": lambda i: DAY + dt.timedelta(hours=i),
    "number": lambda i: i / 4,
    "flag": lambda i: i % 2 == 0,
    "null": lambda i: None,
}
FORMS: dict[str, Any] = {
    "arrow": lambda t: t,
    "pandas": lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "pieces": lambda t: pa.concat_tables([t.slice(0, 3), t.slice(3)]),
    "dictionary": lambda t: t.set_column(1, "x", t["x"].dictionary_encode()) if pa.types.is_string(t["x"].type) else t,
}


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    """One for all examples."""
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("taxi", TAXI.schema, time="ts", key="id").insert(TAXI)
        yield wh


@given(IDS, TYPES, st.sampled_from(sorted(XS)), st.sampled_from(sorted(FORMS)), st.sampled_from(STATEMENTS))
@settings(max_examples=examples(30))
def test_frames_are_read_as_duckdb_reads_them(
    wh: tw.Warehouse, ids: list[int | None], type_: pa.DataType, x: str, form: str, statement: str
) -> None:
    if pa.types.is_unsigned_integer(type_):
        ids = [None if one is None else abs(one) for one in ids]
    frame = pa.table({"id": pa.array(ids, type_), "x": pa.array([XS[x](i) if i % 5 else None for i in range(len(ids))])})
    with duckdb.connect() as alone:
        alone.execute("SET TimeZone = 'UTC'")
        alone.register("taxi", TAXI)
        alone.register("f", frame)
        expected = alone.sql(statement).fetchall()
    found = wh.sql(statement, tables={"f": FORMS[form](frame)}).fetchall()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
