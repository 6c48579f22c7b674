"""`describe` against a slow and obvious description, wherever it is asked: in process, attached, in SQL, on the command line."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.cluster.client import attach
from tidewheel.engine.operations import DescribeTable
from tidewheel.model.description import TableDescription
from tidewheel.surfaces import cli

SCHEMA = pa.schema(
    [("id", pa.uint16()), ("ts", pa.timestamp("us")), ("speed", pa.float64()), ("zone", pa.string()), ("tags", pa.list_(pa.int8()))]
)
BEGIN = dt.datetime(2026, 1, 1)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": (i * 7) % 23, "ts": BEGIN + dt.timedelta(seconds=i), "speed": None if i % 3 else i / 2, "zone": f"z{i % 5}",
            "tags": None if i % 4 else [1],
        }
        for i in range(first, first + count)
    ]  # fmt: skip


def expected(all_rows: list[dict[str, Any]]) -> dict[str, tuple[int, Any, Any, int | None]]:
    """Column: nulls, least, greatest, different values."""
    found: dict[str, tuple[int, Any, Any, int | None]] = {}
    for name in SCHEMA.names:
        values = [row[name] for row in all_rows if row[name] is not None]
        plain = name != "tags"
        ends = (min(values), max(values)) if plain and values else (None, None)
        found[name] = len(all_rows) - len(values), *ends, len(set(values)) if plain else None
    return found


def check(described: TableDescription, all_rows: list[dict[str, Any]]) -> None:
    assert described.rows == len(all_rows) and [c.name for c in described] == SCHEMA.names
    for column in described:
        nulls, least, greatest, distinct = expected(all_rows)[column.name]
        assert (column.nulls, column.least, column.greatest) == (nulls, least, greatest), column
        assert column.type == str(SCHEMA.field(column.name).type)
        assert (column.distinct is None) == (distinct is None)
        if distinct is not None and column.distinct is not None:
            assert abs(column.distinct - distinct) <= 0.15 * distinct, column


def test_at_the_prompt_it_is_what_is_printed(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        described = wh.create_table("taxi", SCHEMA, time="ts", key="id").describe()
    assert repr(described) == str(described) and repr(described).startswith("taxi: 0 rows\ncolumn")


@pytest.fixture
def table(tmp_path: Path) -> Any:
    with tw.open(tmp_path / "wh") as wh:
        yield wh.create_table("taxi", SCHEMA, time="ts", key="id")


def test_fresh_flushed_and_replaced(table: tw.Table) -> None:
    check(table.describe(), [])
    held = rows(0, 500)
    table.insert(held)
    check(table.describe(), held)
    table.flush()
    table.insert(rows(500, 300))
    check(table.describe(), rows(0, 800))
    # the ends of the regions are hidden now: the index alone would be wrong
    table.replace(rows(0, 1), time=(BEGIN, BEGIN + dt.timedelta(seconds=99)))
    table.replace([], time=(BEGIN + dt.timedelta(seconds=700), None))
    check(table.describe(), [*rows(0, 1), *rows(100, 600)])


def test_attached_and_in_sql(table: tw.Table, tmp_path: Path) -> None:
    table.insert(rows(0, 400))
    attached = attach(tmp_path / "wh")
    check(attached.table("taxi").do(DescribeTable()), rows(0, 400))
    attached.close()
    with tw.open(tmp_path / "wh") as wh:
        found = wh.sql("SELECT * FROM system.statistics WHERE column_name IN ('id', 'zone')").to_pylist()
    assert [(f["table_name"], f["type"], f["rows"], f["nulls"], f["least"], f["greatest"]) for f in found] == [
        ("taxi", "uint16", 400, 0, "0", "22"), ("taxi", "string", 400, 0, "z0", "z4"),
    ]  # fmt: skip


def test_on_the_command_line(table: tw.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table.insert(rows(0, 400))
    assert cli.main(["describe", "taxi", "-w", str(tmp_path / "wh")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "taxi: 400 rows" and shown[1].split() == ["column", "type", "nulls", "least", "greatest", "distinct"]
    assert shown[2].split()[:5] == ["id", "uint16", "0", "0", "22"]
    assert cli.main(["describe", "taxi", "-w", str(tmp_path / "wh"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["columns"][0]["greatest"] == 22
    assert cli.main(["describe", "taxis", "-w", str(tmp_path / "wh")]) == 1
    assert "Did you mean 'taxi'?" in capsys.readouterr().err


def test_values_that_python_lacks(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("ns")), ("t", pa.timestamp("ns"))])
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        table.insert(pa.table({"k": [1], "ts": pa.array([5], pa.timestamp("ns")), "t": pa.array([2**60 + 1], pa.timestamp("ns"))}))
        facts = {c.name: c for c in table.describe()}
    assert str(facts["ts"].least).endswith("000000005") and str(facts["t"].greatest).endswith("606846977")
