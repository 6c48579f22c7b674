"""Averages of derived tables in mode merge: their sums and counts are kept in hidden columns, which show nowhere."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidewheel as tw

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidewheel.cluster.attached import AttachedEngine
from tidewheel.engine.operations import CreateDerived, Insert, RunQuery
from tidewheel.engine.refresher import refresh
from tidewheel.errors import QueryError
from tidewheel.model.query import Query
from tidewheel.model.schema import HIDDEN, make_spec
from tidewheel.spark.derived_compute import SparkCompute
from tidewheel.testing.probe import engine_of

SCHEMA = pa.schema([
    ("ts", pa.timestamp("us")), ("plate", pa.string()), ("speed", pa.float64()), ("seats", pa.int32()), ("fare", pa.decimal128(12, 2)),
    ("tip", pa.decimal128(38, 6)),
])  # fmt: skip
START = dt.datetime(2026, 1, 1)
PLAIN = "SELECT date_trunc('hour', ts) AS hour, plate, avg(speed) AS mean FROM taxi GROUP BY 1, 2"
MIXED = """
SELECT plate, count(*) AS n, avg(speed) AS mean, max(speed) AS top, avg(seats) AS seats, sum(fare) AS fares, avg(fare) AS fare,
       avg(tip) AS tip, avg(seats * 2) FILTER (WHERE speed > 10) AS fast, min(fare) AS low, time_bucket(INTERVAL 1 HOUR, ts) AS hour
