"""Names of other libraries get an error that says what to write, and what it says is there."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.model.other_names import OF_RESULTS, OF_TABLES, OF_WAREHOUSES

SCHEMA = pa.schema([("plate", pa.int64()), ("ts", pa.timestamp("us")), ("speed", pa.float64()), ("zone", pa.string())])


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "taxis") as wh:
        rows = [{"plate": n % 5, "ts": dt.datetime(2026, 1, 1, 0, n), "speed": n / 2, "zone": f"z{n % 3}"} for n in range(50)]
        wh.create_table("taxi", rows, time="ts", key="plate")
        yield wh


@pytest.mark.parametrize(
    "known, kinds",
    [(OF_TABLES, (tw.Table, tw.Warehouse)), (OF_RESULTS, (tw.Result, tw.Table)), (OF_WAREHOUSES, (tw.Warehouse, tw.Table))],
)
def test_what_is_advised_is_there_and_what_is_not_is_not(known: Mapping[str, str], kinds: tuple[type, type]) -> None:
    for name, advice in known.items():
        assert not hasattr(kinds[0], name), name
        for called in re.findall(r"(?:^|\.|and )(\w+)", advice.removeprefix("Warehouse.").split(", of")[0]):
            there = any(hasattr(kind, called) for kind in (*kinds, tw.Result)) or called in ("print", "len", "for", "names", "append")
            assert there or hasattr(pa.Table, called) or hasattr(pd.DataFrame, called), (name, advice, called)


@pytest.mark.parametrize(
    "typed, said",
    [
        ("wh.taxi", r"'Warehouse' object has no attribute 'taxi'; write wh\['taxi'\]$"),
        ("wh.taxis", r"has no attribute 'taxis'$"),
        ("wh.list_tables()", r"; write tables\(\)$"),
        ("wh.query('SELECT 1')", r"; write sql\(statement\)$"),
        ("taxi.df()", r"'Table' object has no attribute 'df'; write query\(…\)\.df\(\)$"),
        ("taxi.columns", r"; write schema\.names$"),
        ("taxi.append([])", r"; write insert\(rows\)$"),
        ("taxi.nonsense", r"^'Table' object has no attribute 'nonsense'$"),
        ("taxi.query().shape", r"'Result' object has no attribute 'shape'; write len\(result\) and columns$"),
        ("taxi.query().fetchdf()", r"; write df\(\)$"),
        ("taxi.query().nonsense", r"^'Result' object has no attribute 'nonsense'$"),
    ],
)
def test_an_error_says_what_to_write(wh: tw.Warehouse, typed: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        eval(typed, {"wh": wh, "taxi": wh["taxi"]})


def test_a_closed_warehouse_has_no_names_of_tables(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    wh.close()
    with pytest.raises(AttributeError, match="no attribute 'taxi'$"):
        wh.taxi  # type: ignore[attr-defined]  # noqa: B018


def test_a_result_is_not_taken_for_an_array_or_handed_over(wh: tw.Warehouse) -> None:
    result = wh["taxi"].query(key=(1, 2))
    for take in (pd.DataFrame, np.asarray):
        with pytest.raises(TypeError, match=r"take its rows with df\(\), pl\(\), arrow\(\) or fetchall\(\)"):
            take(result)  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"hand over arrow\(\) or df\(\)"):
        pickle.dumps(result)
    assert pa.table(result).num_rows == len(result) == len(pd.DataFrame(result.to_pylist()))
    assert copy.copy(wh["taxi"]).rows == 50


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"where": {"plate": 3}}, r'not \{.plate.: 3\}\. Write where="speed > 30", or with values where="speed > \?", params=\[30\]'),
        ({"where": "zone = z1"}, r"\"z1\" not found in FROM clause! A text is written in single quotes: 'z1'\.$"),
        ({"where": "zone IN (z1, z2)"}, r"A text is written in single quotes: 'z1'\.$"),
        ({"where": "zones = 'z1'"}, r"Did you mean 'zone'\?$"),
        ({"where": "plate = 1 AND colour"}, r"Columns: plate, ts, speed, zone$"),
        ({"where": "speed > :x", "params": {"x": 3}}, r"Parameters are written \?, with their values in a list, or \$name, with a mapping"),
        ({"columns": "speed"}, r"columns is a list of column names, like \['speed'\], not 'speed'"),
        ({"order_by": "-speed"}, r"Falling is 'speed desc'\."),
        ({"aggregate": {"n": "count"}, "group_by": ["zone"]}, r"An aggregate is a call: count\(\*\)\.$"),
        ({"aggregate": {"v": "mean"}, "group_by": ["zone"]}, r"An aggregate is a call: avg\(column\)\.$"),
        ({"aggregate": {"v": "sum(count)"}}, r"Columns: plate, ts, speed, zone$"),
    ],
)
def test_a_query_that_is_written_as_elsewhere(wh: tw.Warehouse, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(tw.QueryError, match=said):
        wh["taxi"].query(**asked).to_arrow()


@pytest.mark.parametrize(
    "statement, params, said",
    [
        ("SELECT * FROM taxi WHERE plate = :p", {"p": 1}, r'near ":"\. Parameters are written \?, with their values in a list'),
        ("SELECT * FROM taxi WHERE plate = %s", [1], r"Parameters are written \?, with their values in a list, or \$name"),
        ("SELECT * FROM taxi LATEST ON ts PARTITION BY plate", None, r"DISTINCT ON \(key\) \* FROM … ORDER BY key, time DESC"),
        ("SELECT avg(speed) FROM taxi SAMPLE BY 1h", None, r"time_bucket\('1 hour', time\)"),
        ("SELECT TOP 10 * FROM taxi", None, r"LIMIT 10"),
        ("SELECT * FROM taxi WHERE zone = z1", None, r"A text is written in single quotes: 'z1'"),
        ("SELECT speed::int FROM taxi WHERE zone = 'a:b' AND", None, r'^syntax error at or near "AND"\n'),
    ],
)
def test_a_statement_that_is_written_as_elsewhere(wh: tw.Warehouse, statement: str, params: Any, said: str) -> None:
    with pytest.raises(tw.QueryError, match=said):
        wh.sql(statement, params).fetchall()


def test_a_time_that_is_none_of_nanoseconds(wh: tw.Warehouse) -> None:
    """DuckDB calls them INT64."""
    frame = pd.DataFrame({"plate": [1], "ts": pd.to_datetime(["2026-01-01"])})
    assert str(frame.ts.dtype) == "datetime64[ns]"
    with pytest.raises(tw.QueryError, match="A time is written like '2026-01-31 12:00:00'\n"):
        wh.sql("SELECT * FROM f WHERE ts > '2026-13-01'", tables={"f": frame}).fetchall()


def test_rows_and_schemas_that_are_none(wh: tw.Warehouse) -> None:
    taxi, frame = wh["taxi"], pd.DataFrame({"speed": [1.0]})
    with pytest.raises(tw.InputError, match=r"not Table\. The rows of a table are table\.query\(\)\."):
        taxi.insert(taxi)
    with pytest.raises(tw.InputError, match=r"not Series\. A Series is a DataFrame of one column with to_frame\(\)\."):
        taxi.insert(frame.speed)
    with pytest.raises(tw.TidewheelError, match=r"wh\.load\(table, files, time=…, key=…\)"):
        wh.create_table("new", "rides.parquet", time="ts", key="plate")
    with pytest.raises(tw.TidewheelError, match=r"a list of columns is no schema by itself: write pyarrow\.schema"):
        wh.create_table("new", [("plate", "int")], time="ts", key="plate")
    with pytest.raises(tw.QueryError, match="tables= takes names with their rows, .* not DataFrame"):
        wh.sql("SELECT 1", tables=frame)  # type: ignore[arg-type]
    assert wh.sql("SELECT count(*) FROM taxi WHERE plate = ?", params=np.array([3])).fetchall() == [(10,)]  # type: ignore[arg-type]
    assert wh.tables() == ["taxi"] and taxi.rows == 50
