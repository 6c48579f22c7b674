"""Derived tables on Spark: defined, refreshed through Arrow and through the source, verified; in the owner's process and attached."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidewheel.cluster.attached import AttachedEngine
from tidewheel.engine.operations import Insert, RunQuery
from tidewheel.engine.refresh_loop import RefreshLoop
from tidewheel.engine.refresher import refresh
from tidewheel.env.background import NICENESS
from tidewheel.errors import ExistsError, QueryError, SchemaError
from tidewheel.model.query import Query
from tidewheel.model.schema import make_spec
from tidewheel.spark import derived_compute
from tidewheel.spark.derived_compute import SparkCompute
from tidewheel.surfaces.cli import main

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("plate", pa.string()), ("speed", pa.int64())])
HOURLY = "SELECT time_bucket(INTERVAL 1 HOUR, ts) AS hour, plate, count(*) AS n, sum(speed) AS total FROM taxi GROUP BY 1, 2"
START = dt.datetime(2026, 1, 1)


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate")
        yield wh


def rows(n: int, start: float = 0.0, hours: float = 3.0) -> pa.Table:
    times = [START + dt.timedelta(hours=start + hours * i / n) for i in range(n)]
    return pa.table([times, [f"p{i % 7}" for i in range(n)], list(range(n))], schema=SCHEMA)


def check(wh: tw.Warehouse, name: str = "hourly", sql: str = HOURLY) -> None:
    found, wanted = (wh.sql(f"SELECT * FROM {what} ORDER BY ALL").to_pylist() for what in (name, f"({sql})"))
    assert [tuple(row.values()) for row in found] == [tuple(row.values()) for row in wanted]


def test_a_query_is_followed(wh: tw.Warehouse, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    SparkSession._activeSession = spark
    hourly = wh.create_derived("hourly", HOURLY, time="hour", key="plate", spark=spark)
    assert isinstance(hourly, tw.Derived) and isinstance(wh.table("hourly"), tw.Derived) and not isinstance(wh.table("taxi"), tw.Derived)
    assert hourly.schema.field("total").type == pa.int64() and hourly.definition.sources == ("taxi",)
    assert "rows of the same 1 hour" in str(hourly.definition) and "recompute" in str(hourly.definition)
    with pytest.raises(ExistsError):
        wh.create_derived("hourly", HOURLY, time="hour", key="plate", spark=spark)
    wh.create_derived("hourly", HOURLY, time="hour", key="plate", if_exists="open", spark=spark)
    taxi = wh.table("taxi")
    taxi.insert(rows(100))
    report = wh.refresh(spark=spark)
    assert (report["hourly"].partitions, report["hourly"].rows_read) == (3, 100)
    check(wh)
    taxi.insert(rows(5, 1.2, 0.1))
    report = hourly.refresh(spark=spark)
    assert (report["hourly"].partitions, report["hourly"].mode) == (1, "merge")
    check(wh)
    assert hourly.refresh(full=True, time=(START, START), spark=spark)["hourly"].partitions == 1
    assert hourly.verify(spark=spark).ok
    assert SparkSession.getActiveSession() is spark
    assert capfd.readouterr() == ("", "")
    with pytest.raises(tw.InputError, match="hourly"):
        wh.drop_table("taxi")
    wh.drop_table("taxi", cascade=True)
    assert wh.tables() == []


def test_large_inputs_are_read_by_tasks(wh: tw.Warehouse, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_compute, "SMALL", -1)
    hourly = wh.create_derived("hourly", HOURLY, time="hour", key="plate", incremental="never", spark=spark)
    taxi = wh.table("taxi")
    taxi.insert(rows(300, hours=6))
    taxi.flush()
    assert wh.refresh(spark=spark)["hourly"].rows_read == 300
    taxi.insert(rows(10, 1.2, 0.1))
    taxi.insert(rows(10, 4.2, 0.1))
    compute, late = SparkCompute(spark, wh._engine.root), [rows(10, 1.3, 0.1)]

    class Meanwhile:
        """Rows that come after the cut are none of a refresh's, wherever they are."""

        def run(self, *given: Any) -> pa.Table:
            while late:
                taxi.insert(late.pop())
            return compute.run(*given)

    report = refresh(wh._engine, Meanwhile())
    assert (report["hourly"].partitions, report["hourly"].rows_read) == (2, 120)
    assert [row["n"] for row in wh.sql("SELECT sum(n) AS n FROM hourly").to_pylist()] == [320]
    wh.refresh(spark=spark)
    check(wh)
    assert hourly.verify(2, spark=spark).ok
    taxi.insert(rows(10, 5.2, 0.1))
    replaced, runs = [rows(7, 5.3, 0.1)], list[int]()

    class Replaced:
        def run(self, *given: Any) -> pa.Table:
            runs.append(1)
            while replaced:
                taxi.replace(replaced.pop(), time=(None, None))
                taxi.flush()
            return compute.run(*given)

    assert refresh(wh._engine, Replaced()).ok and len(runs) > 1
    wh.refresh(spark=spark)
    check(wh)