FROM taxi WHERE plate <> 'p9' GROUP BY plate, hour
"""
RENAMED = """
WITH t AS (SELECT * FROM taxi) SELECT h AS hour, plate, m AS mean, m AS again
FROM (SELECT plate, avg(fare) AS m, time_bucket(INTERVAL 1 HOUR, ts) AS h FROM t GROUP BY ALL) AS x
"""


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate")
        yield wh


def rows(rng: random.Random, n: int) -> pa.Table:
    """Rows of three hours; each value is null one time in three, and those of plate p0 always are."""

    def some(value: Any) -> Any:
        return None if rng.random() < 0.3 else value

    made = []
    for _ in range(n):
        when, plate = START + dt.timedelta(minutes=rng.randrange(180)), f"p{rng.randrange(10)}"
        fare, tip = Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2), Decimal(rng.randrange(10**18)).scaleb(-6)
        values = rng.uniform(-50, 50), rng.randrange(-9, 9), fare, tip
        made.append((when, plate, *(None if plate == "p0" else some(value) for value in values)))
    return pa.table([pa.array(column, field.type) for column, field in zip(zip(*made, strict=True), SCHEMA, strict=True)], schema=SCHEMA)


def same(found: pa.Table, wanted: pa.Table) -> None:
    assert found.schema == wanted.schema and found.num_rows == wanted.num_rows
    left, right = (table.sort_by([("plate", "ascending"), ("hour", "ascending")]).to_pylist() for table in (found, wanted))
    for one, other in zip(left, right, strict=True):
        for name, value in one.items():
            close = isinstance(value, float) and other[name] is not None and math.isclose(value, other[name], rel_tol=1e-9, abs_tol=1e-9)
            assert close or value == other[name], (name, one, other)


def seats_of_hours(taxi: DataFrame) -> DataFrame:
    return taxi.groupBy(f.date_trunc("hour", "ts").alias("hour"), "plate").agg(f.avg("seats").alias("mean"), f.count("*").alias("n"))


def test_merging_gives_what_computing_anew_gives(wh: tw.Warehouse, spark: SparkSession) -> None:
    rng = random.Random(7)
    queries: dict[str, Any] = {"plain": PLAIN, "mixed": MIXED, "renamed": RENAMED, "function": seats_of_hours}
    for name, query in queries.items():
        made = wh.create_derived(name, query, time="hour", key="plate", spark=spark)
        assert made.definition.mode == "merge" and "hidden columns" in str(made.definition), made.definition
        anew = wh.create_derived(f"{name}_anew", query, time="hour", key="plate", incremental="never", spark=spark)
        assert anew.schema == made.schema
    for n in (400, 3, 1, 60):
        wh.table("taxi").insert(rows(rng, n))
        report = wh.refresh(spark=spark)
        assert report.ok, report
        for name in queries:
            assert report[name].mode == ("recompute" if n == 400 else "merge"), report
            same(wh.table(name).query().to_arrow(), wh.table(f"{name}_anew").query().to_arrow())
    for name in queries:
        table = wh.table(name)
        assert isinstance(table, tw.Derived) and table.verify(spark=spark).ok
    empty = wh.table("mixed").query(key="p0").to_pylist()
    assert empty and all(row["mean"] is row["seats"] is row["fare"] is row["tip"] is row["fast"] is None for row in empty)


TRIED = "SELECT date_trunc('hour', ts) AS hour, plate, try_avg(tip) AS mean FROM taxi GROUP BY 1, 2"


def test_sums_that_are_too_large(wh: tw.Warehouse, spark: SparkSession) -> None:
    """try_avg is null then, and stays so: what cannot be merged is computed anew."""
    tried = wh.create_derived("tried", TRIED, time="hour", key="plate", spark=spark)
    seen = []
    for plate, tip in (("p1", 9 * 10**31), ("p1", 9 * 10**31), ("p2", 1), ("p2", 2), ("p1", 1)):
        wh.table("taxi").insert([{"ts": START, "plate": plate, "tip": Decimal(tip)}])
        mode = tried.refresh(spark=spark)["tried"].mode
        seen.append((mode, [row["mean"] for row in wh.sql("SELECT mean FROM tried ORDER BY plate").to_pylist()]))
    both = [None, Decimal("1.5")]
    assert seen == [("recompute", [None]), ("recompute", [None]), ("merge", [None, Decimal(1)]), ("merge", both), ("recompute", both)]


def test_the_state_shows_nowhere(wh: tw.Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(3)
    wh.table("taxi").insert(rows(rng, 100))
    means = wh.create_derived("means", PLAIN, time="hour", key="plate", spark=spark)
    further = wh.create_derived("further", "SELECT * FROM means", time="hour", key="plate", spark=spark)
    wh.refresh(spark=spark)
    names = ["hour", "plate", "mean"]
    stored = engine_of(wh).table("means").spec.stored.names
    assert stored == [*names, f"{HIDDEN}sum2", f"{HIDDEN}count2"]

    assert means.schema.names == further.schema.names == names
    assert means.query().schema.names == means.query(where=lambda batch: [True] * batch.num_rows).schema.names == names
    assert means.query().to_arrow().column_names == names and HIDDEN not in repr(means)
    assert HIDDEN not in str(means.definition) and HIDDEN not in str(wh.explain_derived(PLAIN, time="hour", key="plate", spark=spark))
    assert wh.sql("SELECT * FROM means").to_arrow().column_names == names
    assert [row["column_name"] for row in wh.sql("DESCRIBE means").to_pylist()] == names
    assert [one.name for one in means.describe().columns] == names
    columns = wh.sql("SELECT column_name FROM system.columns WHERE table_name = 'means'").to_pylist()
    assert [row["column_name"] for row in columns] == names
    assert wh.sql("SELECT columns FROM system.tables WHERE name = 'means'").to_pylist() == [{"columns": 3}]
    assert means.dataset().schema.names == means.dataset().to_table().column_names == names
    pq.write_table(means.dataset().to_table(), tmp_path / "means.parquet")
    assert pq.read_schema(tmp_path / "means.parquet").names == names
    frame = spark.read.format("tidewheel").option("warehouse", str(tmp_path / "wh")).option("table", "means").load()
    assert frame.columns == names and frame.count() == len(means.query())
    for hidden in stored[3:]:
        for asked in ({"columns": [hidden]}, {"order_by": hidden}, {"aggregate": {"x": f'sum("{hidden}")'}}, {"where": f'"{hidden}" > 0'}):
            with pytest.raises(QueryError):
                means.query(**asked).to_arrow()  # type: ignore[arg-type]
        with pytest.raises(QueryError):
            wh.sql(f'SELECT "{hidden}" FROM means').to_arrow()

    wh.backup(tmp_path / "copy")
    tw.restore(tmp_path / "copy", tmp_path / "again")
    with tw.open(tmp_path / "again") as again:
        assert again.check().ok
        again.table("taxi").insert(rows(rng, 2))
        table = again.table("means")
        assert isinstance(table, tw.Derived) and table.refresh(spark=spark)["means"].mode == "merge" and table.verify(spark=spark).ok
        assert table.schema.names == names


def test_attached(attached: AttachedEngine, spark: SparkSession) -> None:
    """The state goes through the wire for refreshes, and for nobody else."""
    from tidewheel.derived_table import planned

    rng = random.Random(5)
    attached.create(make_spec("taxi", SCHEMA, time="ts", key="plate"), "error")
    made = planned(attached, "means", PLAIN, "hour", "plate", None, None, "auto", None, (), spark)
    attached.do(CreateDerived(made.spec, made.definition, made.bounds, "error"))
    modes = []
    for n in (50, 5):
        attached.table("taxi").give(Insert(None, "error"), rows(rng, n))
        modes.append(refresh(attached, SparkCompute(spark, attached.root), ["means"])["means"].mode)
    assert modes == ["recompute", "merge"]
    table = attached.table("means")
    assert table.spec.schema.names == table.ask(RunQuery(Query())).schema.names == ["hour", "plate", "mean"]
    with pytest.raises(QueryError, match="no column"):
        table.ask(RunQuery(Query(columns=[f"{HIDDEN}sum2"]))).to_arrow()
