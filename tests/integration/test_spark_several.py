"""Derived tables over several sources on Spark: the modes that are decided on, and that each gives what the query gives from scratch."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("plate", pa.string()), ("speed", pa.int64())])
START = dt.datetime(2026, 1, 1)

UNION = "SELECT ts AS hour, plate, speed FROM Taxi WHERE speed > 2 UNION ALL SELECT ts, plate, speed + 1 FROM cab"
COUNTS = f"SELECT time_bucket(INTERVAL 1 HOUR, hour) AS hour, plate, count(*) AS n, sum(speed) AS total FROM ({UNION}) GROUP BY 1, 2"
INNER = "SELECT t.ts AS hour, t.plate, t.speed, c.speed AS other FROM Taxi t JOIN cab c ON t.plate = c.plate AND t.ts = c.ts"
LEFT = INNER.replace("JOIN", "LEFT JOIN")
PAIRS = f"SELECT time_bucket(INTERVAL 1 HOUR, hour) AS hour, plate, count(*) AS n, max(other) AS top FROM ({INNER}) GROUP BY 1, 2"
MEDIANS = f"SELECT time_bucket(INTERVAL 1 HOUR, hour) AS hour, plate, median(speed) AS middle FROM ({UNION}) GROUP BY 1, 2"

SHAPES = {
    # the query; and the mode, if Taxi changed, if cab did, if both did
    "unions": (UNION, "append append append"),
    "counts": (COUNTS, "merge merge merge"),
    "inners": (INNER, "append append keys"),
    "lefts": (LEFT, "append keys keys"),
    "pairs": (PAIRS, "merge merge keys"),
    "medians": (MEDIANS, "keys keys keys"),
}


def rows(*three: tuple[float, int, int]) -> pa.Table:
    times = [START + dt.timedelta(hours=hour) for hour, _, _ in three]
    return pa.table([times, [f"p{plate}" for _, plate, _ in three], [speed for _, _, speed in three]], schema=SCHEMA)


def check(wh: tw.Warehouse) -> None:
    for name, (sql, _) in SHAPES.items():
        found, wanted = (wh.sql(f"SELECT * FROM {what} ORDER BY ALL").to_pylist() for what in (name, f"({sql})"))
        assert [tuple(row.values()) for row in found] == [tuple(row.values()) for row in wanted], name


def test_every_side(tmp_path: Path, spark: SparkSession) -> None:
    """Rows come late on each side and on both, and are replaced on each side and on both."""
    with tw.open(tmp_path / "wh") as wh:
        taxi, cab = (wh.create_table(name, SCHEMA, time="ts", key="plate", partition="1 hour") for name in ("Taxi", "cab"))
        for name, (sql, _) in SHAPES.items():
            wh.create_derived(name, sql, time="hour", key="plate", partition="1 hour", incremental="strict", spark=spark)
        assert "; if only Taxi changed" in str(wh.table("lefts").definition)  # type: ignore[attr-defined]
        for table in (taxi, cab):
            table.insert(rows(*((i / 8, i % 3, i) for i in range(24))))
        assert wh.refresh(spark=spark).ok
        check(wh)
        late = rows((1.25, 1, 7), (1.25, 2, 8))
        for turn, changed in enumerate(((taxi,), (cab,), (taxi, cab))):
            for table in changed:
                table.insert(late)
            report = wh.refresh(spark=spark)
            assert report.ok and {one.name: one.mode for one in report} == {n: m.split()[turn] for n, (_, m) in SHAPES.items()}, report
            check(wh)
        for changed in ((taxi,), (cab,), (taxi, cab)):
            for table in changed:
                table.replace(rows((1.25, len(changed), 3)), time=("2026-01-01 01:00", "2026-01-01 01:30"))
            report = wh.refresh(spark=spark)
            assert report.ok and {one.mode for one in report} == {"recompute"}, report
            check(wh)
        taxi.insert(late)
        cab.replace(rows((1.25, 1, 5)), time=("2026-01-01 01:00", "2026-01-01 01:30"))
        assert wh.refresh(spark=spark).ok
        check(wh)