def test_a_function_and_what_is_made_of_it(wh: tw.Warehouse, spark: SparkSession) -> None:
    @wh.derived(time="hour", key="plate", partition="1 day", spark=spark)
    def fast(taxi: DataFrame) -> DataFrame:
        """Only the fast ones."""
        return taxi.where(f.col("speed") > 50).select(f.col("ts").alias("hour"), "plate", "speed")

    assert isinstance(fast, tw.Derived) and fast.definition.language == "python" and fast.definition.text.endswith("fast")
    wh.create_derived(
        "daily", "SELECT date(hour) AS day, plate, max(speed) AS top FROM fast GROUP BY 1, 2", time="day", key="plate", spark=spark
    )
    wh.table("taxi").insert(rows(200, hours=50))
    report = wh.refresh("daily", spark=spark)
    assert [one.name for one in report] == ["fast", "daily"] and report.ok
    check(wh, "fast", "SELECT ts, plate, speed FROM taxi WHERE speed > 50")
    check(wh, "daily", "SELECT ts::DATE, plate, max(speed) FROM taxi WHERE speed > 50 GROUP BY 1, 2")


MEANS = (
    "SELECT time_bucket(INTERVAL 1 HOUR, ts) AS hour, plate, count(speed) AS n, sum(speed) AS total, avg(speed) AS mean "
    "FROM taxi GROUP BY 1, 2"
)
MIDDLES = "SELECT time_bucket(INTERVAL 1 HOUR, ts) AS hour, plate, median(speed) AS middle FROM taxi GROUP BY 1, 2"


def test_every_mode_gives_the_same(wh: tw.Warehouse, spark: SparkSession) -> None:
    taxi = wh.table("taxi")
    wh.create_derived("fast", "SELECT ts AS hour, plate, speed FROM taxi WHERE speed > 3", time="hour", key="plate", spark=spark)
    wh.create_derived("means", MEANS, time="hour", key="plate", spark=spark)
    wh.create_derived("middles", MIDDLES, time="hour", key="plate", spark=spark)
    never = wh.create_derived("never", MEANS, time="hour", key="plate", incremental="never", spark=spark)
    assert never.definition.mode == "recompute" and "'never'" in str(never.definition)
    with pytest.raises(SchemaError, match="strict"):
        both = (
            "SELECT hour, count(*) AS plate FROM never n JOIN taxi t ON n.plate = t.plate AND n.hour = t.ts GROUP BY 1 HAVING count(*) > 1"
        )
        wh.create_derived("strict", both, time="hour", key="plate", incremental="strict", spark=spark)
    taxi.insert(rows(100))
    wh.refresh(spark=spark)
    taxi.insert(rows(2, 1.2, 0.1))
    report = wh.refresh(spark=spark)
    assert report.ok, report
    assert [one.mode for one in report] == ["append", "merge", "keys", "recompute"]
    assert report["fast"].rows_read == 2 and report["middles"].rows_read < 20
    check(wh, "fast", "SELECT ts AS hour, plate, speed FROM taxi WHERE speed > 3")
    check(wh, "means", MEANS)
    check(wh, "never", MEANS)
    check(wh, "middles", MIDDLES)


