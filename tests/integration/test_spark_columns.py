"""Columns of sources on Spark: what `SELECT *` stands for, what is read, and another version of Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidewheel.derived_table import Planned, planned
from tidewheel.engine.operations import CreateDerived
from tidewheel.errors import SchemaError
from tidewheel.model.schema import make_spec
from tidewheel.spark import derived_compute

NARROW = pa.schema([("ts", pa.timestamp("us")), ("plate", pa.string()), ("speed", pa.int64())])
WIDE = pa.schema([("note", pa.string()), *NARROW, ("more", pa.int64())])
START = dt.datetime(2026, 1, 1)


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("taxi", NARROW, time="ts", key="plate")
        yield wh


def rows(schema: pa.Schema, n: int) -> pa.Table:
    made = [{"ts": START + dt.timedelta(minutes=i), "plate": f"p{i % 3}", "speed": i, "note": "?" * 200, "more": 1} for i in range(n)]
    return pa.Table.from_pylist(made, schema=schema)


def plan(wh: tw.Warehouse, what: object, spark: SparkSession, time: str = "ts") -> Planned:
    return planned(wh._engine, "made", what, time, "plate", None, None, "auto", None, (), spark)


@pytest.mark.parametrize("small", [64 << 20, -1])
def test_a_star_stands_for_what_it_stood_for(
    wh: tw.Warehouse, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """The same definitions in a warehouse whose source has more columns, as if they had come later."""
    monkeypatch.setattr(derived_compute, "SMALL", small)

    def everything(taxi: DataFrame) -> DataFrame:
        return taxi.select("*", (taxi["speed"] + 1).alias("next"))

    queries = {"stars": "SELECT t.* FROM taxi t WHERE speed > 0", "function": everything}
    made = {name: plan(wh, what, spark) for name, what in queries.items()}
    assert made["stars"].definition.columns == (("taxi", ("ts", "plate", "speed")),)
    with tw.open(tmp_path / "wider") as wider:
        taxi = wider.create_table("taxi", WIDE, time="ts", key="plate")
        for name, one in made.items():
            spec = make_spec(name, one.spec.schema, time="ts", key="plate")
            wider._engine.do(CreateDerived(spec, one.definition, one.bounds, "error"))
        taxi.insert(rows(WIDE, 10))
        taxi.flush()
        report = wider.refresh(spark=spark)
        assert report.ok and report["stars"].rows_written == 9, report
        assert wider.table("stars").query().to_arrow().schema.names == ["ts", "plate", "speed"]
        assert wider.table("function").query().to_arrow().column("next").to_pylist() == list(range(1, 11))


def test_what_is_read(wh: tw.Warehouse, spark: SparkSession) -> None:
    """Only the columns that a definition uses; all where it would become another one without the rest."""
    wide = wh.create_table("wide", WIDE, time="ts", key="plate")

    def counted(wide: DataFrame) -> DataFrame:
        return wide.groupBy(f.window("ts", "1 hour").start.alias("ts"), "plate").agg(f.sum("speed").alias("total"))

    def looks_around(wide: DataFrame) -> DataFrame:
        return wide.select("ts", "plate", f.lit(len(wide.columns)).alias("many"))

    def needs_all(wide: DataFrame) -> DataFrame:
        assert "note" in wide.columns
        return wide.select("ts", "plate")

    hourly = "SELECT window(ts, '1 hour').start AS ts, plate, count(*) AS n FROM wide GROUP BY 1, 2"
    joined = "SELECT a.ts, a.plate, b.speed FROM wide a JOIN taxi b ON a.plate = b.plate AND a.ts = b.ts WHERE a.more > 0"
    wanted = {
        hourly: {"wide": "ts plate"},
        joined: {"wide": "ts plate more", "taxi": "ts plate speed"},
        "SELECT ts, plate FROM (SELECT * FROM wide)": {"wide": "ts plate"},
        "SELECT * FROM wide": {"wide": " ".join(WIDE.names)},
        "SELECT ts, plate FROM (SELECT DISTINCT * FROM wide)": {"wide": " ".join(WIDE.names)},
        "SELECT TIMESTAMP_NTZ '2026-01-01' AS ts, count(*) AS plate FROM wide GROUP BY 1": {"wide": "ts"},
        counted: {"wide": "ts plate speed"},
        looks_around: {"wide": " ".join(WIDE.names)},
        needs_all: {"wide": " ".join(WIDE.names)},
    }
    for what, columns in wanted.items():
        bounds = {"wide": tw.bounds(before="1 hour", after="0")} if "count(*) AS plate" in str(what) else None
        made = planned(wh._engine, "made", what, "ts", "plate", None, bounds, "auto", None, (), spark)
        assert {name: " ".join(names) for name, names in made.definition.columns} == columns, what
    wide.insert(rows(WIDE, 200))
    wh.table("taxi").insert(rows(NARROW, 200))
    wh.create_derived("hourly", hourly, time="ts", key="plate", spark=spark)
    wh.create_derived("joined", joined, time="ts", key="plate", spark=spark)
    assert wh.refresh(spark=spark).ok and wh.sql("SELECT sum(n)::BIGINT AS n FROM hourly").to_pylist() == [{"n": 200}]
    assert len(wh.table("joined").query()) == 200
    for name in ("hourly", "joined"):
        assert wh.table(name).verify(spark=spark).ok  # type: ignore[attr-defined]


def test_another_version_of_spark(wh: tw.Warehouse, spark: SparkSession) -> None:
    """It warns once for each definition; and refuses one that gives other columns now."""
    made = plan(wh, "SELECT ts, plate, speed + 1 AS more FROM taxi", spark)
    taxi = wh.table("taxi")

    def stored(name: str, **other: Any) -> None:
        spec = replace(made.spec, name=name)
        wh._engine.do(CreateDerived(spec, replace(made.definition, digest=name, **other), made.bounds, "error"))

    major, minor, *_ = made.definition.made_with.split(".")
    stored("patched", made_with=".".join((major, minor, "99")))
    stored("older", made_with="2.1.0")
    taxi.insert(rows(NARROW, 3))
    with pytest.warns(UserWarning, match=r"`SELECT ts, plate, speed \+ 1 AS more FROM taxi` was made with Spark 2.1.0") as warned:
        assert wh.refresh(spark=spark).ok
    assert len(warned) == 1
    taxi.insert(rows(NARROW, 3))
    report = wh.refresh(spark=spark)
    assert report.ok and report["older"].rows_written == 3
    stored("changed", made_with="2.1.0", output=(("ts", "timestamp[us]"), ("plate", "string"), ("more", "int32")))
    with pytest.warns(UserWarning, match="2.1.0"):
        report = wh.refresh(spark=spark)
    assert "more int64; it gave ts timestamp[us], plate string, more int32. Refresh it with Spark 2.1" in report["changed"].error
    with pytest.raises(SchemaError, match="make it anew"):
        wh.refresh("changed", spark=spark)
    assert report["older"].error == ""