def test_what_is_refused(wh: tw.Warehouse, spark: SparkSession) -> None:
    wh.create_table("colours", pa.schema([("since", pa.timestamp("us")), ("plate", pa.string())]), time="since", key="plate")

    def refused(sql: str, match: str, **how: Any) -> None:
        with pytest.raises((SchemaError, tw.InputError), match=match):
            wh.create_derived("new", sql, **{"time": "ts", "key": "plate", "spark": spark, **how})
        assert "new" not in wh.tables()

    refused("SELECT * FROM taxy", "'taxi'")
    refused("SELECT * FROM taxi JOIN colours USING (plate)", "colours")
    refused("SELECT ts, plate, rand() AS r FROM taxi", "chance")
    refused("SELECT 1 AS ts, 'a' AS plate", "no source")
    refused("SELECT ts, plate FROM taxi", "nowhere", time="nowhere")
    refused("SELECT ts, plate FROM taxi", "colours", bounds={"colours": "all"})
    refused("SELECT ts, plate FROM taxi", "incremental", incremental="sometimes")
    refused("SELECT ts, plate FROM taxi", "tw.bounds", bounds={"taxi": "yes"})
    refused("SELECT ts, plate FROM taxi LIMIT 3", "^LIMIT and OFFSET: which rows remain")
    refused("SELECT ts, plate FROM taxi", "'plaet' is not in the schema of table 'new'. Did you mean 'plate'", key="plaet")
    everywhere = {"sql": "SELECT ts, plate FROM taxi", "bounds": {"taxi": "all"}}
    refused(match="needs a source whose rows reach only some", **everywhere)
    with pytest.raises(tw.InputError, match="needs a source whose rows reach only some"):
        wh.explain_derived(**everywhere, time="ts", key="plate", spark=spark)
    with pytest.raises(SchemaError, match="a definition is SQL, or a function"):
        wh.create_derived("new", 42, time="ts", key="plate", spark=spark)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="ORDER BY"):
        wh.create_derived("ordered", "SELECT ts, plate FROM taxi ORDER BY plate", time="ts", key="plate", spark=spark)
    wh.drop_table("ordered")
    explained = wh.explain_derived(HOURLY, time="hour", spark=spark)
    assert "taxi" in str(explained) and explained.schema.names == ["hour", "plate", "n", "total"] and wh.tables() == ["colours", "taxi"]


def test_a_failing_query_is_told(wh: tw.Warehouse, spark: SparkSession) -> None:
    broken = wh.create_derived("broken", "SELECT ts, plate, CAST(plate AS INT) AS n FROM taxi", time="ts", key="plate", spark=spark)
    wh.table("taxi").insert(rows(3))
    report = wh.refresh(spark=spark)
    assert not report.ok and "CAST_INVALID_INPUT" in report["broken"].error
    with pytest.raises(QueryError, match="CAST_INVALID_INPUT"):
        broken.refresh(spark=spark)


def test_a_refresher_follows(wh: tw.Warehouse, spark: SparkSession) -> None:
    wh.create_derived("hourly", HOURLY, time="hour", key="plate", spark=spark)
    with wh.refresher(every="50 ms", spark=spark) as refresher:
        wh.table("taxi").insert(rows(10))
        give_up = time.monotonic() + 60
        while wh.sql("SELECT coalesce(sum(n), 0)::BIGINT AS n FROM hourly").to_pylist() != [{"n": 10}]:
            assert time.monotonic() < give_up and not refresher.errors
            time.sleep(0.05)
    check(wh)


def test_attached(attached: AttachedEngine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    attached.create(make_spec("taxi", SCHEMA, time="ts", key="plate"), "error")
    attached.table("taxi").give(Insert(None, "error"), rows(50))
    from tidewheel.derived_table import planned
    from tidewheel.engine.operations import CreateDerived

    made = planned(attached, "hourly", HOURLY, "hour", "plate", None, None, "auto", None, (), spark)
    attached.do(CreateDerived(made.spec, made.definition, made.bounds, "error"))
    for small in (64 << 20, -1):
        monkeypatch.setattr(derived_compute, "SMALL", small)
        report = refresh(attached, SparkCompute(spark, attached.root), ["hourly"], full=True)
        assert report.ok and report["hourly"].partitions == 3, report
        found = attached.table("hourly").ask(RunQuery(Query(aggregate={"n": "sum(n)"}))).to_pylist()
        assert found == [{"n": 50}]


def test_the_command(root: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.open(root) as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate")
        wh.create_derived("hourly", HOURLY, time="hour", key="plate", spark=spark)
        wh.table("taxi").insert(rows(10))
    command = ["refresh", "-w", str(root)]
    assert main([*command, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["partitions"] == 3
    assert main([*command, "hourly", "--full"]) == 0
    assert "3 partitions of 1 table refreshed" in capsys.readouterr().out
    assert main(command) == 0
    assert "1 table up to date" in capsys.readouterr().out
    assert main([*command, "--full"]) == 1 and main([*command, "taxi"]) == 1 and main([*command, "hurly"]) == 1
    assert "'hourly'" in capsys.readouterr().err

    def interrupted(loop: RefreshLoop) -> None:
        while loop.report is None:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(RefreshLoop, "wait", interrupted)
    with tw.open(root) as wh:
        wh.create_derived("broken", "SELECT ts, plate, CAST(plate AS INT) AS n FROM taxi", time="ts", key="plate", spark=spark)
    assert main([*command, "--watch"]) == 1
    assert "broken" in capsys.readouterr().out
    assert main(command) == 1
    assert "CAST_INVALID_INPUT" in capsys.readouterr().out


BESIDE = """
import os, sys
import tidewheel as tw
from tidewheel.spark import jvm

mine = os.getpriority(os.PRIO_PROCESS, 0)
with tw.open(sys.argv[1]) as wh:
    made = wh.create_derived("fast", "SELECT * FROM taxi WHERE speed > 3", time="ts", key="plate")
    assert wh.refresh()["fast"].rows_written == 6
print(os.getpriority(os.PRIO_PROCESS, jvm.gateway().proc.pid) - mine, os.getpriority(os.PRIO_PROCESS, 0) - mine)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="niceness is a whole process's elsewhere")
def test_inserts_go_before_a_java_process_that_was_not_asked_for(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(rows(10))
    done = subprocess.run([sys.executable, "-c", BESIDE, str(tmp_path / "wh")], capture_output=True, text=True)
    nicer = max(0, NICENESS - os.getpriority(os.PRIO_PROCESS, 0))
    assert done.stdout.split() == [str(nicer), "0"], done.stderr


@pytest.mark.parametrize("small", [64 << 20, -1])
def test_types(wh: tw.Warehouse, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(derived_compute, "SMALL", small)
    schema = pa.schema([
        ("at", pa.timestamp("ns", "UTC")), ("who", pa.dictionary(pa.int32(), pa.string())), ("big", pa.uint64()),
        ("tags", pa.list_(pa.string())), ("d", pa.decimal128(10, 2)), ("odd", pa.month_day_nano_interval()),
    ])  # fmt: skip
    odd = wh.create_table("odd", schema, time="at", key="who", partition="1 day")
    sql = "SELECT date_trunc('DAY', at) AS day, at, who, big, tags, d FROM odd WHERE who <> 'c'"
    got = wh.create_derived("got", sql, time="at", key="who", partition="1 day", spark=spark)
    assert got.definition.mode == "append" and "odd" not in got.schema.names
    for n in range(2):
        odd.insert(
            [
                {"at": 1_767_225_600_000_000_000 + i * 10**15 + n, "who": "abc"[i % 3], "big": 2**64 - 1 - i, "tags": ["x", None], "d": i}
                for i in range(6)
            ]
        )
        assert wh.refresh(spark=spark).ok
    found = got.query(order_by="at, big").to_pylist()
    assert len(found) == 8 and found[0]["at"] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC) and found[0]["day"] == found[0]["at"]
    assert [row["who"] for row in found] == ["a", "a", "b", "b", "a", "a", "b", "b"] and found[0]["big"] == 2**64 - 1
    assert got.verify(spark=spark).ok


def test_days_and_numbers_as_times(wh: tw.Warehouse, spark: SparkSession) -> None:
    schema = pa.schema([("ms", pa.int64()), ("device", pa.int32()), ("v", pa.float32())])
    seen = wh.create_table("seen", schema, time=tw.epoch("ms", "ms"), key="device")
    daily = "SELECT to_date(timestamp_millis(ms)) AS day, device, sum(v) AS v FROM seen GROUP BY 1, 2"
    hourly = "SELECT ms - ms % 3600000 AS hour, device, max(v) AS v FROM seen GROUP BY 1, 2"
    wh.create_derived("days", daily, time="day", key="device", bounds={"seen": tw.bounds("1 day", "1 day", "1 day")}, spark=spark)
    hours = tw.bounds(0, 0, "1 hour")
    wh.create_derived("hours", hourly, time=tw.epoch("hour", "ms"), key="device", bounds={"seen": hours}, spark=spark)
    for n in range(2):
        seen.insert([{"ms": 1_767_225_600_000 + i * 3_600_000 * 7 + n, "device": i % 2, "v": i / 2} for i in range(10)])
        assert wh.refresh(spark=spark).ok
    assert sum(row["v"] for row in wh.table("days").query().to_pylist()) == 45.0
    check(wh, "hours", hourly)
    assert all(wh.table(name).verify(spark=spark).ok for name in ("days", "hours"))  # type: ignore[attr-defined]
